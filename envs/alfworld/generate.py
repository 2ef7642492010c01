"""`alfworld-gen`: ALFWorld games made on the spot, each named by a key from which it can be made again.

A key reads `alfworld-gen/LEVEL/SPLIT/TASK/SCENE/SEED-INDEX`, for example
`alfworld-gen/small/train/pick_and_place_simple/12/0-417`. Rules and words are those of the published games. Placements
and difficulty differ, so results are reported as `alfworld-gen` and never beside results on published games.
"""

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, overload

from agentrl.envs.alfworld import levels
from agentrl.envs.alfworld.compiler import compile_game
from agentrl.envs.alfworld.draw import Draw
from agentrl.envs.alfworld.game import TASK_TYPES, Game
from agentrl.envs.alfworld.oracle import proves
from agentrl.envs.alfworld.problem import game_data, sentence
from agentrl.envs.alfworld.rooms import Goal, choose_goal, furnish, goals
from agentrl.envs.alfworld.scenes import SPLITS, numbers

BENCHMARK = "alfworld-gen"
_ATTEMPTS = 20


class GameKey(NamedTuple):
    """What a key says. `str()` gives the key back."""

    level: str
    split: str
    task: str
    scene: int
    seed: int
    number: int

    def __str__(self) -> str:
        return f"{BENCHMARK}/{self.level}/{self.split}/{self.task}/{self.scene}/{self.seed}-{self.number}"


class Made(NamedTuple):
    """A generated game: what it asks for, the contents of its game.tw-pddl, and the compiled game.

    `rejected` counts the rooms made before it that the oracle did not win.
    """

    key: GameKey
    goal: Goal
    data: dict[str, Any]
    game: Game
    rejected: int


def is_generated(key: str) -> bool:
    """Whether a task key names a generated game."""
    return key.startswith(f"{BENCHMARK}/")


def parse_key(key: str) -> GameKey:
    """The parts of a key.

    Raises:
        ValueError: the text is no key, or its scene does not belong to its split or cannot hold its task.
    """
    parts = key.split("/")
    seed, _, index = parts[-1].partition("-")
    if len(parts) != 6 or parts[0] != BENCHMARK or not (seed + index + parts[4]).isdecimal() or not index:
        raise ValueError(f"{key!r} is not a generated game: a key reads {BENCHMARK}/LEVEL/SPLIT/TASK/SCENE/SEED-INDEX")
    found = GameKey(levels.level(parts[1]).name, parts[2], _task(parts[3]), int(parts[4]), int(seed), int(index))
    if found.scene not in scenes_for(found.split, found.task):
        raise ValueError(f"{key!r} is not a generated game: scene {found.scene} of {found.split} has no {found.task}")
    return found


@cache
def scenes_for(split: str, task: str) -> tuple[int, ...]:
    """The scenes of a split in which a task type can be set."""
    return tuple(number for number in numbers(split) if goals(number, task))


def make(key: str) -> Made:
    """The game of a key. The oracle has won it once before it is returned.

    Raises:
        ValueError: no such key.
    """
    parsed = parse_key(key)
    for attempt in range(_ATTEMPTS):
        made = _attempt(parsed, attempt)
        walkthrough = proves(made.game)
        if walkthrough:
            made.data.update(solvable=True, walkthrough=list(walkthrough))
            return made
    raise AssertionError(f"{key}: {_ATTEMPTS} rooms in a row could not be solved")


@lru_cache(maxsize=512)
def make_game(key: str) -> Game:
    """The compiled game of a key. The last 512 games are cached, because the copies of a task share one."""
    return make(key).game


def _attempt(key: GameKey, attempt: int) -> Made:
    draw = Draw(str(key), attempt)
    goal = choose_goal(key.scene, key.task, draw)
    room = furnish(key.scene, levels.level(key.level), goal, draw)
    data = game_data(room, goal, trial_name(key), sentence(goal, draw))
    return Made(key, goal, data, compile_game(data, key=str(key)), attempt)


def trial_name(key: GameKey) -> str:
    """A name like those of published trials, "trial_T20260407_081523_640217"; made from the key."""
    draw = Draw("trial", str(key))
    day = f"2026{draw.between(1, 12):02}{draw.between(1, 28):02}"
    return f"trial_T{day}_{draw.below(10**6):06}_{draw.below(10**6):06}"


def _task(name: str) -> str:
    if name not in TASK_TYPES:
        raise ValueError(f"unknown ALFWorld task type {name!r}: use {', '.join(TASK_TYPES)}")
    return name


class Keys(Sequence[str]):
    """Keys of the games 0, 1, 2, ... of a level, split and seed. Each key is made without the others.

    The task types alternate in a fixed order; scenes are drawn at random. The keys of a split and seed do not depend
    on `size`.
    """

    def __init__(
        self,
        level: str = "small",
        split: str = "train",
        *,
        tasks: Sequence[str] = (),
        seed: int = 0,
        size: int = 1_000_000,
    ) -> None:
        """
        Args:
            level: a name in `levels.LEVELS`.
            split: train and valid_seen share the training scenes; valid_unseen has ALFRED's test scenes.
            tasks: task types; empty: the level's own task types.
            seed: any integer >= 0; another seed gives other games.
            size: length of the sequence.

        Raises:
            ValueError: no such level, split or task type, or a negative seed.
        """
        self.level = levels.level(level)
        self.tasks = tuple(_task(name) for name in tasks) or self.level.kinds
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r} of generated games: use one of {', '.join(SPLITS)}")
        if seed < 0:
            raise ValueError(f"the seed of generated games is {seed}: use 0 or more")
        self.split, self.seed, self.size = split, seed, size

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self.key(i) for i in range(*index.indices(self.size))]
        i = index + self.size if index < 0 else index
        if not 0 <= i < self.size:
            raise IndexError(f"game {index} of {self.size}")
        return self.key(i)

    def __iter__(self) -> Iterator[str]:
        return (self.key(i) for i in range(self.size))

    def key(self, index: int) -> str:
        """The key of game `index`, which may lie beyond `size`."""
        task = self.tasks[index % len(self.tasks)]
        draw = Draw(self.level.name, self.split, task, self.seed, index)
        scene = draw.choice(scenes_for(self.split, task))
        return str(GameKey(self.level.name, self.split, task, scene, self.seed, index))
