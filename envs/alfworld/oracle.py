"""Makes plans with full knowledge of a game, for the proof that the game can be won and for the expert `oracle`.

A plan fetches the objects of the wanted kind that need the fewest commands, cleans, heats or cools them if the task
asks for it, and brings them to the receptacle that needs the fewest commands. It opens what must be open and closes
nothing. A plan can begin in any state, and uses an object that is already held, already hot, or already where it
belongs.
"""

from collections.abc import Iterator

from agentrl.envs.alfworld.engine import Engine
from agentrl.envs.alfworld.game import Game, State

_TOOLS = {
    "clean": ("sinkbasintype", "clean"),
    "hot": ("microwavetype", "heat"),
    "cool": ("fridgetype", "cool"),
}


def plan(game: Game, state: State) -> list[str] | None:
    """Commands that win from a state; empty if the game is won already, None if no plan of this shape exists.

    Raises:
        ValueError: the game is of none of the six task types.
    """
    if not game.kind:
        raise ValueError(f"the oracle knows the six ALFWorld task types, and {game.key} is none of them: {game.task!r}")
    shape = _looks if game.wanted.lamp else _brings
    return min((walk.commands for walk in shape(game, state)), key=len, default=None)


def proves(game: Game) -> tuple[str, ...] | None:
    """A plan with which the engine wins the game from its start, exactly at the last command; None if there is none."""
    commands = plan(game, game.start)
    if not commands:
        return None
    engine = Engine(game)
    for command in commands:
        if engine.won or command not in engine.commands:
            return None
        engine.step(command)
    return tuple(commands) if engine.won else None


def _brings(game: Game, state: State) -> Iterator["_Walk"]:
    wanted = game.wanted
    tools = _tools(game)
    for target in _of_type(game, wanted.receptacle):
        fit = [item for item in _items(game, wanted.object) if game.fitting(item, target)]
        ready = [item for item in fit if item in state.contents[target] and _changed(game, state, item)]
        missing = wanted.count - len(ready)
        single = [(item, _delivered(_Walk(game, state), item, target, tools)) for item in fit if item not in ready]
        nearest = sorted((len(walk.commands), item) for item, walk in single if walk is not None)[:missing]
        if len(nearest) < missing:
            continue
        walk: _Walk | None = _Walk(game, state)
        for _, item in sorted(nearest, key=lambda one: one[1] != state.holding):
            walk = walk and _delivered(walk, item, target, tools)
        if walk is not None:
            yield walk


def _delivered(walk: "_Walk", item: int, target: int, tools: list[int]) -> "_Walk | None":
    if not walk.fetch(item):
        return None
    if not _changed(walk.game, walk.state, item):
        if not tools:
            return None
        walk.use_tool(item, min(tools, key=lambda tool: walk.distance(tool)))
    walk.put(item, target)
    return walk


def _looks(game: Game, state: State) -> Iterator["_Walk"]:
    lamps = [item for item, of in enumerate(game.objects) if f"{game.wanted.lamp}type" in of.types and of.toggleable]
    stands = [(lamp, spot) for spot, inside in enumerate(state.contents) for lamp in lamps if lamp in inside]
    for item in _items(game, game.wanted.object):
        for lamp, stand in stands:
            walk = _Walk(game, state)
            if walk.fetch(item):
                walk.go(stand)
                if lamp not in state.toggled:
                    walk.commands.append(f"use {game.objects[lamp].name}")
                yield walk


def _of_type(game: Game, name: str) -> list[int]:
    return [i for i, receptacle in enumerate(game.receptacles) if f"{name}type" in receptacle.types]


def _items(game: Game, name: str) -> list[int]:
    return [i for i, item in enumerate(game.objects) if f"{name}type" in item.types and item.pickupable]


def _tools(game: Game) -> list[int]:
    if not game.wanted.condition:
        return []
    rtype = _TOOLS[game.wanted.condition][0]
    return [i for i, receptacle in enumerate(game.receptacles) if rtype in receptacle.types]


def _changed(game: Game, state: State, item: int) -> bool:
    members: frozenset[int] = getattr(state, game.wanted.condition) if game.wanted.condition else frozenset((item,))
    return item in members


class _Walk:
    """Commands from a state, and the place, held object and open receptacles to which they lead."""

    def __init__(self, game: Game, state: State) -> None:
        self.game, self.state = game, state
        self.commands: list[str] = []
        self.place, self.holding = state.place, state.holding
        self.opened = set(state.opened)

    def distance(self, receptacle: int) -> int:
        """Number of `go to` commands to stand at a receptacle: 0 or 1."""
        return int(self.place not in self.game.receptacles[receptacle].places)

    def go(self, receptacle: int) -> None:
        """Stand at a receptacle."""
        if self.distance(receptacle):
            self.commands.append(f"go to {self.game.receptacles[receptacle].name}")
            self.place = self.game.receptacles[receptacle].places[0]

    def reach_into(self, receptacle: int) -> None:
        """Stand at a receptacle whose door is open."""
        self.go(receptacle)
        if self.game.receptacles[receptacle].openable and receptacle not in self.opened:
            self.commands.append(f"open {self.game.receptacles[receptacle].name}")
            self.opened.add(receptacle)

    def fetch(self, item: int) -> bool:
        """Take an item, after putting down what is held; False if the item cannot be taken."""
        if self.holding == item:
            return True
        homes = [spot for spot, inside in enumerate(self.state.contents) if item in inside]
        if not homes or not self._free_hand():
            return False
        home = min(homes, key=self._effort)
        self.reach_into(home)
        self.commands.append(f"take {self.game.objects[item].name} from {self.game.receptacles[home].name}")
        self.holding = item
        return True

    def use_tool(self, item: int, tool: int) -> None:
        """Clean, heat or cool an item at a tool, whose door may stay shut."""
        self.go(tool)
        verb = _TOOLS[self.game.wanted.condition][1]
        self.commands.append(f"{verb} {self.game.objects[item].name} with {self.game.receptacles[tool].name}")

    def put(self, item: int, target: int) -> None:
        """Put an item into or onto a receptacle."""
        self.reach_into(target)
        names = self.game.objects[item].name, self.game.receptacles[target].name
        self.commands.append(self.game.form.put.format(o=names[0], r=names[1]))
        self.holding = -1

    def _effort(self, receptacle: int) -> int:
        spot = self.game.receptacles[receptacle]
        return self.distance(receptacle) + (spot.openable and receptacle not in self.opened)

    def _free_hand(self) -> bool:
        if self.holding < 0:
            return True
        takes = [spot for spot in range(len(self.game.receptacles)) if self.game.fitting(self.holding, spot)]
        if takes:
            self.put(self.holding, min(takes, key=self._effort))
        return bool(takes)
