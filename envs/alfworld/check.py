"""Plays the same walks on the native and the genuine engine, and reports the first difference of each walk."""

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentrl.envs.alfworld.compiler import compile_game
from agentrl.envs.alfworld.data import list_games, read_game
from agentrl.envs.alfworld.engine import Engine
from agentrl.envs.alfworld.oracle import plan
from agentrl.envs.alfworld.pddl import NotNative
from agentrl.envs.alfworld.textworld_backend import Genuine

STEPS = 40
_SENSELESS = (
    "",
    "   ",
    "LOOK",
    "go to",
    "go to nowhere 1",
    "take",
    "put",
    "examine",
    "look around",
    "move it",
)


class Difference(NamedTuple):
    """The first difference of two engines: after `command` they disagree about `what`."""

    game: str
    step: int
    command: str
    what: str
    native: Any
    genuine: Any

    def __str__(self) -> str:
        return (
            f"{self.game}, step {self.step}, after {self.command!r}: {self.what}\n"
            f"  native:  {self.native!r}\n  genuine: {self.genuine!r}"
        )


class Outcome(NamedTuple):
    """Number of steps of a walk, number of steps after which the goal held, and the first difference or None."""

    steps: int
    won: int
    difference: Difference | None


def lockstep(native: Engine, genuine: Genuine, seed: int, *, steps: int = STEPS, expert: bool = False) -> Outcome:
    """One walk of both engines from the start of a game.

    Args:
        native: the engine to be judged.
        genuine: the reference, of the same game.
        seed: seed of the walk's random commands.
        steps: number of commands; the walk ends earlier if the engines differ.
        expert: start with the commands of the oracle's plan, if it has one, and go on with random commands.
    """
    difference = _difference(native, genuine, 0, "reset", native.reset(), genuine.reset())
    won = 0
    commands = _commands(native, random.Random(seed), expert)
    for step in range(1, steps + 1):
        if difference:
            return Outcome(step - 1, won, difference)
        command = next(commands)
        difference = _difference(native, genuine, step, command, native.step(command), genuine.step(command))
        won += native.won
    return Outcome(steps, won, difference)


def _difference(
    native: Engine, genuine: Genuine, step: int, command: str, text: str, reference: str
) -> Difference | None:
    pairs = {
        "observation": (text, reference),
        "admissible commands": (native.admissible(), genuine.admissible()),
        "won": (native.won, genuine.won),
        "facts": (native.facts(), genuine.facts()),
    }
    for what, (ours, theirs) in pairs.items():
        if ours != theirs:
            return Difference(native.game.key, step, command, what, ours, theirs)
    return None


def _commands(native: Engine, rng: random.Random, expert: bool) -> Iterator[str]:
    """Commands without end, each drawn for the state that the native engine is in at that moment."""
    if expert and native.game.kind:
        yield from plan(native.game, native.state) or []
    while True:
        yield _wander(native.admissible(), rng)


def _wander(admissible: Sequence[str], rng: random.Random) -> str:
    """A random command: often one that acts on something, sometimes with blanks around it, sometimes nonsense."""
    luck = rng.random()
    if luck < 0.06:
        return rng.choice(_SENSELESS)
    deeds = [one for one in admissible if one.split(" ", 1)[0] not in ("go", "look", "help", "inventory", "examine")]
    command = rng.choice(deeds if deeds and luck < 0.55 else admissible)
    return f"  {command}\n" if luck > 0.95 else command


def check_game(data: Mapping[str, Any], key: str, walks: int, seed: int) -> list[Outcome]:
    """Walks of one game, every other one along the oracle's plan.

    Raises:
        NotNative: the native engine does not play the game.
    """
    native = Engine(compile_game(data, key=key))
    genuine = Genuine(data, key)
    try:
        return [lockstep(native, genuine, seed + walk, expert=walk % 2 == 0) for walk in range(walks)]
    finally:
        genuine.close()


def check(games: Path, walks: int, seed: int) -> int:
    """Compare the engines over every game that `games` names, and print what was found.

    Args:
        games: a folder, a manifest or a game file.
        walks: number of walks per game. A walk has 40 steps, which take the genuine engine about 3 s.
        seed: seed of the first walk of each game; each further walk of the game has the next higher seed.

    Returns:
        0 if the engines agree in all walks, 1 if they differ in a walk or no game could be compared.
    """
    files = list_games(str(games)).files
    steps = wins = compared = 0
    foreign: list[str] = []
    differences: list[Difference] = []
    for number, file in enumerate(files, 1):
        try:
            outcomes = check_game(read_game(file.path), file.key, walks, seed)
        except NotNative as error:
            foreign.append(str(error))
            continue
        compared += 1
        steps += sum(one.steps for one in outcomes)
        wins += any(one.won for one in outcomes)
        differences += [one.difference for one in outcomes if one.difference]
        print(
            f"{number}/{len(files)} {file.key}: {len(differences)} differences so far",
            file=sys.stderr,
            flush=True,
        )
    for one in (*foreign, *differences):
        print(one)
    print(
        f"{compared} of {len(files)} games compared, {wins} won, {steps} steps: "
        f"{len(differences)} differences; {len(foreign)} games are left to textworld for their rules"
    )
    return 1 if differences or not compared else 0
