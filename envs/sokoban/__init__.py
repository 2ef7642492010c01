"""Sokoban in text: push every box onto a target; generated levels with a known solution, or levels of your own.

The rules and the dense reward are those of gym-sokoban. `rules` has them, `generate` makes levels, and `files` reads
levels from files.
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from agentrl.env import Env, Expert
from agentrl.envs.sokoban.env import Reward, SokobanEnv
from agentrl.envs.sokoban.experts import EXPERTS, make_expert
from agentrl.envs.sokoban.files import read_levels
from agentrl.envs.sokoban.generate import BENCHMARK, ENDLESS, Keys, Level, make_level, parse, shape_of, task_of
from agentrl.envs.sokoban.prompts import Compact, Instruct, VerlAgent
from agentrl.types import Task

__all__ = [
    "ERRING",
    "EXPERTS",
    "GYMNASIUM_IDS",
    "MEASURES",
    "Config",
    "benchmark",
    "expert",
    "find",
    "kind",
    "make",
    "prompt",
]

MEASURES = ("box_share", "pushes")
SMALL_MODEL: Mapping[str, Any] = {"prompt": "compact"}
MARKOV = True  # the grid shows the whole situation
ERRING = {"wander": 1, "expert-noisy": 1}
GYMNASIUM_IDS: Mapping[str, Mapping[str, Any]] = {"agentrl/Sokoban-v0": {}}


class Config(BaseModel, frozen=True, extra="forbid"):
    """Options of Sokoban.

    Attributes:
        level: difficulty of generated levels: easy, medium, hard, harder, large, or a shape such as 6x6b1p1-3 (6 rows
            and 6 columns, walls included; 1 box; at least 1 and at most 3 pushes to solve it).
        split: part of the generated levels: train, valid or test. No layout is in two parts, not even turned or
            mirrored. It has no effect on levels of files.
        seed: seed of generated levels; another seed gives other levels.
        count: number of generated levels; None: an endless list.
        data: a file of levels in the usual notation, or a folder of .txt files, instead of generated levels.
        max_steps: number of moves after which an episode is truncated; None: no limit.
        reward: `dense` (that of gym-sokoban: -0.1 per move, +1 for a box pushed onto a target, -1 for a box pushed off
            a target, +10 when all boxes are on targets), or `terminal` (1 when all boxes are on targets, else 0).
        moves: `all` (the four moves are admissible) or `legal` (only moves that change something are admissible; if no
            move changes anything, all four are admissible).
        moves_per_turn: largest number of moves per answer; further moves are ignored.
        end_when_lost: end an episode when a box is seen to be stuck: no target can be reached from its cell, or boxes
            and walls block it. Some levels that have become impossible to solve are not noticed.
        border: draw the walls around the room; without these walls, a small model reads about half as many tokens.
        prompt: `verl_agent` (the published form) or `instruct` (few tokens) for language models, `compact` for small
            models.
    """

    level: str = "easy"
    split: Literal["train", "valid", "test"] = "train"
    seed: int = Field(0, ge=0)
    count: int | None = Field(None, ge=1)
    data: str = ""
    max_steps: int | None = Field(30, ge=1)
    reward: Reward = "dense"
    moves: Literal["all", "legal"] = "all"
    moves_per_turn: int = Field(1, ge=1)
    end_when_lost: bool = False
    border: bool = True
    prompt: Literal["verl_agent", "instruct", "compact"] = "verl_agent"


def make(config: Config) -> SokobanEnv:
    """An instance."""
    return SokobanEnv(
        open_level,
        max_steps=config.max_steps,
        reward=config.reward,
        masked=config.moves == "legal",
        moves_per_turn=config.moves_per_turn,
        end_when_lost=config.end_when_lost,
        border=config.border,
    )


def tasks(config: Config) -> Sequence[Task]:
    """The levels of a configuration.

    Raises:
        ValueError: the level is unknown, or the file or folder is missing or has no levels or a broken one.
    """
    if not config.data:
        return Keys(shape_of(config.level), config.split, config.seed, config.count or ENDLESS)
    path = Path(config.data)
    files = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"{path} holds no .txt file of Sokoban levels")
    root = path if path.is_dir() else path.parent
    return [
        Task(key=f"{file.relative_to(root)}#{i}", env="sokoban", params={"path": str(file.absolute()), "index": i})
        for file in files
        for i in range(len(_levels(str(file.absolute()))))
    ]


def open_level(task: Task) -> Level:
    """The level of a task."""
    if "path" in task.params:
        level: Level = _levels(task.params["path"])[task.params["index"]]
        return level
    return make_level(task.key)


@functools.lru_cache(maxsize=64)
def _levels(path: str) -> list[Level]:
    return read_levels(Path(path))


def find(config: Config, key: str) -> Task:
    """The task of a key."""
    if key.startswith(f"{BENCHMARK}/"):
        return task_of(key)
    for task in tasks(config) if config.data else ():
        if task.key == key:
            return task
    raise ValueError(f"no Sokoban level {key!r}" + ("" if config.data else ": set data= to its file"))


def kind(task: Task) -> str:
    """The shape of a generated level, or the file of a level that was read from a file."""
    return str(parse(task.key)[0]) if task.key.startswith(f"{BENCHMARK}/") else task.key.rpartition("#")[0]


def benchmark(config: Config) -> str:
    """`sokoban-gen` for generated levels, `sokoban-custom` for files."""
    return "sokoban-custom" if config.data else BENCHMARK


def prompt(config: Config) -> VerlAgent | Compact:
    """The prompt: how the environment speaks to a model."""
    if config.prompt == "compact":
        return Compact()
    return (VerlAgent if config.prompt == "verl_agent" else Instruct)(config.moves_per_turn)


def expert(env: Env, name: str, seed: int) -> Expert:
    """The player called `name`; see `agentrl.envs.sokoban.experts`."""
    return make_expert(env, name, seed)
