"""The answers of the genuine engine, word for word."""

from collections.abc import Sequence

from agentrl.envs.alfworld.game import Game, State
from agentrl.envs.alfworld.rules import Op

NOTHING = "Nothing happens."
WELCOME = "-= Welcome to TextWorld, ALFRED! =-"
TASK = "Your task is to: "


def opening(game: Game) -> str:
    """What is printed before the first command."""
    start = game.start
    if game.at[start.place]:
        around = _facing(game, start)
    else:
        shown = [one.name for one in game.receptacles for _ in one.places]
        around = _room(_listed(shown))
    return f"{WELCOME}\n\n{around}\n\n{TASK}{game.task}"


def answer(game: Game, state: State, op: Op) -> str:
    """What is printed after `op` led to `state`."""
    match op.verb:
        case "look":
            return _facing(game, state) if game.at[state.place] else _room("nothing")
        case "inventory":
            if state.holding < 0:
                return "You are not carrying anything."
            return f"You are carrying: a {game.objects[state.holding].name}."
        case "help":
            return game.form.help or NOTHING
        case "examine_object":
            return _object(game, state, op.first)
        case "use":
            return f"You turn on the {game.objects[op.first].name}."
        case "slice":
            return f"You sliced the {game.objects[op.first].name} with the {game.objects[op.second].name}."
        case "examine":
            return _receptacle(game, state, op.first)
        case "go":
            end = game.receptacles[op.first].name if game.form.arrive == "receptacle" else game.places[op.second]
            return f"You arrive at {end}. {_receptacle(game, state, op.first)}"
        case "open":
            return f"You open the {game.receptacles[op.first].name}. {_receptacle(game, state, op.first)}"
        case "close":
            return f"You close the {game.receptacles[op.first].name}."
    return _moved(game, op)


def _moved(game: Game, op: Op) -> str:
    item, receptacle = game.objects[op.first].name, game.receptacles[op.second].name
    match op.verb:
        case "take":
            return f"You pick up the {item} from the {receptacle}."
        case "put":
            return game.form.placed.format(o=item, r=receptacle)
    return f"You {op.verb} the {item} using the {receptacle}."


def _listed(names: Sequence[str], article: str = "a ") -> str:
    shown = [f"{article}{name}" for name in names]
    if not shown:
        return "nothing"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])}, and {shown[-1]}"


def _room(seen: str) -> str:
    return f"You are in the middle of a room. Looking quickly around you, you see {seen}."


def _facing(game: Game, state: State) -> str:
    here = game.at[state.place]
    # An oddity of the original: an object that was taken out of a receptacle here and now lies in another receptacle of
    # the same place is listed as lying next to them, once for each receptacle here that it was taken out of.
    beside = [
        game.objects[item].name
        for item, place in sorted(state.lying)
        if place == state.place
        for receptacle in here
        if (item, receptacle) in state.removed
    ]
    names = [game.receptacles[receptacle].name for receptacle in here]
    return f"You are facing the {_listed(names, '')}. Next to it, you see {_listed(beside)}."


def _receptacle(game: Game, state: State, number: int) -> str:
    name = game.receptacles[number].name
    where = f"On the {name}, you see"
    if game.receptacles[number].openable:
        if number not in state.opened:
            return f"The {name} is closed."
        where = f"The {name} is open. In it, you see"
    return f"{where} {_listed([game.objects[item].name for item in state.contents[number]])}."


def _object(game: Game, state: State, number: int) -> str:
    item = game.objects[number]
    if item.container:
        inside = _listed([game.objects[one].name for one in item.inside])
        return f"This is a normal {item.name}. In it, you see {inside}."
    clean, hot, cool, sliced = (number in found for found in (state.clean, state.hot, state.cool, state.sliced))
    warmth = "hot" if hot else "cool" if cool else ""
    # The original's rules in their order: an object is called "cold" only if it is neither hot, clean nor sliced.
    if cool and not (hot or clean or sliced):
        return f"This is a cold {item.name}."
    if warmth or clean:
        condition = " and ".join(word for word in (warmth, "clean" if clean else "") if word)
        return f"This is a {condition} {'sliced ' if sliced else ''}{item.name}."
    if item.toggleable and number in state.toggled:
        return f"This {item.name} is on."
    if item.sliceable and sliced:
        return f"This is a sliced {item.name}."
    return f"There's nothing special about {item.name}."
