"""Furnishes a room: chooses receptacles of a scene, places of objects, and the task."""

from functools import cache
from typing import NamedTuple

from agentrl.envs.alfworld.draw import Draw
from agentrl.envs.alfworld.levels import Level
from agentrl.envs.alfworld.scenes import Scene, Spot, lore, mangle, place, point, scene

# Task type -> (the receptacle that changes the object, the property that an object must have to be changed there). No
# task asks to bring the object to this receptacle.
TOOLS = {
    "pick_clean_then_place_in_recep": ("SinkBasin", "cleanable"),
    "pick_heat_then_place_in_recep": ("Microwave", "heatable"),
    "pick_cool_then_place_in_recep": ("Fridge", "coolable"),
}
LOOK = "look_at_obj_in_light"
TWO = "pick_two_obj_and_place"
# Where lamps stand, in order of preference. In a room without any of these, a lamp stands on any open surface.
_LAMP_STANDS = (
    "SideTable",
    "Desk",
    "Dresser",
    "DiningTable",
    "CoffeeTable",
    "TVStand",
    "Shelf",
    "Sofa",
    "Bed",
)


class Goal(NamedTuple):
    """What is asked: task type, kind of object, kind of receptacle to bring it to (of the lamp, for LOOK)."""

    task: str
    target: str
    to: str


class Thing(NamedTuple):
    """An object: kind, PDDL name, number of its receptacle in `Room.spots` (-1: stands around), its place."""

    kind: str
    id: str
    spot: int
    place: str


class Room(NamedTuple):
    """A furnished room. `inside` pairs numbers of things: the first lies in the second, a container."""

    spots: tuple[Spot, ...]
    things: tuple[Thing, ...]
    inside: tuple[tuple[int, int], ...]
    start: str


@cache
def goals(number: int, task: str) -> tuple[Goal, ...]:
    """Every goal of a task type that a scene can be furnished for; none if its room is not for that type."""
    known, here = lore(), scene(number)
    if here.room not in known.goal_rooms[task]:
        return ()
    spots = {spot.kind for spot in here.spots}
    tool, quality = TOOLS.get(task, ("", ""))
    if (tool and tool not in spots) or (task == LOOK and spots <= known.openable):
        return ()
    found = []
    for kind in here.kinds:
        takes = {spot for spot in spots if kind in known.fits.get(spot, ())}
        if not takes or (quality and kind not in known.affords[quality]):
            continue
        ends = here.lamps if task == LOOK else sorted(takes - {tool})
        found += [Goal(task, kind, to) for to in ends if takes - {to}]
    return tuple(found)


def choose_goal(number: int, task: str, draw: Draw) -> Goal:
    """A goal: kinds of objects are equally likely, then the receptacle kinds (lamps) that go with them."""
    options = goals(number, task)
    target = draw.choice(sorted({goal.target for goal in options}))
    return draw.choice([goal for goal in options if goal.target == target])


def furnish(number: int, level: Level, goal: Goal, draw: Draw) -> Room:
    """A room of the scene in which the goal is not yet reached. `generate.make` checks that it can be reached."""
    here = scene(number)
    spots = _keep(here, level, goal, draw)
    builder = _Furnisher(here, spots, goal, draw)
    builder.lamps(only=None if level.scenery else goal.to)
    fewest, most = level.targets
    least = 2 if goal.task == TWO else 1
    builder.put(goal.target, draw.between(max(least, fewest), max(least, most)))
    others = [kind for kind in here.kinds if kind != goal.target]
    if level.others is None:
        for kind in others:
            builder.put(kind, draw.between(1, 3))
    else:
        for kind in draw.sample(others * 2, draw.between(*level.others)):
            builder.put(kind, 1)
    if level.scenery:
        builder.scenery()
    views = {spot.place for spot in spots}
    return Room(spots, tuple(builder.things), builder.nest() if level.scenery else (), builder.standpoint(views))


def _keep(here: Scene, level: Level, goal: Goal, draw: Draw) -> tuple[Spot, ...]:
    if level.spots is None:
        return here.spots
    size = draw.between(*level.spots)
    mixed = draw.sample(here.spots, len(here.spots))
    kept = _needed(mixed, goal)
    taken = {spot.place for spot in kept}
    for spot in mixed:
        if len(kept) >= size:
            break
        if spot not in kept and not (level.apart and spot.place in taken) and lore().fits.get(spot.kind):
            kept.add(spot)
            taken.add(spot.place)
    return tuple(sorted(kept, key=lambda spot: spot.id))


