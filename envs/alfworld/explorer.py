"""The exploring expert: plays from what an agent sees, the game's answers and the admissible commands.

All that it knows beforehand is common sense: which kinds of receptacles take which kinds of objects, which have doors,
and where lamps stand. It looks next into the receptacle with the highest value of this quotient: the odds that the
receptacle holds the object, divided by the number of commands that the look costs.
"""

import re
from functools import cache
from typing import NamedTuple

from agentrl.envs.alfworld.draw import Draw
from agentrl.envs.alfworld.memory import Memory, kind
from agentrl.envs.alfworld.rooms import LOOK, TWO
from agentrl.envs.alfworld.scenes import lore
from agentrl.types import Observation

# Task type -> (verb that changes the object, kind of receptacle that does it).
_CHANGES = {
    "pick_clean_then_place_in_recep": ("clean", "sinkbasin"),
    "pick_heat_then_place_in_recep": ("heat", "microwave"),
    "pick_cool_then_place_in_recep": ("cool", "fridge"),
}
_LAMP_STANDS = frozenset({"sidetable", "desk", "dresser"})
_UNLIKELY = 0.02


class Errand(NamedTuple):
    """A task as read from its sentence; `to` is the kind of the receptacle, or of the lamp."""

    task: str
    target: str
    to: str


@cache
def read_task(words: str) -> Errand:
    """What the task's sentence asks for.

    Raises:
        ValueError: the sentence follows none of ALFRED's templates.
    """
    for task, template in _patterns():
        found = template.fullmatch(words)
        if found:
            return Errand(task, found["obj"], found["to"])
    raise ValueError(f"the exploring expert does not understand the task {words!r}; it knows ALFRED's own sentences")


@cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    patterns = []
    for task, templates in lore().goal_words.items():
        for template in templates:
            pattern = template.replace("{obj}", r"(?P<obj>\w+)")
            pattern = pattern.replace("{recep}", r"(?P<to>\w+)").replace("{toggle}", r"(?P<to>\w+)")
            patterns.append((task, re.compile(pattern)))
    return patterns


@cache
def _takes(target: str) -> frozenset[str]:
    """Kinds of receptacles, in lower case, that take a kind of object."""
    return frozenset(spot.lower() for spot, inside in lore().fits.items() if target in {one.lower() for one in inside})


@cache
def _doors() -> frozenset[str]:
    return frozenset(one.lower() for one in lore().openable)


