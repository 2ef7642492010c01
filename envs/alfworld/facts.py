"""The facts of a state that the agent sees, and the state key that is made from them."""

from collections.abc import Iterable
from typing import NamedTuple

from agentrl.envs.alfworld.game import Game, State


class Seen(NamedTuple):
    """A receptacle at the agent's place; `door` is "open", "closed" or "" (it has none).

    `contents` is empty while the door is closed. `lit` are the contents that were turned on.
    """

    name: str
    door: str
    contents: tuple[str, ...]
    lit: tuple[str, ...]


class Facts(NamedTuple):
    """The agent-visible state.

    Attributes:
        here: the receptacles at the agent's place; none in the middle of the room.
        held: name of the held object, "" if none.
        condition: which of clean, hot, cool and sliced the held object is.
    """

    here: tuple[Seen, ...]
    held: str
    condition: tuple[str, ...]

    def key(self) -> str:
        """The facts as one line; two lines are equal exactly if the facts are equal."""
        faced = "; ".join(_seen(one) for one in self.here) or "middle of the room"
        held = " ".join((*self.condition, self.held)) if self.held else "nothing"
        return f"{faced} | holding {held}"


def _seen(one: Seen) -> str:
    door = f" ({one.door})" if one.door else ""
    contents = ", ".join(f"{name} (on)" if name in one.lit else name for name in one.contents)
    return f"{one.name}{door}: {contents}" if one.door != "closed" else f"{one.name}{door}"


def facts(game: Game, state: State) -> Facts:
    """The facts of the native engine's state."""
    here = []
    for number in game.at[state.place]:
        receptacle = game.receptacles[number]
        door = ("open" if number in state.opened else "closed") if receptacle.openable else ""
        contents = () if door == "closed" else state.contents[number]
        here.append(
            Seen(
                receptacle.name,
                door,
                tuple(game.objects[item].name for item in contents),
                tuple(game.objects[item].name for item in contents if item in state.toggled),
            )
        )
    if state.holding < 0:
        return Facts(tuple(here), "", ())
    members = {"clean": state.clean, "hot": state.hot, "cool": state.cool, "sliced": state.sliced}
    condition = tuple(word for word, found in members.items() if state.holding in found)
    return Facts(tuple(here), game.objects[state.holding].name, condition)


def from_propositions(rows: Iterable[tuple[str, tuple[str, ...]]]) -> Facts:
    """The same facts from the genuine engine's propositions, given as (predicate, names in id order)."""
    true: dict[str, list[tuple[str, ...]]] = {}
    for predicate, names in rows:
        true.setdefault(predicate, []).append(names)

    def having(predicate: str) -> set[str]:
        return {names[0] for names in true.get(predicate, ())}

    [(_, place)] = true["atlocation"]
    openable, opened, lit = having("openable"), having("opened"), having("istoggled")
    here = []
    for receptacle, at in true.get("receptacleatlocation", ()):
        if at != place:
            continue
        door = ("open" if receptacle in opened else "closed") if receptacle in openable else ""
        contents = [item for item, where in true.get("inreceptacle", ()) if where == receptacle and door != "closed"]
        here.append(Seen(receptacle, door, tuple(contents), tuple(item for item in contents if item in lit)))
    held = next((names[1] for names in true.get("holds", ())), "")
    condition = tuple(word for word in ("clean", "hot", "cool", "sliced") if held in having(f"is{word}"))
    return Facts(tuple(here), held, condition if held else ())
