"""Generated ALFWorld games: how fast they are made, and how often each named player wins them.

    python benchmarks/alfworld_games.py [--games 200] [--json]

Prints three tables: making games (CPU ms per game, one thread); players by level and task type (share of games won,
mean steps of the games won, at most 50 steps); and demonstrators on the small level, by step limit.
"""

import argparse
import json
import platform
import time
from statistics import fmean
from typing import NamedTuple

from agentrl.envs.alfworld.engine import Engine
from agentrl.envs.alfworld.env import AlfworldEnv
from agentrl.envs.alfworld.experts import make_expert
from agentrl.envs.alfworld.generate import Keys, make, make_game
from agentrl.envs.alfworld.levels import LEVELS, table
from agentrl.types import Task

LIMITS = (10, 15, 20, 30)
DEMONSTRATORS = ("expert", "expert-noisy", "wander", "wander:0.7,0.3", "wander:0.8,0.4", "random")


class Score(NamedTuple):
    """Share won, mean steps of wins (0 if none), CPU ms per action of the player, episodes per CPU second."""

    won: float
    steps: float
    act_ms: float
    episodes_per_s: float


def play(name: str, keys: list[str], limit: int, seed: int = 0) -> Score:
    """Play every game once."""
    for key in keys:
        make_game(key)
    env = AlfworldEnv(lambda task: Engine(make_game(task.key)), max_steps=limit)
    expert = make_expert(env, name, seed)
    steps, acting, acts, begun = [], 0.0, 0, time.process_time()
    for key in keys:
        task, over = Task(key=key, env="alfworld"), False
        observation = env.reset(task)
        expert.reset(task)
        while not over:
            start = time.process_time()
            action = expert.act(observation).action
            acting += time.process_time() - start
            acts += 1
            observation, _, won, truncated, info = env.step(action)
            over = won or truncated
        steps += [info["steps"]] if won else []
    spent = time.process_time() - begun
    return Score(len(steps) / len(keys), fmean(steps or [0]), 1e3 * acting / acts, len(keys) / spent)


def making(games: int) -> list[dict[str, object]]:
    """CPU ms to make a game (room, text, compilation, oracle's plan), and share of games that kept their first room."""
    rows = []
    for level in LEVELS:
        keys = Keys(level, "train", seed=1)[:games]
        make(keys[0])
        start = time.process_time()
        made = [make(key) for key in keys]
        spent = (time.process_time() - start) / games
        plan = fmean(len(one.data["walkthrough"]) for one in made)
        first = sum(not one.rejected for one in made) / games
        rows.append({"level": level, "ms": 1e3 * spent, "games_per_s": 1 / spent, "first_room": first, "plan": plan})
    return rows


def players(games: int) -> list[dict[str, object]]:
    """The expert and the oracle on every task type, in unseen scenes."""
    rows = []
    for level in LEVELS.values():
        for task in level.kinds:
            keys = Keys(level.name, "valid_unseen", tasks=[task], seed=2)[:games]
            for name in ("expert", "oracle"):
                score = play(name, keys, 50)._asdict()
                rows.append({"level": level.name, "task": task, "player": name, "games": games, **score})
    return rows


def demonstrators(games: int) -> list[dict[str, object]]:
    """Share won on the small level in training scenes, by step limit."""
    keys = Keys("small", "train", seed=3)[:games]
    return [
        {"player": name, "games": games, **{str(limit): play(name, keys, limit).won for limit in LIMITS}}
        for name in DEMONSTRATORS
    ]


def show(title: str, rows: list[dict[str, object]]) -> None:
    """Print rows under their names."""
    print(f"\n{title}")
    cells = [list(rows[0])] + [
        [f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=200, help="games per row of a table")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    given = parser.parse_args()
    found = {
        "making": making(given.games),
        "players": players(given.games),
        "demonstrators": demonstrators(given.games),
    }
    if given.json:
        print(json.dumps(found))
        return
    print(f"Python {platform.python_version()}, {platform.machine()}; CPU time, one thread\n\n{table()}")
    show("making games", found["making"])
    show("players in unseen scenes, 50 steps", found["players"])
    show("share won on the small level, by step limit", found["demonstrators"])


if __name__ == "__main__":
    main()
