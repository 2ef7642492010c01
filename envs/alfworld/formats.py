"""Recognises by hash which published domain and grammar a game file contains.

A game file contains its own rules. The native engine plays the files whose rules and words it reproduces exactly, and
recognises these rules and words by SHA-256. Parts that do not matter are removed before hashing: comments, case and
spacing of the domain; line ends, trailing blanks and the task sentence of the grammar.
"""

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from agentrl.envs.alfworld.pddl import NotNative

HELP = """\
Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""


class Form(NamedTuple):
    """What differs between the releases' words.

    Attributes:
        name: "move" or "put".
        put: command that puts object {o} down at receptacle {r}.
        placed: its answer.
        arrive: whether "You arrive at" names the receptacle or the "location" (loc 12).
        help: the answer to `help`; None if the release has no such command.
    """

    name: str
    put: str
    placed: str
    arrive: str
    help: str | None


_PUT = Form("put", "put {o} in/on {r}", "You put the {o} in/on the {r}.", "location", None)
_MOVE = Form("move", "move {o} to {r}", "You move the {o} to the {r}.", "receptacle", HELP)

_OLD_RULES = "b0b8259a4e11c9f45e91c181404bde4c2c936ad872fdc4d368c7e63094eaafac"
_RULES = "915e118f4f32b4d826bf53c99e860dd85831afffb1a31ad333f063ce005b7122"
# (domain, grammar) -> form.
_KNOWN = {
    # alfworld 0.2.0 to 0.3.5, game files json_2.1.1
    (_OLD_RULES, "37715147a9b916b8dfdefb88fba286238899ca2daedd621e54d92c1331d7c1e5"): _PUT,
    # the same files after the project's own patch script, game files json_2.1.2
    (_RULES, "af191038ff7d6ca1225e54435b76276aa82794316a07b92309fb0683c9691daf"): _MOVE,
    # alfworld 0.4.0 and later
    (_RULES, "21df8efa6d1537796ad3f430af9b838714200daf2a24c78967e9c87b697e271e"): _MOVE,
}

# Characters that have a meaning in the template syntax of the grammar, and the tab, which its parser skips.
_SPECIAL = re.compile(r"[;|<>\[\]#{}\t]")
_TASK = re.compile(r'("rhs": "Your task is to: )([^"\\\n]*)(")')


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=16)
def domain_hash(domain: str) -> str:
    """SHA-256 of the domain's tokens, comments dropped."""
    without = re.sub(r";[^\n]*", "", domain).lower()
    return _sha(" ".join(re.findall(r"[()]|[^\s()]+", without)))


@lru_cache(maxsize=16)
def grammar_hash(blanked: str) -> str:
    """SHA-256 of a grammar whose task sentence is blanked."""
    return _sha("\n".join(line.rstrip() for line in blanked.strip().splitlines()))


def split_task(grammar: str) -> tuple[str, str]:
    """(the grammar with its task sentence blanked, the sentence's own words).

    Raises:
        NotNative: no such sentence or several, or it uses characters that mean something to the grammar.
    """
    found = _TASK.findall(grammar)
    if len(found) != 1:
        raise NotNative(f"its grammar states the task {len(found)} times, expected once")
    words = found[0][1]
    if _SPECIAL.search(words):
        raise NotNative(f"its task {words!r} uses characters that mean something to the grammar")
    return _TASK.sub(r"\1\3", grammar), words


def published(data: Mapping[str, Any]) -> bool:
    """Whether the domain and the grammar of a game file are published ones, apart from the sentence of the task."""
    domain, grammar = data.get("pddl_domain"), data.get("grammar")
    try:
        return isinstance(domain, str) and isinstance(grammar, str) and bool(recognise(domain, grammar))
    except NotNative:
        return False


def recognise(domain: str, grammar: str) -> tuple[Form, str]:
    """(the release's form, the task's words) of a game's domain and grammar.

    Raises:
        NotNative: the pair is not a published one.
    """
    blanked, words = split_task(grammar)
    form = _KNOWN.get((domain_hash(domain), grammar_hash(blanked)))
    if form is None:
        raise NotNative(
            f"its rules are none of the published ones (domain {domain_hash(domain)[:12]}, "
            f"grammar {grammar_hash(blanked)[:12]})"
        )
    return form, words
