"""A game compiled once and shared by every engine that plays it.

Objects, receptacles and places are numbered in the order of their mangled ids. The genuine engine prints every list in
this order, so numbers in ascending order are in the order of printing.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentrl.envs.alfworld.formats import Form
from agentrl.envs.alfworld.goal import Node, Wanted

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)


class Item(NamedTuple):
    """An object. `name` is what the agent reads ("mug 2"); `types`: PDDL types ("mugtype"), usually one."""

    id: str
    name: str
    types: tuple[str, ...]
    pickupable: bool
    cleanable: bool
    heatable: bool
    coolable: bool
    toggleable: bool
    sliceable: bool
    knife: bool
    container: bool
    inside: tuple[int, ...]


class Receptacle(NamedTuple):
    """A receptacle; `places` are the numbers of the places from which it is reached, usually one."""

    id: str
    name: str
    types: tuple[str, ...]
    openable: bool
    places: tuple[int, ...]


class State(NamedTuple):
    """Everything that changes in a game. A state is never modified, so it can be kept as a snapshot.

    Attributes:
        place: number of the agent's place.
        holding: number of the held object, -1 if none.
        contents: for each receptacle the objects in it, ascending.
        lying: (object, place) pairs: where an object counts as lying, which is what `slice` looks at.
        removed: (object, receptacle) pairs: taken out of it and not put back.
        opened: receptacles.
        clean, hot, cool, sliced, toggled: objects.
    """

    place: int
    holding: int
    contents: tuple[tuple[int, ...], ...]
    lying: frozenset[tuple[int, int]]
    removed: frozenset[tuple[int, int]]
    opened: frozenset[int]
    clean: frozenset[int]
    hot: frozenset[int]
    cool: frozenset[int]
    sliced: frozenset[int]
    toggled: frozenset[int]


@dataclass(frozen=True, kw_only=True, eq=False)
class Game:
    """A compiled game.

    Attributes:
        key: the name it is listed under.
        kind: one of TASK_TYPES, or "" if its goal is of another shape.
        task: the task as printed after "Your task is to: ", full stop included.
        form: the words of its release.
        objects, receptacles: by number.
        places: names of the places ("loc 12"), by number.
        at: for each place its receptacles, ascending.
        fits: (receptacle type, object type) pairs that may be put together.
        wanted: what the goal asks for.
        goal: the clauses, all of which must hold. Each is a forest of tests, of which one path from a root to a leaf
            must hold.
        start: the first state.
        walkthrough: commands stored with the game, if any.
    """

    key: str
    kind: str
    task: str
    form: Form
    objects: tuple[Item, ...]
    receptacles: tuple[Receptacle, ...]
    places: tuple[str, ...]
    at: tuple[tuple[int, ...], ...]
    fits: frozenset[tuple[str, str]]
    wanted: Wanted
    goal: tuple[tuple[Node, ...], ...]
    start: State
    walkthrough: tuple[str, ...] = ()
    # Commands of a game are the same in every episode: engines that share a Game share them.
    cache: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "cache": {}}

    def fitting(self, item: int, receptacle: int) -> bool:
        """Whether the object may be put into the receptacle."""
        key = ("fits", item, receptacle)
        if key not in self.cache:
            self.cache[key] = any(
                (rtype, otype) in self.fits
                for rtype in self.receptacles[receptacle].types
                for otype in self.objects[item].types
            )
        return bool(self.cache[key])
