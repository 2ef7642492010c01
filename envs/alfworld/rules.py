"""The admissible commands of a state, and the changes that they make."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from agentrl.envs.alfworld.game import Game, State


class Op(NamedTuple):
    """What a command does: a verb, and the numbers of the objects, receptacles or places it is about.

    go (receptacle, place); open, close, examine (receptacle); take, put, clean, heat, cool (object,
    receptacle); use, examine_object (object); slice (object, knife); look, inventory, help.
    """

    verb: str
    first: int = -1
    second: int = -1


def commands(game: Game, state: State) -> dict[str, Op]:
    """Each admissible command and what it does."""
    found = dict(_everywhere(game, state.place))
    for receptacle in game.at[state.place]:
        found.update(_offer(game, op) for op in _at(game, state, receptacle))
    if state.holding >= 0:
        found.update(_offer(game, op) for op in _with_held(game, state))
    return found


def _everywhere(game: Game, place: int) -> dict[str, Op]:
    """Walks, `look`, `inventory` and `help`: the same at every visit to a place."""
    found: dict[str, Op] | None = game.cache.get(place)
    if found is None:
        verbs = ["look", "inventory", *(["help"] if game.form.help is not None else [])]
        found = dict(_offer(game, Op(verb)) for verb in verbs)
        for number, receptacle in enumerate(game.receptacles):
            # Where a receptacle has several places, the genuine engine's first walk is to the first of them.
            ends = [end for end in receptacle.places if end != place]
            if ends:
                found.update([_offer(game, Op("go", number, ends[0]))])
        game.cache[place] = found
    return found


def _at(game: Game, state: State, receptacle: int) -> Iterator[Op]:
    """What the presence of a receptacle at the agent's place allows."""
    openable = game.receptacles[receptacle].openable
    opened = receptacle in state.opened
    yield Op("examine", receptacle)
    if openable:
        yield Op("close" if opened else "open", receptacle)
    for item in state.contents[receptacle]:
        if game.objects[item].toggleable:
            yield Op("use", item)
        if state.holding < 0 and game.objects[item].pickupable and (opened or not openable):
            yield Op("take", item, receptacle)
    if state.holding >= 0:
        yield from _deeds(game, state.holding, receptacle)
        if (opened or not openable) and game.fitting(state.holding, receptacle):
            yield Op("put", state.holding, receptacle)


def _with_held(game: Game, state: State) -> Iterator[Op]:
    yield Op("examine_object", state.holding)
    if game.objects[state.holding].knife:
        for item, place in state.lying:
            if place == state.place and game.objects[item].sliceable:
                yield Op("slice", item, state.holding)


def _deeds(game: Game, item: int, receptacle: int) -> Iterator[Op]:
    types = game.receptacles[receptacle].types
    held = game.objects[item]
    if held.cleanable and "sinkbasintype" in types:
        yield Op("clean", item, receptacle)
    if held.heatable and "microwavetype" in types:
        yield Op("heat", item, receptacle)
    if held.coolable and "fridgetype" in types:
        yield Op("cool", item, receptacle)


def _offer(game: Game, op: Op) -> tuple[str, Op]:
    """The command that means `op`, made once per game."""
    offer: tuple[str, Op] | None = game.cache.get(op)
    if offer is None:
        offer = game.cache[op] = (_command(game, op), op)
    return offer


def _command(game: Game, op: Op) -> str:
    match op.verb:
        case "look" | "inventory" | "help":
            return op.verb
        case "go":
            return f"go to {game.receptacles[op.first].name}"
        case "examine" | "open" | "close":
            return f"{op.verb} {game.receptacles[op.first].name}"
        case "examine_object":
            return f"examine {game.objects[op.first].name}"
        case "use":
            return f"use {game.objects[op.first].name}"
        case "slice":
            return f"slice {game.objects[op.first].name} with {game.objects[op.second].name}"
    item, receptacle = game.objects[op.first].name, game.receptacles[op.second].name
    match op.verb:
        case "take":
            return f"take {item} from {receptacle}"
        case "put":
            return game.form.put.format(o=item, r=receptacle)
    return f"{op.verb} {item} with {receptacle}"


def _go(state: State, op: Op) -> State:
    return state._replace(place=op.second)


def _open(state: State, op: Op) -> State:
    return state._replace(opened=state.opened | {op.first})


def _close(state: State, op: Op) -> State:
    return state._replace(opened=state.opened - {op.first})


def _take(state: State, op: Op) -> State:
    left = tuple(item for item in state.contents[op.second] if item != op.first)
    return state._replace(
        holding=op.first,
        contents=_with(state.contents, op.second, left),
        lying=state.lying - {(op.first, state.place)},
        removed=state.removed | {(op.first, op.second)},
    )


def _put(state: State, op: Op) -> State:
    filled = tuple(sorted({*state.contents[op.second], op.first}))
    return state._replace(
        holding=-1,
        contents=_with(state.contents, op.second, filled),
        lying=state.lying | {(op.first, state.place)},
        removed=state.removed - {(op.first, op.second)},
    )


def _with(contents: tuple[tuple[int, ...], ...], receptacle: int, new: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return (*contents[:receptacle], new, *contents[receptacle + 1 :])


def _clean(state: State, op: Op) -> State:
    return state._replace(clean=state.clean | {op.first})


def _heat(state: State, op: Op) -> State:
    return state._replace(hot=state.hot | {op.first}, cool=state.cool - {op.first})


def _cool(state: State, op: Op) -> State:
    return state._replace(cool=state.cool | {op.first}, hot=state.hot - {op.first})


def _use(state: State, op: Op) -> State:
    return state._replace(toggled=state.toggled | {op.first})


def _slice(state: State, op: Op) -> State:
    return state._replace(sliced=state.sliced | {op.first})


# Verbs that are not here do not change the state.
EFFECTS: dict[str, Callable[[State, Op], State]] = {
    "go": _go,
    "open": _open,
    "close": _close,
    "take": _take,
    "put": _put,
    "clean": _clean,
    "heat": _heat,
    "cool": _cool,
    "use": _use,
    "slice": _slice,
}
