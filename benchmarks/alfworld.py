"""The native ALFWorld engine against genuine TextWorld on the same games and the same walks, in one run.

    python benchmarks/alfworld.py [--json] [--games DIR] [--count 6] [--steps 25]

CPU time of one thread. The games are generated games of the full level, or those of a folder. Load makes a playable
game of a file's contents (native: compiles it). Reset and step are calls of the engine, without the environment around
it. The answers of both engines are compared at every step, so that both are known to do the same work. Memory is that
of one more environment of a game that is already compiled, after a walk.
"""

import argparse
import json
import platform
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from agentrl.envs.alfworld import generate
from agentrl.envs.alfworld.compiler import compile_game
from agentrl.envs.alfworld.data import list_games, read_game
from agentrl.envs.alfworld.engine import Engine
from agentrl.envs.alfworld.env import AlfworldEnv
from agentrl.envs.alfworld.game import Game
from agentrl.envs.alfworld.tasks import GeneratedTasks, Opener
from agentrl.envs.alfworld.textworld_backend import Genuine

# One call of the native engine is too short to be timed, so several calls are timed together.
REPEATS = 50


class Times(NamedTuple):
    """CPU milliseconds per call."""

    load: float
    reset: float
    step: float


def cpu_ms(work: Callable[[], object], repeats: int = 1) -> float:
    """CPU milliseconds of one call of `work`."""
    begin = time.process_time()
    for _ in range(repeats):
        work()
    return (time.process_time() - begin) / repeats * 1e3


def walk(game: Game, steps: int) -> list[str]:
    """Random admissible commands: each is with probability 0.5 one that is not `go to ...`, else any of them."""
    engine, rng, commands = Engine(game), random.Random(0), []
    for _ in range(steps):
        admissible = engine.admissible()
        deeds = [one for one in admissible if not one.startswith("go to ")]
        commands.append(rng.choice(deeds if rng.random() < 0.5 else admissible))
        engine.step(commands[-1])
    return commands


def native_times(data: Mapping[str, Any], commands: list[str]) -> Times:
    """The native engine on a list of commands; admissible commands are listed after each step, as in a rollout."""
    game = compile_game(data, key="benchmark")
    engine = Engine(game)

    def play() -> None:
        engine.reset()
        for command in commands:
            engine.step(command)
            engine.admissible()

    play()
    load = cpu_ms(lambda: compile_game(data, key="benchmark"), REPEATS // 5)
    reset = cpu_ms(engine.reset, REPEATS)
    return Times(load, reset, (cpu_ms(play, REPEATS) - reset) / len(commands))


def genuine_times(data: Mapping[str, Any], commands: list[str]) -> Times:
    """The genuine engine on the same commands; its answers are compared with the native ones, which is not timed."""
    engine = Engine(compile_game(data, key="benchmark"))
    begin = time.process_time()
    genuine = Genuine(data, "benchmark")
    load = (time.process_time() - begin) * 1e3
    engine.reset()
    reset = cpu_ms(genuine.reset)
    step = 0.0
    for command in commands:
        begin = time.process_time()
        text = genuine.step(command)
        admissible = genuine.admissible()
        step += time.process_time() - begin
        if (engine.step(command), engine.admissible()) != (text, admissible):
            raise SystemExit(f"the engines differ after {command!r}: run `agentrl check alfworld` on this game")
    genuine.close()
    return Times(load, reset, step / len(commands) * 1e3)


def memory_per_env(count: int = 200) -> float:
    """KiB that one more environment of an already compiled game takes after ten steps."""
    task = GeneratedTasks(generate.Keys("full"))[0]

    def played() -> AlfworldEnv:
        env = AlfworldEnv(Opener("native"))
        observation = env.reset(task)
        rng = random.Random(0)
        for _ in range(10):
            observation = env.step(rng.choice(observation.actions)).observation
        return env

    kept = [played()]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept += [played() for _ in range(count)]
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return used / count / 1024


def games(folder: Path | None, count: int) -> list[Mapping[str, Any]]:
    """Contents of the games to play."""
    if folder is None:
        return [generate.make(key).data for key in islice(generate.Keys("full", "train"), count)]
    return [read_game(file.path) for file in list_games(str(folder)).files[:count]]


def measure(folder: Path | None, count: int, steps: int) -> dict[str, Any]:
    """Medians over the games, and their ratios."""
    natives, genuines = [], []
    for data in games(folder, count):
        commands = walk(compile_game(data, key="benchmark"), steps)
        natives.append(native_times(data, commands))
        genuines.append(genuine_times(data, commands))
    median = {
        name: Times(*(statistics.median(column) for column in zip(*rows, strict=True)))
        for name, rows in (("native", natives), ("genuine", genuines))
    }
    ratio = Times(*(theirs / ours for ours, theirs in zip(median["native"], median["genuine"], strict=True)))
    return {
        "games": len(natives),
        "steps": steps,
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "native_ms": median["native"]._asdict(),
        "genuine_ms": median["genuine"]._asdict(),
        "ratio": ratio._asdict(),
        "kib_per_env": memory_per_env(),
    }


def table(found: Mapping[str, Any]) -> str:
    """The result as a table."""
    rows = [f"{'CPU ms per call':17}{'load':>10}{'reset':>10}{'step':>10}"]
    for name, digits in (("native_ms", 4), ("genuine_ms", 1), ("ratio", 0)):
        rows.append(f"{name.removesuffix('_ms'):17}" + "".join(f"{one:10.{digits}f}" for one in found[name].values()))
    return "\n".join([*rows, f"one more environment: {found['kib_per_env']:.1f} KiB"])


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--games", type=Path, help="a folder of game files; default: generated games")
    parser.add_argument("--count", type=int, default=6, help="largest number of games")
    parser.add_argument("--steps", type=int, default=25, help="steps of each walk")
    given = parser.parse_args()
    found = measure(given.games, given.count, given.steps)
    print(json.dumps(found) if given.json else table(found))


if __name__ == "__main__":
    main()
