"""The named players of Sokoban: demonstrators to clone, baselines to compare with.

expert: plays a solution with the fewest moves. After a random move, it searches for a new solution. If the level can no
    longer be solved, or if the search takes too many states, its moves are random.
wander:0.3: the expert, but with this probability it makes a random move that changes something. All its moves are
    cloned.
expert-noisy:0.2: as wander, but with another default probability, and random moves have weight 0 in cloning.
random: makes each of the four moves with the same probability.
"""

from hashlib import sha256
from random import Random
from typing import Protocol, cast

from agentrl.env import Env, Expert, Move
from agentrl.envs.sokoban.rules import MOVES, Room, State, apply, legal
from agentrl.envs.sokoban.solver import TooHard, solve
from agentrl.types import Observation, Task

EXPERTS = ("expert", "wander", "expert-noisy", "random")
_DEFAULTS = {"wander": 0.3, "expert-noisy": 0.2}


class Playing(Protocol):
    """What an expert reads of the environment."""

    room: Room
    state: State


def make_expert(env: Env, name: str, seed: int) -> Expert:
    """The player of that name.

    Raises:
        ValueError: no such player, or its number is no probability.
    """
    base, _, given = name.partition(":")
    if base not in EXPERTS:
        raise ValueError(f"unknown Sokoban player {name!r}: use one of {', '.join(EXPERTS)}")
    try:
        slip = float(given) if given else _DEFAULTS.get(base, 0.0)
    except ValueError:
        slip = -1.0
    if not 0 <= slip <= 1 or (given and base not in _DEFAULTS):
        form = f"{base}:{_DEFAULTS[base]}" if base in _DEFAULTS else base
        more = ", with a probability from 0 to 1" if base in _DEFAULTS else ""
        raise ValueError(f"{name!r} is not a player: write {form}{more}")
    playing = cast(Playing, env)
    if base == "random":
        return Player(playing, seed, slip=1.0, legal_only=False)
    return Player(playing, seed, slip=slip, weight=0.0 if base == "expert-noisy" else 1.0)


class Player:
    """Follows an optimal solution, with slips.

    Args:
        env: the instance it plays.
        seed: the seed of its slips.
        slip: probability of a random move.
        weight: weight of random moves in cloning.
        legal_only: draw random moves among those that change something, if there are any.
    """

    def __init__(
        self, env: Playing, seed: int, *, slip: float = 0.0, weight: float = 1.0, legal_only: bool = True
    ) -> None:
        self.env, self.seed, self.slip, self.weight, self.legal_only = env, seed, slip, weight, legal_only
        self.random = Random(0)
        self.plan: list[str] = []
        self.expected: State | None = None

    def reset(self, task: Task) -> None:
        """Seed the random numbers with the task, and drop the plan of the previous level."""
        name = sha256(f"sokoban\n{self.seed}\n{task.key}".encode()).digest()
        self.random = Random(int.from_bytes(name[:8], "big"))
        self.plan, self.expected = [], None

    def act(self, observation: Observation) -> Move:
        """The next move of a solution, or a slip."""
        if self.slip and self.random.random() < self.slip:
            return Move(self._any(), self.weight)
        state = self.env.state
        if not self.plan or state != self.expected:
            self.plan = self._solution(state)
        if not self.plan:
            return Move(self._any(), self.weight)
        action = self.plan.pop(0)
        self.expected = apply(self.env.room, state, action).state
        return Move(action)

    def _solution(self, state: State) -> list[str]:
        try:
            return solve(self.env.room, state) or []
        except TooHard:
            return []

    def _any(self) -> str:
        options = legal(self.env.room, self.env.state) if self.legal_only else ()
        options = options or tuple(MOVES)
        return options[int(self.random.random() * len(options))]
