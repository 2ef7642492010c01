"""The 120 ALFRED scenes, and what is known about kinds of things; from `scenes.json.gz` beside this module.

The layouts state the places of only some receptacles of a scene. The places of stove burners, toasters, toilets and
some others are unknown: this module gives them coordinates and viewpoints, the same in every game of the scene.
"""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from agentrl.envs.alfworld.draw import Draw

SPLITS = ("train", "valid_seen", "valid_unseen")
# Number of receptacles of a kind that a scene gets if its layout leaves the kind out; 1 if the kind is not listed here.
_SEVERAL = {"StoveBurner": 4, "Shelf": 2, "Drawer": 2}


class Spot(NamedTuple):
    """A receptacle of a scene: kind ("SinkBasin"), PDDL name, PDDL name of the place it is reached from."""

    kind: str
    id: str
    place: str


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A floor plan.

    Attributes:
        number: ALFRED's, 1 to 430.
        room: Kitchen, LivingRoom, Bedroom or Bathroom.
        spots: receptacles, sorted by id.
        kinds: kinds of objects that can be carried here, sorted.
        lamps: DeskLamp and FloorLamp, those that are here.
        scenery: kinds of objects that only stand around.
        grid: reachable (x, z) in steps of 0.25 m.
    """

    number: int
    room: str
    spots: tuple[Spot, ...]
    kinds: tuple[str, ...]
    lamps: tuple[str, ...]
    scenery: tuple[str, ...]
    grid: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class Lore:
    """What is known about kinds of things in every scene.

    Attributes:
        receptacles: kinds of receptacles, sorted.
        objects: kinds of objects, sorted.
        carried: the kinds of objects that fit into some receptacle, and so can be carried.
        containers: the carried kinds that hold things themselves (mugs, pots, ...).
        openable: receptacle kinds that start closed.
        fits: receptacle (or container) kind -> kinds of objects it takes.
        affords: "heatable", "coolable", "cleanable", "sliceable", "toggleable" -> kinds of objects.
        goal_pddl, goal_words, goal_rooms: of each task type its goal, its sentences, its rooms.
    """

    receptacles: tuple[str, ...]
    objects: tuple[str, ...]
    carried: frozenset[str]
    containers: frozenset[str]
    openable: frozenset[str]
    fits: Mapping[str, frozenset[str]]
    affords: Mapping[str, frozenset[str]]
    goal_pddl: Mapping[str, str]
    goal_words: Mapping[str, tuple[str, ...]]
    goal_rooms: Mapping[str, frozenset[str]]


@cache
def facts() -> dict[str, Any]:
    """The table as stored; treat it as read-only."""
    loaded: dict[str, Any] = json.loads(gzip.decompress(Path(__file__).with_name("scenes.json.gz").read_bytes()))
    return loaded


@cache
def lore() -> Lore:
    """Knowledge about kinds. Sliced objects are left out: no game of the six task types has them."""
    table = facts()
    containers = frozenset(table["movable"])
    receptacles = tuple(sorted(set(table["receptacles"]) - containers | {"Toaster"}))
    fits = {
        kind: frozenset(one for one in inside if not one.endswith("Sliced")) for kind, inside in table["fits"].items()
    }
    return Lore(
        receptacles=receptacles,
        objects=tuple(sorted(set(table["objects"]) - set(receptacles))),
        carried=frozenset().union(*(fits[kind] for kind in receptacles if kind in fits)),
        containers=containers,
        openable=frozenset(table["openable"]) - containers,
        fits=fits,
        affords={verb: frozenset(kinds) for verb, kinds in table["affords"].items()},
        goal_pddl={name: goal["pddl"] for name, goal in table["goals"].items()},
        goal_words={name: tuple(goal["templates"]) for name, goal in table["goals"].items()},
        goal_rooms={name: frozenset(goal["rooms"]) for name, goal in table["goals"].items()},
    )


def numbers(split: str) -> tuple[int, ...]:
    """Scene numbers of a split: ALFRED's test scenes for `valid_unseen`, its training scenes otherwise.

    Raises:
        ValueError: no such split.
    """
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r} of generated games: use one of {', '.join(SPLITS)}")
    unseen = frozenset(facts()["unseen"])
    return tuple(sorted(n for n in map(int, facts()["scenes"]) if (n in unseen) == (split == "valid_unseen")))


@cache
def scene(number: int) -> Scene:
    """The scene of that number.

    Raises:
        ValueError: ALFRED has no such scene.
    """
    table = facts()["scenes"].get(str(number))
    if table is None:
        raise ValueError(f"there is no scene {number}: ALFRED has 1-30, 201-230, 301-330 and 401-430")
    known = lore()
    here = set(table["objects"])
    spots = [Spot(kind_of(name), mangle(name), place(*view)) for name, view in table["receptacles"].items()]
    missing = sorted((here & set(known.receptacles)) - {spot.kind for spot in spots})
    return Scene(
        number=number,
        room=next(room for room, (low, high) in facts()["rooms"].items() if low <= number <= high),
        spots=tuple(sorted([*spots, *_invented(number, missing, table["grid"])], key=lambda spot: spot.id)),
        kinds=tuple(sorted(here & known.carried)),
        lamps=tuple(sorted(here & known.affords["toggleable"])),
        scenery=tuple(sorted(here & set(known.objects) - known.carried - known.affords["toggleable"])),
        grid=tuple((x, z) for x, z in table["grid"]),
    )


def _invented(number: int, kinds: list[str], grid: list[list[int]]) -> list[Spot]:
    draw = Draw("scene", number)
    spots = []
    for kind in kinds:
        name = f"Sink|{point(draw)}|SinkBasin" if kind == "SinkBasin" else None
        for i in range(_SEVERAL.get(kind, 1)):
            # Burners are reached in pairs, as in the scenes that were recorded.
            if i % 2 == 0:
                x, z = draw.choice(grid)
                view = place(x, z, draw.below(4), 30)
            spots.append(Spot(kind, mangle(name or f"{kind}|{point(draw)}"), view))
    return spots


def kind_of(name: str) -> str:
    """Receptacle kind of a THOR name: "Sink|-00.70|+00.93|-00.65|SinkBasin" is a SinkBasin."""
    parts = name.split("|")
    return parts[4] if len(parts) > 4 else parts[0]


def place(x: int, z: int, turn: int, camera: int) -> str:
    """PDDL name of a viewpoint."""
    return mangle(f"loc|{x}|{z}|{turn}|{camera}")


def point(draw: Draw) -> str:
    """Random coordinates in metres, as THOR writes them: "-01.37|+00.73|+00.43"."""
    x, y, z = draw.between(-400, 100), draw.between(4, 190), draw.between(-250, 280)
    return "|".join(f"{'-' if v < 0 else '+'}{abs(v) // 100:02d}.{abs(v) % 100:02d}" for v in (x, y, z))


def mangle(name: str) -> str:
    """A THOR name as a PDDL word."""
    return name.replace("|", "_bar_").replace("-", "_minus_").replace("+", "_plus_").replace(".", "_dot_")
