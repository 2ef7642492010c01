"""From a configuration to tasks, and from a task to a game in play."""

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from agentrl.envs.alfworld import generate
from agentrl.envs.alfworld.data import (
    PUBLISHED,
    GameFile,
    Listing,
    list_games,
    list_split,
    load_game,
    read_game,
    split_name,
)
from agentrl.envs.alfworld.engine import Engine
from agentrl.envs.alfworld.env import Player, StateKey
from agentrl.envs.alfworld.formats import published
from agentrl.envs.alfworld.game import TASK_TYPES, Game
from agentrl.envs.alfworld.naming import names_at
from agentrl.envs.alfworld.pddl import NotNative
from agentrl.envs.alfworld.textworld_backend import Genuine
from agentrl.types import Task

ENDLESS = 1 << 40  # length of an endless list of generated games; no list in memory is as long

EngineName = Literal["auto", "native", "textworld"]


class Config(BaseModel, frozen=True, extra="forbid"):
    """Options of ALFWorld.

    Attributes:
        source: where games come from: `generated` on the spot (the default), `data` (the published files),
            `games` (files of your own). A recipe that gives `data` or `games` need not set `source`.
        data: folder of the published data, or of one split; if it is empty and source = "data", $ALFWORLD_DATA.
        games: a game file, a folder of games, or a manifest: a text file with one relative path per line.
        split: train, valid_seen (eval_in_distribution) or valid_unseen (eval_out_of_distribution). Generated games of
            `valid_unseen` are in other scenes than those of `train`. Files of your own have no splits.
        task_types: which of the six task types to play; empty plays all types of the level or of the files.
        level: difficulty of generated games: small, medium or full.
        seed: seed of generated games; another seed gives other games.
        count: number of generated games; None for an endless list.
        game_engine: `native`; `textworld`, the genuine engine, a thousand times slower; or `auto`, which plays a game
            by the native engine if possible, and otherwise by textworld, with a warning.
        trust: let textworld play game files whose domain and grammar are not the published ones. Textworld evaluates
            Python expressions in a file's grammar, so such a file runs code as the user. Set it only for files from
            people whom you trust.
        state_key: what identifies a state. `facts`: what the agent can see (the receptacles at its place with their
            doors and visible contents, the held object and its condition); `observation`: the game's last text and
            the admissible actions; `feedback`: the game's last text alone.
        prompt: for language models `verl_agent` (the structure of verl-agent's published prompt), `instruct` (few
            tokens) or `instruct_listed` (few tokens, and the admissible actions); `compact` for small models; `terse`
            for models that have never read English.
        word_order: order of the words in an answer of the prompts `compact` and `terse`. `verb_first`: as the game's
            commands are; `object_first`: a `take` or `move` states first the object or place that it is about ("book 1
            from drawer 3 take", "desk 1 move book 1"). With engine.actions = "admissible" such an answer can begin only
            with the name of an object or place that is here, so the policy need not compare the names itself. The
            game's commands and the stored actions stay the same.
        require_admissible: an answer whose action is not admissible is invalid.
        max_steps: steps until an episode is truncated; None: no limit.
        success_reward: reward of winning; published work uses 10.
        subgoal_reward: reward of each sub-goal of the task type (take the object, clean, heat or cool it, reach where
            it belongs, ...), paid once per episode in addition to `success_reward`. 0: none.
        alias_put: also accept "put X in/on Y" where a game says "move X to Y".
    """

    source: Literal["generated", "data", "games"] = "generated"
    data: str = ""
    games: str = ""
    split: str = "train"
    task_types: tuple[str, ...] = ()
    level: str = "small"
    seed: int = Field(default=0, ge=0)
    count: int | None = Field(default=None, ge=1)
    game_engine: EngineName = "auto"
    trust: bool = False
    state_key: StateKey = "facts"
    prompt: Literal["verl_agent", "instruct", "instruct_listed", "compact", "terse"] = "verl_agent"
    word_order: Literal["verb_first", "object_first"] = "verb_first"
    require_admissible: bool = False
    max_steps: int | None = Field(default=50, ge=1)
    success_reward: float = 1.0
    subgoal_reward: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    alias_put: bool = False

    @model_validator(mode="before")
    @classmethod
    def _infer_source(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "source" in given:
            return given
        named = [name for name in ("games", "data") if given.get(name)]
        return {**given, "source": named[0]} if named else given

    @model_validator(mode="after")
    def _one_source(self) -> "Config":
        for name in ("games", "data"):
            if getattr(self, name) and self.source != name:
                raise ValueError(
                    f"{name} = {getattr(self, name)!r} is of no use with source = {self.source!r}: drop one"
                )
        if self.source == "games" and not self.games:
            raise ValueError('source = "games" needs games = a game file, a folder or a manifest')
        if self.word_order == "object_first" and self.prompt not in ("compact", "terse"):
            raise ValueError(
                f'word_order = "object_first" needs prompt = "compact" or "terse": {self.prompt} asks for the command'
            )
        unknown = [one for one in self.task_types if one not in TASK_TYPES]
        if unknown:
            raise ValueError(f"unknown ALFWorld task type {unknown[0]!r}: use {', '.join(TASK_TYPES)}")
        return self


@dataclass(frozen=True)
class Opener:
    """Opens a task's game with the engine asked for; see `Config.game_engine` and `Config.trust`."""

    engine: EngineName = "auto"
    trust: bool = False

    def __call__(self, task: Task) -> Player:
        """The game, not yet reset.

        Raises:
            ValueError: the game cannot be read; or the native engine does not play it, and `engine` or `trust` does not
                allow textworld.
        """
        if self.engine == "textworld":
            return self._genuine(task)
        try:
            return Engine(game_of(task))
        except NotNative as error:
            if self.engine == "native":
                raise ValueError(
                    f"the native engine does not play {error}: set game_engine=textworld "
                    "(pip install 'agentrl-stepgraph[textworld]')"
                ) from None
            genuine = self._genuine(task)
            warnings.warn(f"played by the much slower textworld engine: {error}", stacklevel=2)
            return genuine

    def _genuine(self, task: Task) -> Genuine:
        """A game in textworld, which evaluates the expressions in its file; those of published files are bare names."""
        data = _data(task)
        if not self.trust and not published(data):
            where = task.params.get("path", task.key)
            raise ValueError(
                f"the rules of the game file {where} are none of the published ones, and the textworld engine would "
                "run the Python expressions in them: set trust=true if you trust its makers, or leave the game out"
            )
        return Genuine(data, task.key)


def game_of(task: Task) -> Game:
    """The compiled game of a task.

    Raises:
        NotNative: the native engine does not play it.
        ValueError: it cannot be read.
    """
    return load_game(task.params["path"]) if "path" in task.params else generate.make_game(task.key)


def _data(task: Task) -> Mapping[str, Any]:
    if "path" in task.params:
        return read_game(Path(task.params["path"]))
    return generate.make(task.key).data


class GeneratedTasks(Sequence[Task]):
    """Tasks of generated games, each made when it is asked for."""

    def __init__(self, keys: generate.Keys) -> None:
        self.keys = keys

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [_generated(key) for key in self.keys[index]]
        return _generated(self.keys[index])


def _generated(key: str) -> Task:
    return Task(key=key, env="alfworld", params={"kind": generate.parse_key(key).task})


def _from_file(file: GameFile) -> Task:
    return Task(key=file.key, env="alfworld", params={"path": str(file.path.absolute()), "kind": file.kind})


def tasks(config: Config) -> Sequence[Task]:
    """The tasks of a configuration; what the official filters leave out is printed on stderr.

    Raises:
        ValueError: the games cannot be found, or none are left.
    """
    if config.source == "generated":
        size = config.count or ENDLESS
        keys = generate.Keys(
            config.level, split_name(config.split), tasks=config.task_types, seed=config.seed, size=size
        )
        return GeneratedTasks(keys)
    found = listing(config)
    if found.rejected or found.split:
        _tell(found.report())
    files = [file for file in found.files if not config.task_types or file.kind in config.task_types]
    if not files:
        raise ValueError(f"no ALFWorld games to play: {found.report()}")
    return [_from_file(file) for file in files]


def listing(config: Config) -> Listing:
    """The game files of a configuration that has files."""
    return list_games(config.games) if config.source == "games" else list_split(config.data, config.split)


@lru_cache(maxsize=64)
def _tell(report: str) -> None:
    print(report, file=sys.stderr)


def find(config: Config, key: str) -> Task:
    """The task of a key; a published game's key tells its split.

    Raises:
        ValueError: no such game.
    """
    if generate.is_generated(key):
        generate.parse_key(key)
        return _generated(key)
    split = key.partition("/")[0]
    if config.source == "generated":
        raise ValueError(f"{key!r} is not a generated game: set data= or games= to where it lies")
    found = list_split(config.data, split) if config.source == "data" and split in PUBLISHED else listing(config)
    for file in found.files:
        if file.key == key:
            return _from_file(file)
    raise ValueError(f"no game {key!r} in {found.where}")


def played(config: Config) -> str:
    """The kind of games that a configuration plays, in words for people."""
    if config.source == "generated":
        return f"generated games, level {config.level}; for the published games: source=data"
    return f"games of {config.games}" if config.source == "games" else "published games"


def kind(task: Task) -> str:
    """The task type."""
    return str(task.params.get("kind") or "other")


def benchmark(config: Config) -> str:
    """`alfworld` for a complete published split, `alfworld-gen` for generated games; alfworld-incomplete for a part of
    a split, alfworld-custom for other files."""
    if config.source == "generated":
        return generate.BENCHMARK
    if config.source == "games":
        return "alfworld-custom"
    found = list_split(config.data, config.split)
    if len(found.files) == found.expected:
        return "alfworld"
    return f"alfworld-incomplete ({len(found.files)} of {found.expected})"


def entities(config: Config) -> list[str]:
    """Names of every object and receptacle that the games of a configuration may hold ("mug 2").

    The tokenizer of a small model has one token for each name. Of generated games, the names are those of all scenes;
    of game files, those in the files.
    """
    if config.source == "generated":
        return sorted(names_at(config.level))
    names: set[str] = set()
    for file in listing(config).files:
        game = load_game(str(file.path))
        names.update(item.name for item in game.objects)
        names.update(receptacle.name for receptacle in game.receptacles)
    return sorted(names)
