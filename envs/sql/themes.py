"""The words of generated databases: themes, the tables they may have, columns and their values.

A table's name is its theme and the kind of its rows, such as club_member. Each such pair belongs to one split. So no
table of a held-out database occurs in training, but every word of its name does.
"""

import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from agentrl.envs._rows import FIFTHS, Part

THEMES = (
    *("airport", "bakery", "bank", "casino", "castle", "church", "clinic", "club", "farm", "garage", "gym", "harbor"),
    *(
        "hotel",
        "library",
        "market",
        "museum",
        "park",
        "prison",
        "ranch",
        "school",
        "studio",
        "theater",
        "winery",
        "zoo",
    ),
)
NAMES = (
    *("Ada", "Ben", "Cora", "Dan", "Eva", "Finn", "Gus", "Hana", "Ivo", "Jana", "Karl", "Lena", "Max", "Nora", "Otto"),
    *("Pia", "Quin", "Rosa", "Sven", "Tara", "Ugo", "Vera", "Wim", "Xenia", "Yuri", "Zoe", "Amir", "Bela", "Cleo"),
    *("Dora", "Emil", "Fay", "Gina", "Hugo", "Ines", "Jack", "Kira", "Liam", "Mona", "Nils"),
)
TITLES = (
    *("Acorn", "Beacon", "Cedar", "Comet", "Delta", "Ember", "Falcon", "Gale", "Heron", "Iris", "Jasmine", "Kestrel"),
    *("Lotus", "Meadow", "Nimbus", "Orchid", "Pearl", "Quartz", "Raven", "Saffron", "Topaz", "Umber", "Violet"),
    *("Willow", "Yarrow", "Zephyr", "Amber", "Birch", "Cobalt", "Dune", "Echo", "Fern", "Granite", "Hazel"),
)
VALUES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "city": ("Athens", "Berlin", "Cairo", "Dublin", "Lima", "Oslo", "Paris", "Quito", "Rome", "Tokyo"),
        "color": ("red", "blue", "green", "black", "white", "yellow", "purple"),
        "season": ("spring", "summer", "autumn", "winter"),
        "maker": ("Alfa", "Bolt", "Crane", "Dyna", "Forge", "Nova", "Orion"),
        "genre": ("comedy", "drama", "history", "horror", "poetry", "science"),
        "language": ("Arabic", "Dutch", "English", "French", "German", "Hindi", "Korean"),
        "role": ("clerk", "cook", "driver", "guard", "nurse", "painter"),
        "shift": ("dawn", "day", "evening", "night"),
        "state": ("open", "paid", "sent", "late"),
        "wing": ("east", "north", "south", "west"),
        "rank": ("bronze", "silver", "gold", "platinum"),
        "material": ("glass", "iron", "paper", "stone", "wood"),
    }
)


class Holds(NamedTuple):
    """What a table may hold.

    Attributes:
        label: the column that names a row; its values are all different.
        names: the values of the label.
        texts: columns of words.
        numbers: columns of whole numbers.
    """

    label: str
    names: tuple[str, ...]
    texts: tuple[str, ...]
    numbers: tuple[str, ...]


ENTITIES: Mapping[str, Holds] = MappingProxyType(
    {
        "member": Holds("name", NAMES, ("city", "rank", "language"), ("age", "fee", "visits", "points")),
        "worker": Holds("name", NAMES, ("city", "role", "shift"), ("age", "salary", "hours", "bonus")),
        "room": Holds("title", TITLES, ("color", "wing", "material"), ("size", "price", "seats", "floor")),
        "event": Holds("title", TITLES, ("season", "genre", "language"), ("price", "guests", "hours", "seats")),
        "item": Holds("title", TITLES, ("color", "maker", "material"), ("price", "weight", "stock", "cost")),
        "sale": Holds("title", TITLES, ("state", "city", "season"), ("price", "cost", "days", "weight")),
        "trip": Holds("title", TITLES, ("city", "season", "shift"), ("cost", "days", "miles", "guests")),
        "team": Holds("title", TITLES, ("city", "color", "rank"), ("wins", "losses", "points", "size")),
        "book": Holds("title", TITLES, ("language", "genre", "state"), ("pages", "price", "stock", "weight")),
        "car": Holds("title", TITLES, ("maker", "color", "state"), ("miles", "price", "age", "seats")),
        "boat": Holds("title", TITLES, ("maker", "material", "wing"), ("miles", "size", "age", "cost")),
        "lesson": Holds("title", TITLES, ("language", "season", "shift"), ("hours", "fee", "guests", "points")),
        "song": Holds("title", TITLES, ("genre", "language", "rank"), ("wins", "days", "points", "visits")),
        "plant": Holds("title", TITLES, ("color", "season", "wing"), ("size", "age", "stock", "price")),
        "tool": Holds("title", TITLES, ("maker", "material", "role"), ("weight", "cost", "stock", "hours")),
    }
)


def part_of(theme: str, entity: str) -> Part:
    """The part to which the table of this theme and entity belongs."""
    return FIFTHS[(THEMES.index(theme) + list(ENTITIES).index(entity)) % len(FIFTHS)]


def entities_of(theme: str, part: Part) -> list[str]:
    """The entities that a database of this theme may have in this part."""
    return [entity for entity in ENTITIES if part_of(theme, entity) == part]


def words() -> list[str]:
    """The themes, the names of tables and columns, the values of columns, and the numbers 1 to 99."""
    told = {*THEMES, *ENTITIES, *(f"{entity}s" for entity in ENTITIES), *NAMES, *TITLES}
    for name, values in VALUES.items():
        told |= {name, *values}
    for holds in ENTITIES.values():
        told |= {holds.label, *holds.numbers}
    return sorted(told) + [str(number) for number in range(1, 100)]


def choose(rng: random.Random, part: Part, tables: int) -> tuple[str, list[str]]:
    """A theme and the entities of its tables.

    Args:
        rng: makes the choice.
        part: the part to which the tables belong.
        tables: number of tables.
    """
    theme = rng.choice(THEMES)
    return theme, rng.sample(entities_of(theme, part), tables)
