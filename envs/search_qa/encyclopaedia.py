"""A small consistent world: people, cities, countries and works, facts about them, and passages that state the facts.

Level and seed determine the world. Each split has people and places of its own, and no fact joins things of two splits.
All passages lie in one corpus, in which the passages of the other splits are distractors.
"""

import random
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from types import MappingProxyType
from typing import NamedTuple

from agentrl.envs.search_qa.names import WORDS
from agentrl.tool import Passage

SPLITS = ("train", "valid", "test")
ALIAS = "Also known as {o}."


class Relation(NamedTuple):
    """A kind of fact: its noun, the kinds of things that it joins (`of`, `to`), and the sentences that can state it."""

    noun: str
    of: str
    to: str
    says: tuple[str, ...]


RELATIONS: Mapping[str, Relation] = MappingProxyType(
    {
        r.noun: r
        for r in (
            Relation("author", "work", "person", ("Written by {o}.", "The book came from the pen of {o}.")),
            Relation("publication year", "work", "year", ("Published in {o}.", "Its first edition is of {o}.")),
            Relation("setting", "work", "city", ("Set in {o}.", "The story takes place in {o}.")),
            Relation("birthplace", "person", "city", ("Born in {o}.", "A native of {o}.")),
            Relation("birth year", "person", "year", ("Year of birth {o}.", "Came into the world in {o}.")),
            Relation("spouse", "person", "person", ("Married to {o}.", "Shared a long marriage with {o}.")),
            Relation("teacher", "person", "person", ("Taught by {o}.", "A pupil of {o} in early years.")),
            Relation("country", "city", "country", ("Lies in {o}.", "The city belongs to {o}.")),
            Relation("founder", "city", "person", ("Founded by {o}.", "It owes its charter to {o}.")),
            Relation("mayor", "city", "person", ("The mayor is {o}.", "The town hall is led by {o}.")),
            Relation("capital", "country", "city", ("The capital is {o}.", "Its government sits in {o}.")),
            Relation("president", "country", "person", ("The president is {o}.", "Its head of state is {o}.")),
        )
    }
)
TRADES = ("novelist", "painter", "composer", "engineer", "botanist", "printer", "surgeon", "sculptor")
WORKS = ("novel", "play", "memoir", "ballad")


@dataclass(frozen=True, kw_only=True)
class Level:
    """How large and how hard a world is.

    Attributes:
        people, cities, countries, works, events: their numbers in all splits together. Events are distractors: no
            question is about them.
        words: numbers of first and of second words of people's names that are in use. Of other names, all first words
            and the same share of second words are in use.
        hops: fewest and most facts that a question joins.
        relations: nouns of the kinds of facts in the world; empty for all.
        aliases: share of people and cities with a second name, which facts about other things may use.
        rich: facts are said in several ways, and people have two passages.
        questions: largest numbers of questions of train, valid and test, for each number of hops.
    """

    people: int
    cities: int
    countries: int
    works: int
    events: int = 0
    words: tuple[int, int] = (80, 120)
    hops: tuple[int, int] = (1, 2)
    relations: tuple[str, ...] = ()
    aliases: float = 0.0
    rich: bool = False
    questions: tuple[int, int, int] = (2000, 200, 200)


LEVELS: Mapping[str, Level] = MappingProxyType(
    {
        "tiny": Level(
            people=400,
            cities=100,
            countries=30,
            works=240,
            words=(24, 32),
            relations=("author", "setting", "birthplace", "spouse", "country", "capital"),
            questions=(2000, 200, 200),
        ),
        "small": Level(people=600, cities=200, countries=40, works=400, events=60, words=(40, 60), hops=(1, 3)),
        "medium": Level(
            people=1400, cities=400, countries=60, works=1000, events=150, hops=(1, 4), aliases=0.25, rich=True
        ),
        "large": Level(
            people=4000, cities=520, countries=120, works=2300, events=160, hops=(2, 4), aliases=0.5, rich=True
        ),
    }
)
SHARES = (0.7, 0.15, 0.15)  # shares of train, valid and test in the things of a world


@dataclass(kw_only=True)
class Thing:
    """A person, place, work or event.

    Attributes:
        kind: person, city, country, work or event.
        name: its name.
        split: the split to which it belongs.
        alias: its second name; empty if it has none.
        trade: the word for it in its first sentence ("novelist"); of an event, the whole text; else empty.
        facts: noun -> the name or year to which the fact leads.
    """

    kind: str
    name: str
    split: str
    alias: str = ""
    trade: str = ""
    facts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class World:
    """The world of one level and seed.

    Attributes:
        level: its level.
        things: name -> thing.
        passages: the corpus.
        sources: name -> the passages about it.
        called: every name and second name -> the name.
    """

    level: Level
    things: Mapping[str, Thing]
    passages: tuple[Passage, ...]
    sources: Mapping[str, tuple[Passage, ...]]
    called: Mapping[str, str]

    def answers(self, word: str) -> tuple[str, ...]:
        """Every right way to name the thing (or year) of a word."""
        thing = self.things.get(self.called.get(word, word))
        return (word,) if thing is None else tuple(filter(None, (thing.name, thing.alias)))


@lru_cache(maxsize=8)
def world(name: str, seed: int) -> World:
    """The world of a level's name and a seed; the same for equal arguments."""
    level = LEVELS[name]
    names = _Names(level, random.Random(f"names {name} {seed}"))
    things: dict[str, Thing] = {}
    for split, share in zip(SPLITS, SHARES, strict=True):
        _populate(things, level, split, share, names, random.Random(f"facts {name} {seed} {split}"))
    known = level.relations or tuple(RELATIONS)
    for thing in things.values():
        thing.facts = {noun: target for noun, target in thing.facts.items() if noun in known}
    sources = _write(things, level, random.Random(f"passages {name} {seed}"))
    called = {word: t.name for t in things.values() for word in (t.name, t.alias) if word}
    passages = tuple(p for one in sources.values() for p in one)
    return World(level, MappingProxyType(things), passages, MappingProxyType(sources), MappingProxyType(called))


