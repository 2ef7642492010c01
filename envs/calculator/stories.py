"""Arithmetic stories: a count of things that events change, and sentences whose numbers do not matter.

The stories are divided into three parts: train, valid and test. No set of numbers occurs in two parts. No order of
kinds of event occurs in two parts either, except in stories of one event.
"""

import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

Part = Literal["train", "valid", "test"]
PARTS: tuple[Part, ...] = ("train", "valid", "test")
# Part -> the sums, modulo 5, that the numbers of its stories may have.
SUMS: Mapping[Part, tuple[int, ...]] = {"train": (0, 1, 2), "valid": (3,), "test": (4,)}
SHARES = {"test": 0.25, "valid": 0.15}  # part -> its share of all orders of events; training has the rest
SMALL = 9  # largest factor
FACTORS = 2  # largest number of events of a story that multiply
ROOM = 10  # the count is at most ROOM times the largest number
TRIES, MOST = 20, 10_000  # largest number of draws with one order of events, and of orders that are drawn

NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gil", "Hana")
THINGS = ("apples", "books", "coins", "marbles", "pens", "shells", "stamps", "tickets")
WORDS: Mapping[str, tuple[str, ...]] = {
    "more": ("{p} buys {n} more.", "{p} finds {n} more.", "{o} gives {p} {n} more."),
    "less": ("{p} gives {n} to {o}.", "{p} loses {n}.", "{p} sells {n}."),
    "boxes": ("{p} finds {k} boxes with {n} {t} each.", "{p} buys {k} bags of {n} {t}."),
    "friends": ("{p} gives {k} friends {n} each.", "{p} packs {k} boxes with {n} {t} each and sells them."),
    "times": ("{p} wins a bet and has {k} times as many.",),
}
NOISE = ("{o} is {n} years old.", "The shop is {n} miles away.", "{o} has {n} {t}.")
BRIEF: Mapping[str, tuple[str, ...]] = {
    "more": ("{p} gets {n}.",),
    "less": ("{p} loses {n}.",),
    "boxes": ("{p} gets {k} boxes of {n}.",),
    "friends": ("{p} loses {k} boxes of {n}.",),
    "times": ("{p} has {k} times as many.",),
}
BRIEF_NOISE = ("{o} has {n}.",)
KINDS = tuple(WORDS)
MULTIPLY = ("boxes", "friends", "times")


class Step(NamedTuple):
    """One operation on two numbers."""

    left: int
    sign: str
    right: int

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right}"

    @property
    def value(self) -> int:
        """The result of the operation."""
        match self.sign:
            case "+":
                return self.left + self.right
            case "-":
                return self.left - self.right
        return self.left * self.right


class Event(NamedTuple):
    """Something that happens: its kind, a number and a factor (0 where the kind has none)."""

    kind: str
    number: int
    factor: int

    @property
    def doubles(self) -> bool:
        """Does the event take two operations?"""
        return bool(self.number and self.factor)


