"""Customers of generated tasks, their division into train, valid and test, and the contents of a task."""

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

from agentrl.envs._rows import FIFTHS, Part

FIRST = (
    *("ada", "ben", "cora", "dan", "eva", "finn", "gus", "hana", "ivo", "jana", "karl", "lena", "max", "nora", "otto"),
    *("pia", "quin", "rosa", "sven", "tara", "ugo", "vera", "wim", "yuri", "zoe"),
)
LAST = (
    *("adler", "bauer", "costa", "dietz", "evans", "fuchs", "green", "hoff", "ito", "jones", "klein", "lopez"),
    *("moreno", "novak", "okafor", "patel", "quist", "rossi", "silva", "torres"),
)
ZIPS = tuple(str(10000 + 1111 * i) for i in range(1, 9))


class Case(NamedTuple):
    """A task.

    Attributes:
        data: the database before the conversation: tables by name.
        goal: what the customer knows and wants, as `agentrl.envs.desk.customer.reply` takes it.
        actions: right calls (name, arguments); calls that change nothing may be left out.
        outputs: facts that the customer must be told.
        kind: kinds of the requests, joined by " + ".
        instruction: the goal in words, for a customer who is a language model.
        published: a task of tau-bench.
    """

    data: Mapping[str, Any]
    goal: Mapping[str, Any]
    actions: tuple[tuple[str, Mapping[str, Any]], ...]
    outputs: tuple[str, ...]
    kind: str
    instruction: str = ""
    published: bool = False

    def __deepcopy__(self, memo: dict[int, Any]) -> "Case":
        """Returns itself: nothing changes a case, and the tables of tau-bench are too large to copy."""
        return self


class Person(NamedTuple):
    """A customer's first and last name, and zip code."""

    first: str
    last: str
    zip: str

    @property
    def email(self) -> str:
        """Such as ada.klein@example.com."""
        return f"{self.first}.{self.last}@example.com"

    @property
    def id(self) -> str:
        """Such as ada_klein."""
        return f"{self.first}_{self.last}"

    @property
    def spoken(self) -> str:
        """Such as Ada Klein."""
        return f"{self.first.title()} {self.last.title()}"


def part_of(first: str, last: str) -> Part:
    """The part to which a customer of this name belongs."""
    return FIFTHS[(FIRST.index(first) + LAST.index(last)) % len(FIFTHS)]


def draw_people(rng: random.Random, part: Part, count: int) -> list[Person]:
    """Different customers of a part; no two share a first name or a last name."""
    people: list[Person] = []
    while len(people) < count:
        person = Person(rng.choice(FIRST), rng.choice(LAST), rng.choice(ZIPS))
        alike = any(one.first == person.first or one.last == person.last for one in people)
        if part_of(person.first, person.last) == part and not alike:
            people.append(person)
    return people


def words() -> list[str]:
    """Names of customers and their zip codes."""
    return sorted({*FIRST, *LAST, *(name.title() for name in (*FIRST, *LAST)), *ZIPS})


def identity(rng: random.Random, person: Person) -> dict[str, str]:
    """The facts by which a customer can be found. A third of the customers do not know the email of their account."""
    known = {"name": f"I am {person.spoken}, zip code {person.zip}."}
    if rng.random() < 2 / 3:
        known["email"] = f"It is {person.email}."
    return known


def instruction(person: Person, goal: Mapping[str, Any]) -> str:
    """A goal in words, for a customer who is a language model."""
    lines = [f"You are {person.spoken}."]
    lines += [str(fact) for fact in goal["facts"].values()]
    for request in goal["requests"]:
        told = " ".join(str(fact) for fact in request["facts"].values())
        lines.append(f"What you want: {request['say']} {told} {request.get('asks', '')}".strip())
    return " ".join(lines)