class _Names:
    """The names of each kind of thing that are not given yet."""

    def __init__(self, level: Level, rng: random.Random) -> None:
        self._left: dict[str, list[str]] = {}
        share = (level.words[0] / len(WORDS["person"][0]), level.words[1] / len(WORDS["person"][1]))
        used: set[str] = set()
        for kind, (heads, ends) in WORDS.items():
            few = [words[: max(4, round(len(words) * s))] for words, s in zip((heads, ends), share, strict=True)]
            some = few if kind == "person" else [heads, few[1]]
            pairs = [f"{a} {b}" for a, b in product(*some)]
            rng.shuffle(pairs)
            self._left[kind] = [name for name in pairs if name not in used]
            used.update(pairs)

    def draw(self, kind: str) -> str:
        assert self._left[kind], f"a level asks for more names of kind {kind} than there are"
        return self._left[kind].pop()


def _populate(
    things: dict[str, Thing], level: Level, split: str, share: float, names: _Names, rng: random.Random
) -> None:
    """Make the things of one split, and facts that join only things of this split."""

    def make(kind: str, count: int) -> list[Thing]:
        made = [Thing(kind=kind, name=names.draw(kind), split=split) for _ in range(max(2, round(share * count)))]
        things.update((thing.name, thing) for thing in made)
        return made

    people, cities = make("person", level.people), make("city", level.cities)
    countries, works, events = make("country", level.countries), make("work", level.works), []
    if level.events:
        events = make("event", level.events)
    for thing in (*people, *cities):
        if rng.random() < level.aliases:
            thing.alias = names.draw(thing.kind)
    _relate_people(people, cities, rng)
    _relate_places(cities, countries, people, rng)
    for work in works:
        author = rng.choice(people)
        year = int(author.facts["birth year"]) + rng.randint(20, 60)
        work.trade = rng.choice(WORKS)
        work.facts = {"author": _call(author, rng), "publication year": str(year), "setting": rng.choice(cities).name}
    for event in events:
        guests = rng.sample(people, 2)
        where, year = rng.choice(cities).name, rng.randint(1850, 2020)
        event.trade = f"Held in {where} in {year}. Guests {guests[0].name} and {guests[1].name}."


def _call(thing: Thing, rng: random.Random) -> str:
    """A name of the thing, drawn from its names."""
    return thing.alias if thing.alias and rng.random() < 0.5 else thing.name


def _relate_people(people: list[Thing], cities: list[Thing], rng: random.Random) -> None:
    """Give people their facts: spouses of about the same age, and teachers who are at least twenty years older."""
    for person in people:
        person.trade = rng.choice(TRADES)
        person.facts = {"birth year": str(rng.randint(1800, 1980)), "birthplace": _call(rng.choice(cities), rng)}
    by_age = sorted(people, key=lambda p: (p.facts["birth year"], p.name))
    for one, other in zip(by_age[::2], by_age[1::2], strict=False):
        one.facts["spouse"], other.facts["spouse"] = other.name, one.name
    years = [int(person.facts["birth year"]) for person in by_age]
    for person, year in zip(by_age, years, strict=True):
        older = bisect_right(years, year - 20)  # people of by_age
        if older:
            person.facts["teacher"] = _call(by_age[rng.randrange(older)], rng)


def _relate_places(cities: list[Thing], countries: list[Thing], people: list[Thing], rng: random.Random) -> None:
    """Give cities and countries their facts. A country's capital is one of its cities."""
    for i, city in enumerate(cities):
        country = countries[i] if i < len(countries) else rng.choice(countries)
        mayor, founder = rng.sample(people, 2)
        city.facts = {"country": country.name, "founder": _call(founder, rng), "mayor": mayor.name}
    for country in countries:
        own = [city for city in cities if city.facts["country"] == country.name]
        if own:
            country.facts = {"capital": rng.choice(own).name, "president": rng.choice(people).name}


def _write(things: Mapping[str, Thing], level: Level, rng: random.Random) -> dict[str, tuple[Passage, ...]]:
    """The passages about each thing, in random order, so that a passage's number does not tell its split."""
    shuffled = list(things.values())
    rng.shuffle(shuffled)
    sources: dict[str, tuple[Passage, ...]] = {}
    number = 0
    for thing in shuffled:
        own = []
        for text in _texts(thing, level, rng.choice):
            own.append(Passage(f"p{number:05}", f'"{thing.name}"\n{text}'))
            number += 1
        sources[thing.name] = tuple(own)
    return sources


def _texts(thing: Thing, level: Level, choose: Callable[[tuple[str, ...]], str]) -> list[str]:
    opening = {
        "person": f"A {thing.trade}.",
        "work": f"A {thing.trade}.",
        "city": "A city.",
        "country": "A country.",
        "event": thing.trade,
    }[thing.kind]
    if level.rich and thing.kind != "event":
        opening = f"{thing.name} is {opening[0].lower()}{opening[1:]}"
    said = [
        (choose(RELATIONS[noun].says) if level.rich else RELATIONS[noun].says[0]).format(o=target)
        for noun, target in sorted(thing.facts.items())
    ]
    if thing.alias:
        said.append(ALIAS.format(o=thing.alias))
    if not level.rich or thing.kind != "person":
        return [" ".join([opening, *said])]
    half = (len(said) + 1) // 2
    return [" ".join([opening, *said[:half]]), " ".join([f"More about {thing.name}.", *said[half:]])]
