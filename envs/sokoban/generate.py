"""`sokoban-gen`: generated levels, each of which has a key from which it can be made again.

A key reads `sokoban-gen/SHAPE/SPLIT/SEED-INDEX`, for example `sokoban-gen/6x6b1p1-3/train/0-17`: a room of 6 x 6 cells
(walls included) with one box, which 1 to 3 pushes solve. A random walk carves the room, as in Weber et al.
(arXiv:1707.06203, appendix). Then boxes are pulled back from the targets, breadth-first, so that the smallest number of
pushes that solves a level is known exactly. A hash of the layout, which rotation and reflection do not change, decides
the split of a level. So no level of one split is in another, not even turned or mirrored.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from random import Random
from typing import Any, NamedTuple

from agentrl.envs.sokoban.rules import MOVES, Cell, Room, State, dead_cells, draw, shift
from agentrl.envs.sokoban.solver import distances
from agentrl.types import Task

BENCHMARK = "sokoban-gen"
ENDLESS = 1 << 40
SPLITS = {"train": (0, 8), "valid": (8, 9), "test": (9, 10)}  # tenths of the layouts
STATES = 20_000  # the search back from the solution stops after the depth at which it has seen this many states
ATTEMPTS = 2_000  # largest number of rooms that are carved for one level


class Level(NamedTuple):
    """A level: what never moves, and the first state."""

    room: Room
    start: State


class Shape(NamedTuple):
    """Size and difficulty of a level. `str()` writes it as in a key.

    `fewest` and `most` limit the smallest number of pushes that solves the level.
    """

    height: int
    width: int
    boxes: int
    fewest: int
    most: int

    def __str__(self) -> str:
        return f"{self.height}x{self.width}b{self.boxes}p{self.fewest}-{self.most}"


SHAPES = {
    "easy": Shape(6, 6, 1, 1, 3),
    "medium": Shape(6, 6, 1, 3, 8),
    "hard": Shape(6, 6, 2, 3, 12),
    "harder": Shape(7, 7, 2, 6, 20),
    "large": Shape(8, 8, 3, 8, 30),
}
_SHAPE = re.compile(r"(\d+)x(\d+)b(\d+)p(\d+)-(\d+)")


def shape_of(level: str) -> Shape:
    """The shape that a level names: one of `SHAPES`, or a spelling such as 6x6b1p1-3.

    Raises:
        ValueError: the level is neither of them, or such a room is impossible.
    """
    if level in SHAPES:
        return SHAPES[level]
    match = _SHAPE.fullmatch(level)
    if not match:
        raise ValueError(
            f"unknown Sokoban level {level!r}: use {', '.join(SHAPES)}, or spell one out, such as 6x6b1p1-3 "
            "(rows x columns, boxes, fewest to most pushes)"
        )
    shape = Shape(*map(int, match.groups()))
    if not (5 <= shape.height <= 20 and 5 <= shape.width <= 20 and 1 <= shape.boxes <= 6):
        raise ValueError(f"Sokoban level {level!r} is out of range: 5 to 20 rows and columns, 1 to 6 boxes")
    if not 1 <= shape.fewest <= shape.most:
        raise ValueError(
            f"Sokoban level {level!r} asks for {shape.fewest} to {shape.most} pushes: 1 or more, ascending"
        )
    return shape


class Keys(Sequence[Task]):
    """Tasks of generated levels. A level is made when its task is played."""

    def __init__(self, shape: Shape, split: str, seed: int, size: int) -> None:
        self.shape, self.split, self.seed, self.size = shape, split, seed, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.size))]
        if not -self.size <= index < self.size:
            raise IndexError(f"level {index} of {self.size}")
        return task_of(f"{BENCHMARK}/{self.shape}/{self.split}/{self.seed}-{index % self.size}")


def task_of(key: str) -> Task:
    """The task of a key.

    Raises:
        ValueError: it is no key of a generated level.
    """
    parse(key)
    return Task(key=key, env="sokoban")


def parse(key: str) -> tuple[Shape, str, str]:
    """Shape, split and stream ("SEED-INDEX") of a key."""
    parts = key.split("/")
    if len(parts) != 4 or parts[0] != BENCHMARK or parts[2] not in SPLITS or not re.fullmatch(r"\d+-\d+", parts[3]):
        raise ValueError(f"{key!r} is no generated Sokoban level: a key reads {BENCHMARK}/6x6b1p1-3/train/0-17")
    return shape_of(parts[1]), parts[2], parts[3]


@lru_cache(maxsize=8192)
def make_level(key: str) -> Level:
    """The level of a key.

    Raises:
        ValueError: no level of this shape and split was found in ATTEMPTS rooms.
    """
    shape, split, _ = parse(key)
    name = sha256(key.encode()).digest()
    random = Random(int.from_bytes(name[:8], "big")).random
    for _ in range(ATTEMPTS):
        level = _try(shape, random)
        if level is not None and split_of(level) == split:
            return level
    raise ValueError(
        f"no level {shape} was found in {ATTEMPTS} tries: ask for a larger room, fewer boxes or fewer pushes"
    )


def split_of(level: Level) -> str:
    """The split a layout belongs to, by a hash that rotation and reflection do not change."""
    tenth = sha256(min(_turned(draw(level.room, level.start))).encode()).digest()[0] * 10 // 256
    return next(name for name, (low, high) in SPLITS.items() if low <= tenth < high)


def _turned(grid: str) -> Iterator[str]:
    """The eight rotations and reflections of a drawing."""
    rows = [tuple(line.split(" ")) for line in grid.split("\n")]
    for _ in range(4):
        rows = list(zip(*rows[::-1], strict=True))
        for turned in (rows, [row[::-1] for row in rows]):
            yield "\n".join(" ".join(row) for row in turned)


def _try(shape: Shape, random: Any) -> Level | None:
    """A level of the shape in a newly carved room; None if this room allows none."""
    floor = _carve(shape, random)
    if len(floor) < 2 * shape.boxes + 2:
        return None
    targets = frozenset(_sample(sorted(floor), shape.boxes, random))
    room = Room(shape.height, shape.width, floor, targets)
    wanted: dict[int, list[State]] = {}
    for depth, state in _pulled(room):
        if shape.fewest <= depth <= shape.most and not state.boxes & targets:
            wanted.setdefault(depth, []).append(state)
    if not wanted:
        return None
    same = wanted[sorted(wanted)[int(random() * len(wanted))]]  # draw a number of pushes, then a state that needs it
    state = same[int(random() * len(same))]
    region = sorted(distances(room, state))
    return Level(room, State(region[int(random() * len(region))], state.boxes))


def _carve(shape: Shape, random: Any) -> frozenset[Cell]:
    """Floor cells, dug by a random walk that turns now and then and digs a small patch at each step."""
    patches = (
        ((0, 0), (0, 1)),
        ((0, 0), (1, 0)),
        ((0, 0), (0, 1), (1, 0)),
        ((0, 0), (1, 0), (1, 1)),
        ((0, 0), (0, 1), (1, 0), (1, 1)),
    )
    moves = list(MOVES.values())
    floor: set[Cell] = set()
    at = 1 + int(random() * (shape.height - 2)), 1 + int(random() * (shape.width - 2))
    move = moves[int(random() * 4)]
    for _ in range(int(1.5 * (shape.height + shape.width))):
        if random() < 0.35:
            move = moves[int(random() * 4)]
        ahead = shift(at, move)
        at = min(max(ahead[0], 1), shape.height - 2), min(max(ahead[1], 1), shape.width - 2)
        for patch in patches[int(random() * len(patches))]:
            cell = shift(at, patch)
            if 0 < cell[0] < shape.height - 1 and 0 < cell[1] < shape.width - 1:
                floor.add(cell)
    return frozenset(floor)


def _sample(cells: list[Cell], k: int, random: Any) -> list[Cell]:
    for i in range(k):
        j = i + int(random() * (len(cells) - i))
        cells[i], cells[j] = cells[j], cells[i]
    return cells[:k]


def _pulled(room: Room) -> Iterator[tuple[int, State]]:
    """(smallest number of pushes to a solution, state) of unsolved states from which the room can be solved.

    States with few pushes come first. In place of the player's cell, a state has the first cell of the region in which
    the player can walk. After the depth at which STATES states were seen, the search ends.
    """
    free = room.floor - room.targets
    starts = {_region(room, State(cell, room.targets)) for cell in sorted(free)}
    seen, frontier, depth = set(starts), sorted(starts, key=_order), 0
    while frontier and len(seen) < STATES:
        reached: list[State] = []
        for state in frontier:
            for before in _pulls(room, state):
                if before not in seen:
                    seen.add(before)
                    reached.append(before)
        depth += 1
        yield from ((depth, state) for state in reached)
        frontier = reached


def _pulls(room: Room, state: State) -> Iterator[State]:
    """The states one push before a state."""
    walks = distances(room, state)
    for box in sorted(state.boxes):
        for move in MOVES.values():
            player = box[0] - move[0], box[1] - move[1]  # the player's cell after the push, the box's before it
            stand = player[0] - move[0], player[1] - move[1]
            if player in walks and stand in room.floor and stand not in state.boxes:
                yield _region(room, State(stand, state.boxes - {box} | {player}))


def _region(room: Room, state: State) -> State:
    return State(min(distances(room, state)), state.boxes)


def _order(state: State) -> tuple[Cell, list[Cell]]:
    return state.player, sorted(state.boxes)


def lost(room: Room, state: State) -> bool:
    """Whether a box is seen to be stuck.

    Either no target can be reached from its cell, or it is on no target and fills a square of four cells together with
    other boxes and walls. Not every state that cannot be solved is noticed.
    """
    if state.boxes & dead_cells(room):
        return True
    blocked = state.boxes | _walls(room)
    for box in state.boxes - room.targets:
        for dr, dc in ((-1, -1), (-1, 1), (1, -1), (1, 1)):
            corner = (box[0] + dr, box[1]), (box[0], box[1] + dc), (box[0] + dr, box[1] + dc)
            if all(cell in blocked for cell in corner):
                return True
    return False


@lru_cache(maxsize=8192)
def _walls(room: Room) -> frozenset[Cell]:
    cells = {(r, c) for r in range(room.height) for c in range(room.width)}
    return frozenset(cells - room.floor)
