"""Questions about the encyclopaedia: each names a thing, and a chain of facts that leads from it to the answer."""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from agentrl.envs.search_qa.encyclopaedia import ALIAS, RELATIONS, SPLITS, World, world

TRIES = 10  # largest number of random walks per question wanted
NAME = r"[A-Z][a-z]+ [A-Z][a-z]+|\d{4}"
_ASKS = {"person": "Who is", "city": "Which city is", "country": "Which country is", "year": "Which year is"}


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question and its way to the answer.

    Attributes:
        words: the question.
        answers: every right answer.
        chain: the facts' nouns, from the thing named in the question to the answer.
        path: the names along the chain, both ends included.
        gold: for each fact of the chain, in order, the id of the passage that states it.
    """

    words: str
    answers: tuple[str, ...]
    chain: tuple[str, ...]
    path: tuple[str, ...]
    gold: tuple[str, ...]


def ask(chain: tuple[str, ...], head: str) -> str:
    """The words of a question: a chain of facts that begins at `head`, with the last fact named first."""
    what = " of ".join(f"the {noun}" for noun in reversed(chain))
    return f"{_ASKS[RELATIONS[chain[-1]].to]} {what} of {head}?"


def understand(words: str) -> tuple[tuple[str, ...], str] | None:
    """The chain and the name in a question that `ask` wrote; None for any other text."""
    match = re.fullmatch(rf"(?:{'|'.join(_ASKS.values())}) (the .+) of ({NAME})\?", words.strip())
    if match is None:
        return None
    chain = tuple(noun.removeprefix("the ") for noun in reversed(match[1].split(" of ")))
    return (chain, match[2]) if all(noun in RELATIONS for noun in chain) else None


def read(noun: str, text: str) -> str | None:
    """The name or year that a passage's text states for a kind of fact, in any of its sentences; None if none."""
    for way in RELATIONS[noun].says:
        match = re.search(_pattern(way), text)
        if match is not None:
            return match[1]
    return None


def also_known(text: str) -> str | None:
    """The second name that a passage states; None if it states none."""
    match = re.search(_pattern(ALIAS), text)
    return None if match is None else match[1]


@lru_cache(maxsize=64)
def _pattern(way: str) -> str:
    before, after = way.split("{o}")
    return rf"(?<!\w){re.escape(before)}({NAME}){re.escape(after)}"


@lru_cache(maxsize=8)
def questions(name: str, seed: int) -> Mapping[str, tuple[Question, ...]]:
    """The questions of each split, with their numbers of hops mixed; the same for the same level and seed."""
    made = world(name, seed)
    found: dict[str, tuple[Question, ...]] = {}
    for split, most in zip(SPLITS, made.level.questions, strict=True):
        rng = random.Random(f"questions {name} {seed} {split}")
        heads = sorted(t.name for t in made.things.values() if t.split == split and t.facts)
        mixed: list[Question] = []
        for hops in range(made.level.hops[0], made.level.hops[1] + 1):
            walks: dict[str, _Walk] = {}
            for _ in range(TRIES * most):
                walk = _walk(made, rng.choice(heads), hops, rng)
                if walk is not None:
                    walks.setdefault(ask(walk.chain, walk.path[0]), walk)
                if len(walks) == most:
                    break
            mixed += [_question(made, words, walk) for words, walk in walks.items()]
        rng.shuffle(mixed)
        found[split] = tuple(mixed)
    return found


class _Walk(NamedTuple):
    chain: tuple[str, ...]
    path: tuple[str, ...]


def _walk(made: World, head: str, hops: int, rng: random.Random) -> _Walk | None:
    """A random chain of `hops` facts that comes to no thing twice; None if the walk cannot go on."""
    chain: list[str] = []
    path = [head]
    for _ in range(hops):
        thing = made.things.get(made.called.get(path[-1], ""))
        if thing is None or not thing.facts:
            return None
        noun = rng.choice(sorted(thing.facts))
        target = thing.facts[noun]
        if made.called.get(target, target) in {made.called.get(one, one) for one in path}:
            return None
        chain.append(noun)
        path.append(target)
    return _Walk(tuple(chain), tuple(path))


def _question(made: World, words: str, walk: _Walk) -> Question:
    """The question of a walk, with the passages that say its facts."""
    gold = tuple(
        next(p.id for p in made.sources[made.called[name]] if read(noun, p.text) == target)
        for noun, name, target in zip(walk.chain, walk.path, walk.path[1:], strict=False)
    )
    return Question(words=words, answers=made.answers(walk.path[-1]), chain=walk.chain, path=walk.path, gold=gold)
