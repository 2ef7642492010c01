"""The knowledge of an agent from the game's answers and the admissible commands that it has read."""

import re
from collections import Counter
from collections.abc import Iterable

from agentrl.types import Observation

_SEEN = re.compile(r"(?:On the (\w+ \d+)|The (\w+ \d+) is open\. In it), you see ([^.]*)\.")
_NAME = re.compile(r"\b\w+ \d+")
_DONE = re.compile(r"You (pick up|move|put|heat|cool|clean) the (\w+ \d+)(?: (?:from|to|in/on|using) the (\w+ \d+))?")
_UNDOES = {"heat": "cool", "cool": "heat"}


def kind(name: str) -> str:
    """ "mug" of "mug 2"."""
    return name.partition(" ")[0]


class Memory:
    """Knowledge of one game, brought up to date by `read` at every observation.

    Attributes:
        receptacles: names of all receptacles.
        count: receptacle kind -> how many there are.
        visited: receptacles at which the agent stood.
        inside: receptacle -> objects last seen there. A receptacle is missing if it was not looked into since the start
            or the last call of `forget`.
        here: receptacles at the agent's place.
        closed: receptacles at the agent's place that can be opened now.
        held: the held object, "" if none.
        lamps: lamp -> the receptacle at which the lamp was in reach.
        done: (verb, object) pairs that still hold: heat, cool, clean.
        actions: the admissible commands.
    """

    def __init__(self) -> None:
        self.receptacles: dict[str, None] = {}
        self.count: Counter[str] = Counter()
        self.visited: set[str] = set()
        self.inside: dict[str, set[str]] = {}
        self.here: list[str] = []
        self.closed: set[str] = set()
        self.held = ""
        self.lamps: dict[str, str] = {}
        self.done: set[tuple[str, str]] = set()
        self.actions: tuple[str, ...] = ()

    def read(self, observation: Observation) -> None:
        """Take in an answer and the commands now admissible."""
        self.actions = observation.actions
        if not self.receptacles:
            self._survey(observation.actions)
        self._effects(observation.text)
        whole = observation.text[: observation.text.rfind(".") + 1]  # past the last full stop no sentence ends
        for on, opened, seen in _SEEN.findall(whole):
            self.inside[on or opened] = set(_NAME.findall(seen))
        self._offers(observation.actions)

    def where(self, wanted: str) -> Iterable[tuple[str, str]]:
        """(object, receptacle) of every object of a kind that was seen."""
        for receptacle, objects in self.inside.items():
            for name in objects:
                if kind(name) == wanted:
                    yield name, receptacle

    def forget(self) -> None:
        """Forget what was seen in receptacles, so that each is looked into again."""
        self.inside.clear()
        self.visited.clear()

    def _survey(self, actions: Iterable[str]) -> None:
        for action in actions:
            verb, _, name = action.partition(" ")
            if verb == "go":
                self.receptacles[name.removeprefix("to ")] = None
            elif verb == "examine":
                self.receptacles[name] = None
        self.count.update(map(kind, self.receptacles))

    def _effects(self, text: str) -> None:
        found = _DONE.match(text)
        if found is None:
            return
        verb, item, receptacle = found.groups()
        if verb == "pick up":
            self.inside.setdefault(receptacle, set()).discard(item)
        elif verb in ("move", "put"):
            self.inside.setdefault(receptacle, set()).add(item)
        else:
            self.done.add((verb, item))
            self.done.discard((_UNDOES.get(verb, ""), item))

    def _offers(self, actions: Iterable[str]) -> None:
        self.here, self.closed, self.held = [], set(), ""
        usable = []
        for action in actions:
            verb, _, name = action.partition(" ")
            if verb == "examine":
                if name in self.receptacles:
                    self.here.append(name)
                    self.visited.add(name)
                else:
                    self.held = name
            elif verb == "open":
                self.closed.add(name)
            elif verb == "use":
                usable.append(name)
            elif verb == "take":
                item, _, receptacle = name.partition(" from ")
                self.inside.setdefault(receptacle, set()).add(item)
        if not self.held:
            # With an empty hand all objects in reach are offered, so a receptacle of which none is offered is empty.
            for name in self.here:
                if name not in self.closed:
                    self.inside.setdefault(name, set())
        for lamp in usable:
            self.lamps[lamp] = next((r for r in self.here if lamp in self.inside.get(r, ())), self.here[0])