class Story(NamedTuple):
    """A story.

    Attributes:
        text: what is told; its first sentence is line 0.
        at: the line of each event.
        has: the count at the beginning.
        events: the events that change the count, in order.
        others: the numbers that do not matter.
        numbers: all numbers in the text, ascending.
        answer: the count at the end.
    """

    text: str
    at: tuple[int, ...]
    has: int
    events: tuple[Event, ...]
    others: tuple[int, ...]
    numbers: tuple[int, ...]
    answer: int

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the events, in order."""
        return tuple(event.kind for event in self.events)


def part_of(kinds: Sequence[str]) -> Part:
    """The part (train, valid or test) to which stories with this order of events belong."""
    digest = hashlib.sha256(f"2{' '.join(kinds)}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return "test" if share < SHARES["test"] else "valid" if share < sum(SHARES.values()) else "train"


def write(part: Part, seed: int, events: int, largest: int, noise: int, room: int = 0, brief: bool = False) -> Story:
    """The story of a seed.

    Args:
        part: decides which numbers and orders of events the story may have.
        seed: decides which of these numbers and orders it has, and its words.
        events: number of events that change the count. With one event, each of the five kinds occurs in every part.
        largest: largest number that the text may have.
        noise: number of sentences whose numbers do not matter.
        room: largest result that an operation of the story may have; 0: ten times `largest`.
        brief: few words, with one wording per kind of event.
    """
    room = room or ROOM * largest
    rng = random.Random(f"calculator {part} {seed} {events} {largest} {noise} {room}")
    for _ in range(MOST):
        kinds = tuple(rng.choice(KINDS) for _ in range(events))
        if sum(kind in MULTIPLY for kind in kinds) > FACTORS or (events > 1 and part_of(kinds) != part):
            continue
        for _ in range(TRIES):
            found = _draw(rng, largest, kinds, noise, room)
            if found is not None and sum(found.numbers) % 5 in SUMS[part]:
                return _tell(rng, found, brief)
    raise AssertionError(f"no story of {events} events in {part}, numbers to {largest}")


def _draw(rng: random.Random, largest: int, kinds: tuple[str, ...], noise: int, room: int) -> Story | None:
    """One story with events of these kinds, without its text.

    None if the result of an operation is out of range, an operation has two equal numbers, or the answer is a number of
    the text.
    """
    factors = rng.sample(range(2, SMALL + 1), sum(kind in MULTIPLY for kind in kinds))
    drawn = rng.sample([n for n in range(2, largest + 1) if n not in factors], 1 + len(kinds) + noise)
    has, others, told = drawn[0], drawn[1 : 1 + noise], drawn[1 + noise :]
    events = [_event(kind, n, factors) for kind, n in zip(kinds, told, strict=True)]
    steps, _ = work_out(has, events)
    values = [step.value for step in steps]
    numbers = tuple(sorted([has, *others, *(n for event in events for n in event[1:] if n)]))
    if min(values) < 1 or max(values) > room or values[-1] in numbers:
        return None
    if any(step.left == step.right for step in steps):
        return None
    return Story("", (), has, tuple(events), tuple(others), numbers, values[-1])


def _event(kind: str, number: int, factors: list[int]) -> Event:
    """An event of this kind, with the next factor if the kind has one; `times` has no other number."""
    factor = factors.pop() if kind in MULTIPLY else 0
    return Event(kind, 0 if kind == "times" else number, factor)


def work_out(has: int, events: Sequence[Event]) -> tuple[tuple[Step, ...], str]:
    """The operations of a story, and all of them as one expression."""
    steps: list[Step] = []
    text, total = str(has), has
    for kind, number, factor in events:
        if kind == "times":
            steps.append(Step(total, "*", factor))
            text = f"({text}) * {factor}" if " " in text else f"{text} * {factor}"
        else:
            sign = "+" if kind in ("more", "boxes") else "-"
            if factor:
                steps.append(Step(factor, "*", number))
            steps.append(Step(total, sign, factor * number if factor else number))
            text += f" {sign} {factor} * {number}" if factor else f" {sign} {number}"
        total = steps[-1].value
    return tuple(steps), text


def _tell(rng: random.Random, story: Story, brief: bool) -> Story:
    """The story in words."""
    (person, other), thing = rng.sample(NAMES, 2), rng.choice(THINGS)
    words, aside = (BRIEF, BRIEF_NOISE) if brief else (WORDS, NOISE)
    told = [rng.choice(words[e.kind]).format(p=person, o=other, t=thing, n=e.number, k=e.factor) for e in story.events]
    at = list(range(1, len(told) + 1))
    for number in story.others:
        place = rng.randint(0, len(told))
        told.insert(place, rng.choice(aside).format(o=other, t=thing, n=number))
        at = [line + (line > place) for line in at]
    question = f"How many has {person}?" if brief else f"How many {thing} does {person} have now?"
    return story._replace(at=tuple(at), text=f"{person} has {story.has} {thing}. {' '.join(told)} {question}")
