"""Sokoban's rules and dense reward.

Rewards are those of gym-sokoban (Schrader, https://github.com/mpSchrader/gym-sokoban), as the published text
environments use them: -0.1 per move, +1 for a box pushed onto a target, -1 for a box pushed off a target, +10 when all
boxes are on targets.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

Cell = tuple[int, int]  # row, column; row 0 is the top one

MOVES: Mapping[str, Cell] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
STILL = "still"
ACTIONS = (*MOVES, STILL)

STEP_REWARD, PUSH_ON_REWARD, PUSH_OFF_REWARD, FINISH_REWARD = -0.1, 1.0, -1.0, 10.0

WALL, FLOOR, TARGET, BOX_ON_TARGET, BOX, PLAYER, PLAYER_ON_TARGET = "#_O√XPS"
LEGEND = (
    f"{WALL} wall, {FLOOR} floor, {TARGET} target, {BOX} box, {PLAYER} you, {BOX_ON_TARGET} box on target, "
    f"{PLAYER_ON_TARGET} you on target"
)


@dataclass(frozen=True)
class Room:
    """What never moves: height, width, the cells without a wall (`floor`), and the targets among them."""

    height: int
    width: int
    floor: frozenset[Cell]
    targets: frozenset[Cell]


class State(NamedTuple):
    """What moves: the player and the boxes."""

    player: Cell
    boxes: frozenset[Cell]


class Moved(NamedTuple):
    """The state after a move, its dense reward, and whether a box was pushed."""

    state: State
    reward: float
    pushed: bool


def solved(room: Room, state: State) -> bool:
    """Whether every box stands on a target."""
    return state.boxes <= room.targets


def shift(cell: Cell, move: Cell) -> Cell:
    """The neighbour of a cell in the direction of a move."""
    return cell[0] + move[0], cell[1] + move[1]


def apply(room: Room, state: State, action: str) -> Moved:
    """Carry out one action. If it is blocked, `still` or unknown, the state stays; the reward is that of any move."""
    after, pushed = state, False
    if action in MOVES:
        move = MOVES[action]
        ahead = shift(state.player, move)
        if ahead in state.boxes:
            beyond = shift(ahead, move)
            if beyond in room.floor and beyond not in state.boxes:
                after, pushed = State(ahead, state.boxes - {ahead} | {beyond}), True
        elif ahead in room.floor:
            after = State(ahead, state.boxes)
    return Moved(after, _reward(room, state, after), pushed)


def _reward(room: Room, before: State, after: State) -> float:
    change = len(after.boxes & room.targets) - len(before.boxes & room.targets)
    reward = STEP_REWARD + {1: PUSH_ON_REWARD, 0: 0.0, -1: PUSH_OFF_REWARD}[change]
    return reward + FINISH_REWARD if solved(room, after) and after != before else reward


def legal(room: Room, state: State) -> tuple[str, ...]:
    """The moves that change the state, in the order up, down, left, right."""
    return tuple(action for action in MOVES if apply(room, state, action).state != state)


def dead_cells(room: Room) -> frozenset[Cell]:
    """Floor cells from which a single box cannot be pushed to any target."""
    alive, frontier = set(room.targets), list(room.targets)
    while frontier:
        cell = frontier.pop()
        for move in MOVES.values():  # pull the box from `cell` against the move
            source = cell[0] - move[0], cell[1] - move[1]
            player = source[0] - move[0], source[1] - move[1]
            if source in room.floor and player in room.floor and source not in alive:
                alive.add(source)
                frontier.append(source)
    return room.floor - alive


def draw(room: Room, state: State, border: bool = True) -> str:
    """The grid: one line per row, one symbol per cell, with blanks between.

    The outermost cells, which are always walls, are drawn if `border` is True.
    """
    edge = 0 if border else 1
    rows, columns = range(edge, room.height - edge), range(edge, room.width - edge)
    return "\n".join(" ".join(_symbol(room, state, (r, c)) for c in columns) for r in rows)


def _symbol(room: Room, state: State, cell: Cell) -> str:
    if cell not in room.floor:
        return WALL
    on_target = cell in room.targets
    if cell == state.player:
        return PLAYER_ON_TARGET if on_target else PLAYER
    if cell in state.boxes:
        return BOX_ON_TARGET if on_target else BOX
    return TARGET if on_target else FLOOR


def build(height: int, width: int, floor: Iterable[Cell], targets: Iterable[Cell]) -> Room:
    """A room."""
    return Room(height, width, frozenset(floor), frozenset(targets))