class Explorer:
    """Plays one game. `draw` decides only between equally good choices."""

    def __init__(self, words: str, draw: Draw) -> None:
        self.errand = read_task(words)
        self.memory = Memory()
        self.draw = draw
        self.order: dict[str, float] = {}
        self.refused: set[str] = set()

    def act(self, observation: Observation) -> str:
        """The command to give now."""
        self.memory.read(observation)
        if not self.order:
            self.order = {name: self.draw.random() for name in self.memory.receptacles}
        if kind(self.memory.held) != self.errand.target:
            return self._fetch()
        if self.errand.task == LOOK:
            return self._use_lamp()
        verb, tool = _CHANGES.get(self.errand.task, ("", ""))
        if verb and (verb, self.memory.held) not in self.memory.done:
            return self._change(verb, tool)
        return self._deliver()

    def _fetch(self) -> str:
        """Get an object of the wanted kind into an empty hand."""
        memory = self.memory
        goal = self._goal() if self.errand.task == TWO else ""
        known = [(name, spot) for name, spot in memory.where(self.errand.target) if spot != goal]
        if memory.held:
            return self._put_down()
        if not known:
            return self._explore(_takes(self.errand.target))
        name, spot = min(known, key=lambda one: (self._effort(one[1]), self.order.get(one[1], 0.0), one[0]))
        return self._offered(f"take {name} from {spot}") or self._reach(spot)

    def _put_down(self) -> str:
        """Get rid of a thing that is not wanted, here if possible."""
        memory = self.memory
        for spot in memory.here:
            placed = self._place(spot)
            if placed:
                return placed
        takes = _takes(kind(memory.held))
        options = [r for r in memory.receptacles if kind(r) in takes and r not in self.refused]
        return self._into(options) if options else self._explore(takes)

    def _use_lamp(self) -> str:
        memory = self.memory
        lamps = {lamp: spot for lamp, spot in memory.lamps.items() if kind(lamp) == self.errand.to}
        for lamp, spot in lamps.items():
            if spot in memory.here:
                return f"use {lamp}"
        if lamps:
            return self._reach(min(lamps.values()))
        # A lamp can be used from any place next to it, even behind a closed door.
        unvisited = [name for name in memory.receptacles if name not in memory.visited]
        options = unvisited or [name for name in memory.receptacles if name not in memory.here]
        return self._reach(max(options, key=lambda name: self._stand(name)))

    def _stand(self, name: str) -> tuple[bool, bool, float]:
        return kind(name) in _LAMP_STANDS, kind(name) not in _doors(), self.order.get(name, 0.0)

    def _change(self, verb: str, tool: str) -> str:
        options = [name for name in self.memory.receptacles if kind(name) == tool]
        for name in options:
            done = self._offered(f"{verb} {self.memory.held} with {name}")
            if done:
                return done
        return self._walk(min(options, key=self._rank)) if options else self._explore(frozenset({tool}))

    def _deliver(self) -> str:
        """Put the held object where it belongs; the second object of a task goes to the receptacle of the first."""
        goal = self._goal()
        options = [goal] if goal else [r for r in self.memory.receptacles if kind(r) == self.errand.to]
        return self._into([name for name in options if name not in self.refused] or options)

    def _into(self, options: list[str]) -> str:
        """Put the held object into the option that needs the fewest steps."""
        if not options:
            return "look"
        spot = min(options, key=self._rank)
        placed = self._place(spot)
        if placed:
            return placed
        if spot in self.memory.here and spot not in self.memory.closed:
            self.refused.add(spot)
            return "look" if len(options) == 1 else self._into([one for one in options if one != spot])
        return self._reach(spot)

    def _goal(self) -> str:
        """The receptacle of the wanted kind that holds most of the wanted objects; "" if none holds any."""
        counts: dict[str, int] = {}
        for _, spot in self.memory.where(self.errand.target):
            if kind(spot) == self.errand.to:
                counts[spot] = counts.get(spot, 0) + 1
        return max(sorted(counts), key=counts.__getitem__, default="")

    def _place(self, spot: str) -> str:
        held = self.memory.held
        return self._offered(f"move {held} to {spot}") or self._offered(f"put {held} in/on {spot}")

    def _offered(self, command: str) -> str:
        return command if command in self.memory.actions else ""

    def _reach(self, spot: str) -> str:
        """The next command on the way to have the contents of a receptacle in reach."""
        if spot not in self.memory.here:
            return f"go to {spot}"
        if spot in self.memory.closed:
            return f"open {spot}"
        return f"examine {spot}"

    def _walk(self, spot: str) -> str:
        return f"go to {spot}" if spot not in self.memory.here else f"examine {spot}"

    def _explore(self, likely: frozenset[str]) -> str:
        """Look into a receptacle that was not seen yet, best odds per step first. If all were seen, begin again."""
        memory = self.memory
        unseen = [name for name in memory.receptacles if name not in memory.inside]
        if not unseen:
            memory.forget()
            unseen = list(memory.receptacles)
        return self._reach(max(unseen, key=lambda name: self._worth(name, likely)))

    def _worth(self, name: str, likely: frozenset[str]) -> tuple[float, float]:
        """Odds per step of finding the target there. The odds of a kind are divided by its number of receptacles."""
        of = kind(name)
        odds = 1.0 if of in likely and of != self.errand.to else _UNLIKELY
        return odds / self.memory.count[of] / max(1, self._effort(name)), self.order.get(name, 0.0)

    def _rank(self, spot: str) -> tuple[int, float]:
        return self._effort(spot), self.order.get(spot, 0.0)

    def _effort(self, spot: str) -> int:
        """Number of commands until the contents of a receptacle are in reach, as far as known."""
        shut = spot in self.memory.closed or (kind(spot) in _doors() and spot not in self.memory.inside)
        return int(spot not in self.memory.here) + int(shut)
