"""Computes which facts could ever become true if doors were never closed and hands never full.

Before it plays a game, the genuine engine asks whether the goal could ever hold, and refuses the game if not. So does
the native engine.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from agentrl.envs.alfworld.game import Game
from agentrl.envs.alfworld.goal import Test

_TOOLS = {
    "clean": ("sinkbasintype", "cleanable"),
    "hot": ("microwavetype", "heatable"),
    "cool": ("fridgetype", "coolable"),
}


@dataclass(frozen=True)
class Reach:
    """What is possible from a game's start."""

    game: Game

    def possible(self, test: Test) -> bool:
        """Whether the fact holds at the start or could ever become true."""
        predicate, first, second = test
        rules: dict[str, Callable[[], bool]] = {
            "holds": lambda: first in self._holdable,
            "holdsany": lambda: bool(self._holdable),
            "atlocation": lambda: self._place(first),
            "objectatlocation": lambda: self._lying(first, second),
            "inreceptacle": lambda: self._inside(first, second),
            "opened": lambda: first in self.game.start.opened or self._door(first),
            "sliced": lambda: first in self.game.start.sliced or self._sliced(first),
            "toggled": lambda: first in self.game.start.toggled or self._toggled(first),
        }
        rule = rules.get(predicate)
        return rule() if rule else first in getattr(self.game.start, predicate) or self._changed(predicate, first)

    @cached_property
    def _holdable(self) -> frozenset[int]:
        game = self.game
        return frozenset(
            item
            for number, contents in enumerate(game.start.contents)
            if game.receptacles[number].places
            for item in contents
            if game.objects[item].pickupable
        )

    def _place(self, place: int) -> bool:
        return place == self.game.start.place or bool(self.game.at[place])

    def _inside(self, item: int, receptacle: int) -> bool:
        if item in self.game.start.contents[receptacle]:
            return True
        placed = bool(self.game.receptacles[receptacle].places)
        return placed and item in self._holdable and self.game.fitting(item, receptacle)

    def _lying(self, item: int, place: int) -> bool:
        put = item in self._holdable and any(self.game.fitting(item, one) for one in self.game.at[place])
        return put or (item, place) in self.game.start.lying

    def _door(self, receptacle: int) -> bool:
        found = self.game.receptacles[receptacle]
        return found.openable and bool(found.places)

    def _changed(self, condition: str, item: int) -> bool:
        tool, needed = _TOOLS[condition]
        found = any(tool in one.types and one.places for one in self.game.receptacles)
        return found and item in self._holdable and bool(getattr(self.game.objects[item], needed))

    def _sliced(self, item: int) -> bool:
        knife = any(self.game.objects[one].knife for one in self._holdable)
        places = range(len(self.game.places))
        lying = any(self._place(place) and self._lying(item, place) for place in places)
        return self.game.objects[item].sliceable and knife and lying

    def _toggled(self, item: int) -> bool:
        receptacles = range(len(self.game.receptacles))
        near = any(self.game.receptacles[one].places and self._inside(item, one) for one in receptacles)
        return self.game.objects[item].toggleable and near