def _needed(mixed: list[Spot], goal: Goal) -> set[Spot]:
    """The receptacles that the task needs: one to find the target in, one to bring it to, and one to treat it with."""
    known = lore()
    sources = [spot for spot in mixed if spot.kind != goal.to and goal.target in known.fits.get(spot.kind, ())]
    ends = [spot for spot in mixed if spot.kind == goal.to]
    if goal.task == LOOK:
        ends = sorted((spot for spot in mixed if spot.kind not in known.openable), key=_stand)
    groups = [ends, sources]
    if goal.task in TOOLS:
        groups.append([spot for spot in mixed if spot.kind == TOOLS[goal.task][0]])
    needed: list[Spot] = []
    for group in groups:
        # Prefer a receptacle with a viewpoint of its own.
        needed.append(min(group, key=lambda spot: spot.place in {one.place for one in needed if one != spot}))
    return set(needed)


def _stand(spot: Spot) -> int:
    return _LAMP_STANDS.index(spot.kind) if spot.kind in _LAMP_STANDS else len(_LAMP_STANDS)


class _Furnisher:
    """Puts things into the kept receptacles."""

    def __init__(self, here: Scene, spots: tuple[Spot, ...], goal: Goal, draw: Draw) -> None:
        self.here, self.spots, self.goal, self.draw = here, spots, goal, draw
        self.things: list[Thing] = []
        self.names: set[str] = set()
        self.by_kind: dict[str, list[int]] = {}
        for i, spot in enumerate(spots):
            self.by_kind.setdefault(spot.kind, []).append(i)

    def put(self, kind: str, count: int) -> None:
        """Put `count` objects of a kind into receptacles, if any kept receptacle takes them.

        A kind of receptacle is drawn first, and then one of its receptacles, so that a kind with many receptacles, such
        as drawers, does not get most objects.
        """
        fits = lore().fits
        takes = [one for one in self.by_kind if kind in fits.get(one, ())]
        if kind == self.goal.target:
            takes = [one for one in takes if one != self.goal.to]
        for _ in range(count if takes else 0):
            self._add(kind, self.draw.choice(self.by_kind[self.draw.choice(takes)]))

    def lamps(self, only: str | None) -> None:
        """The scene's lamps (or only the lamp `only`), each on an open surface."""
        stands = [i for i, spot in enumerate(self.spots) if spot.kind not in lore().openable]
        for lamp in self.here.lamps:
            if stands and only in (None, lamp):
                best = min(_stand(self.spots[i]) for i in stands)
                self._add(lamp, self.draw.choice([i for i in stands if _stand(self.spots[i]) == best]))

    def scenery(self) -> None:
        """Add one thing of each kind of scenery, each at a place of its own."""
        for kind in self.here.scenery:
            self.things.append(Thing(kind, self._name(kind), -1, self.standpoint(set())))

    def nest(self) -> tuple[tuple[int, int], ...]:
        """(thing, container) pairs: some small things lie inside a container of the same receptacle.

        An agent learns of these things only from `examine CONTAINER`.
        """
        fits, found = lore().fits, []
        outer = {thing.spot: i for i, thing in enumerate(self.things) if thing.kind in lore().containers}
        for i, thing in enumerate(self.things):
            holder = outer.get(thing.spot, i)
            if thing.kind in fits.get(self.things[holder].kind, ()) and holder != i and self.draw.chance(0.2):
                found.append((i, holder))
        return tuple(found)

    def standpoint(self, taken: set[str]) -> str:
        """A reachable place, looking anywhere, that is none of `taken`."""
        while True:
            found = place(*self.draw.choice(self.here.grid), self.draw.below(4), 30)
            if found not in taken:
                return found

    def _add(self, kind: str, spot: int) -> None:
        self.things.append(Thing(kind, self._name(kind), spot, self.spots[spot].place))

    def _name(self, kind: str) -> str:
        while True:
            name = mangle(f"{kind}|{point(self.draw)}")
            if name not in self.names:
                self.names.add(name)
                return name
