"""The simulated user: the wishes, the knowledge and the words of a customer. It is a script, in which nothing is
random.

A customer answers questions, confirms when asked to, repeats a question that was not answered, and states one request
after the other. It ends the conversation with tau-bench's mark `###STOP###`.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

STOP = "###STOP###"
GOODBYE = f"No, that is all. Thank you. {STOP}"
REPEATS = 2  # how often a question that was not answered is asked again
ASKED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "email": ("email", "e-mail"),
        "name": ("your name", "name and zip", "zip code"),
        "order": ("order number", "order id", "which order"),
        "booking": ("booking number", "booking id", "which booking"),
        "reason": ("reason", "why"),
        "item": ("which item", "what item"),
        "payment": ("payment method", "refund to"),
        "room": ("kind of room", "which room", "room type"),
    }
)
CONFIRM = ("confirm", "proceed", "yes or no", "yes/no")
CLOSING = ("anything else", "something else", "sorry", "policy", "cannot", "can't", "unable")


class Mood(NamedTuple):
    """The customer's progress: the number of the present request, how often the customer repeated its question, and
    whether the conversation is over."""

    request: int = 0
    repeated: int = 0
    over: bool = False


class Said(NamedTuple):
    """A reply, the customer's progress after it, and whether the customer agrees to what the agent proposed."""

    text: str
    mood: Mood
    agrees: bool = False


def opening(goal: Mapping[str, Any]) -> str:
    """The customer's first words."""
    return f"Hello. {goal['requests'][0]['say']}"


def reply(goal: Mapping[str, Any], mood: Mood, content: str) -> Said:
    """What the customer says to the agent's words.

    Args:
        goal: `facts` (what the customer knows, by the names of `ASKED`) and `requests`: each with `say`, `facts` of its
            own, and, if something must be told, `output` and the question `asks`.
        mood: the customer's progress.
        content: the agent's words.
    """
    if mood.over:
        return Said(GOODBYE, mood)
    low = content.lower()
    request = goal["requests"][mood.request]
    if any(word in low for word in CONFIRM):
        return Said("Yes.", mood, True)
    facts = {**goal["facts"], **request.get("facts", {})}
    wanted = [name for name, words in ASKED.items() if "?" in content and any(word in low for word in words)]
    if wanted:
        return Said(" ".join(_tell(name, facts) for name in wanted), mood)
    told = holds(content, str(request.get("output", "")))
    if request.get("output") and not told and mood.repeated < REPEATS:
        return Said(request["asks"], mood._replace(repeated=mood.repeated + 1))
    if told or request.get("output") or any(word in low for word in CLOSING):
        if mood.request + 1 == len(goal["requests"]):
            return Said(GOODBYE, mood._replace(over=True))
        following = Mood(mood.request + 1)
        return Said(f"Yes. {goal['requests'][following.request]['say']}", following)
    return Said(request["say"], mood)


def _tell(name: str, facts: Mapping[str, Any]) -> str:
    return str(facts.get(name) or f"I do not know the {name}.")


def holds(content: str, output: str) -> bool:
    """Does a text contain this output as separate words? Commas in numbers are ignored."""
    if not output:
        return False
    return re.search(rf"(?<![\w.]){re.escape(output.lower())}(?!\.?\w)", content.lower().replace(",", "")) is not None


def frank(instruction: str) -> dict[str, Any]:
    """The goal of a customer who says a whole written instruction at once, for tasks without separate requests."""
    return {"facts": dict.fromkeys(ASKED, instruction), "requests": [{"say": instruction, "facts": {}}]}
