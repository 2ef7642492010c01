"""Games of the package TextArena (docs/foreign.md): puzzles for one player, and games of several by self-play.

The agent `main` is one player. In every turn of another player, the game calls the agent `opponent`, which sees what
the other player sees and writes the other player's move. By default the policy of `main` also plays `opponent`; it is
not trained on the turns of `opponent`. The game gives the rewards: 1, 0 or -1 in games of two players, and a
share from 0 to 1 in puzzles. `python` is the Python that has the package.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from agentrl.env import Bare, Env, Prompt
from agentrl.envs._foreign import Options, program
from agentrl.envs.textarena.environment import OPPONENT, Seat, TextArena
from agentrl.foreign import ForeignProgram
from agentrl.types import Task

WAITS = True  # a step waits for the process that plays
ADAPTS = True
HELD_OUT = 1 << 30  # first seed of the test split


class Config(Options, frozen=True):
    """Which game.

    Attributes:
        game: the package's id of a game, such as TicTacToe-v0.
        players: number of players of the game; 0: two if the game can be started with two, else one, else the smallest
            number up to eight.
        seat: which player the agent `main` is. first: Player 0; second: Player 1; both: Player 0 in one task, Player 1
            in the next.
        count: number of tasks of the split, one per seed.
        split: train and test have different seeds.
        called: an episode is one turn of the agent `opponent`. The environment sets this option; leave it out of a
            recipe.
    """

    game: str = "TicTacToe-v0"
    players: int = Field(0, ge=0, le=20)
    seat: Literal["first", "second", "both"] = "first"
    count: int = Field(1000, ge=1, le=HELD_OUT)
    split: Literal["train", "test"] = "train"
    called: bool = False


def _program(config: Config) -> ForeignProgram:
    return program(__file__, config, config.model_dump(include={"game", "players"}))


@functools.lru_cache(maxsize=64)
def _players(examined: ForeignProgram) -> int:
    return int(examined.ask("examine"))


def make(config: Config) -> Env:
    """An instance of the game, or of one turn of `opponent`; ValueError if the package or the game is missing."""
    return Seat() if config.called else TextArena(_program(config))


def tasks(config: Config) -> Sequence[Task]:
    """One task per seed; ValueError if the game cannot be started."""
    if config.called:
        return [Task(key="turn", env="textarena", params={"shown": {"text": "Your move."}})]
    players = _players(_program(config))
    if players == 1 and config.seat != "first":
        raise ValueError(f"env.seat = {config.seat!r}: {config.game} has one player: leave seat out")
    first = HELD_OUT if config.split == "test" else 0
    seats = {"first": (0, 0), "second": (1, 1), "both": (0, 1)}[config.seat]
    return [
        Task(key=f"{config.game}/{seed}", env="textarena", seed=seed, params={"seat": seats[seed % 2]})
        for seed in range(first, first + config.count)
    ]


def agents(config: Config) -> Mapping[str, Mapping[str, Any]]:
    """The agent `opponent`, which plays the other players; none if the game has one player.

    Its turns are in the graph. By default no policy is trained on them.
    """
    if config.called or _players(_program(config)) == 1:
        return {}
    turn = {"name": "textarena", "called": True}
    return {OPPONENT: {"env": turn, "trained": False, "limits": {"turns": 1}}}


def kind(task: Task) -> str:
    """The game."""
    return task.key.rpartition("/")[0]


def benchmark(config: Config) -> str:
    """The name under which results are reported."""
    return f"textarena {config.game}"


def facts(config: Config) -> dict[str, str]:
    """The versions of the packages that played."""
    return {} if config.called else _program(config).versions()


def prompt(config: Config) -> Prompt:
    """The messages of the game."""
    return Bare()
