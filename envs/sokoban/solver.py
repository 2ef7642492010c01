"""Optimal solutions by A* over pushes. The lower bound adds the distances of the boxes to their nearest targets."""

import heapq
from collections import deque
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from agentrl.envs.sokoban.rules import MOVES, Cell, Room, State, shift, solved

LIMIT = 200_000  # largest number of states that are searched; a level that needs more is too hard


class TooHard(RuntimeError):
    """The search reached its limit of states without a solution, and without a proof that there is none."""


class Push(NamedTuple):
    """One push: where the player stands before it, and the direction."""

    stand: Cell
    action: str


def solve(room: Room, state: State, limit: int = LIMIT) -> list[str] | None:
    """The actions of a solution with the fewest moves; None if there is no solution.

    Raises:
        TooHard: more than `limit` states would have to be looked at.
    """
    bound = _bounds(room)
    best: dict[State, int] = {state: 0}
    came: dict[State, tuple[State, Push]] = {}  # state -> the state before, the push
    order = count()
    first = _estimate(bound, state)
    heap = [(first, next(order), 0, state)] if first is not None else []
    looked = 0
    while heap:
        _, _, spent, here = heapq.heappop(heap)
        if spent > best[here]:
            continue
        if solved(room, here):
            return _actions(room, came, here)
        looked += 1
        if looked > limit:
            raise TooHard(f"no solution found among {limit} states: take a smaller room or fewer boxes")
        walks = distances(room, here)
        for push, after in pushes(room, here, walks):
            total = spent + walks[push.stand] + 1
            estimate = _estimate(bound, after)
            if estimate is not None and total < best.get(after, total + 1):
                best[after] = total
                came[after] = (here, push)
                heapq.heappush(heap, (total + estimate, next(order), total, after))
    return None


def distances(room: Room, state: State) -> Mapping[Cell, int]:
    """Moves from the player to each cell it can walk to without a push."""
    found = {state.player: 0}
    queue = deque([state.player])
    while queue:
        cell = queue.popleft()
        for move in MOVES.values():
            ahead = shift(cell, move)
            if ahead in room.floor and ahead not in state.boxes and ahead not in found:
                found[ahead] = found[cell] + 1
                queue.append(ahead)
    return found


def pushes(room: Room, state: State, walks: Mapping[Cell, int]) -> Iterator[tuple[Push, State]]:
    """Every push that the player can walk to, with the state after it; boxes in reading order."""
    for box in sorted(state.boxes):
        for action, move in MOVES.items():
            stand, beyond = (box[0] - move[0], box[1] - move[1]), shift(box, move)
            if stand in walks and beyond in room.floor and beyond not in state.boxes:
                yield Push(stand, action), State(box, state.boxes - {box} | {beyond})


@lru_cache(maxsize=256)
def _bounds(room: Room) -> Mapping[Cell, int]:
    """Smallest number of pushes of a single box from each cell to a target; cells that reach none are left out."""
    found = dict.fromkeys(sorted(room.targets), 0)
    queue = deque(found)
    while queue:
        cell = queue.popleft()
        for move in MOVES.values():
            source = cell[0] - move[0], cell[1] - move[1]
            player = source[0] - move[0], source[1] - move[1]
            if source in room.floor and player in room.floor and source not in found:
                found[source] = found[cell] + 1
                queue.append(source)
    return found


def _estimate(bound: Mapping[Cell, int], state: State) -> int | None:
    """A lower bound of the number of pushes left; None if a box cannot reach any target."""
    total = 0
    for box in state.boxes:
        if box not in bound:
            return None
        total += bound[box]
    return total


def _actions(room: Room, came: Mapping[State, tuple[State, Push]], state: State) -> list[str]:
    """The walks and pushes that lead from the start to a state."""
    parts: list[list[str]] = []
    while state in came:
        state, push = came[state]
        parts.append([*walk(room, state, push.stand), push.action])
    return [action for part in reversed(parts) for action in part]


def walk(room: Room, state: State, to: Cell) -> list[str]:
    """The shortest walk to a cell that can be reached without a push."""
    walks = distances(room, state)
    path: list[str] = []
    while walks[to]:
        action, before = next(
            (name, (to[0] - move[0], to[1] - move[1]))
            for name, move in MOVES.items()
            if walks.get((to[0] - move[0], to[1] - move[1]), -1) == walks[to] - 1
        )
        path.append(action)
        to = before
    return path[::-1]
