"""The named players of the calculator environment: demonstrators to clone, baselines to compare with.

expert: writes the whole expression in one call (with the prompts compact and instruct: one operation per call), then
answers with the result.
stepwise: one operation per call.
hasty:0.3: one operation per call; it forgets each event of the story with probability 0.3.
careless:0.4: as stepwise, but at each step it takes, with probability 0.4, a random action that the compact form would
list.
random: each action that the compact form would list, with the same probability.
All players except random know the events from which the problem was made. No move has the weight 0, so a warm-up clones
mistakes too.
"""

import math
import random

from agentrl.env import Env, Move
from agentrl.envs.calculator.environment import Problems
from agentrl.envs.calculator.problem import NEXT, ordered
from agentrl.envs.calculator.stories import Event, Step, work_out
from agentrl.tool import action as tool_action
from agentrl.types import Observation, Task

EXPERTS = ("expert", "stepwise", "hasty", "careless", "random")
SHARES = {"hasty": 0.3, "careless": 0.4, "random": 1.0}


def make_expert(env: Env, name: str, seed: int) -> "Player":
    """The player of that name.

    Raises:
        ValueError: no such player, or a number that is no probability.
    """
    base, colon, given = name.partition(":")
    if base not in EXPERTS or (colon and base not in ("hasty", "careless")):
        raise ValueError(f"calculator has no expert {name!r}: known are {', '.join(EXPERTS)}")
    assert isinstance(env, Problems)
    compact = env.config.prompt != "chat"
    try:
        share = float(given) if colon else SHARES.get(base, 0.0)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError(f"{name!r} is no player: write {base}:0.3, with a probability from 0 to 1")
    forgets, slips = (share, 0.0) if base == "hasty" else (0.0, share)
    return Player(env, seed, whole=base == "expert" and not compact, forgets=forgets, slips=slips)


class Player:
    """Works through the story's operations; see the docstring of the module."""

    def __init__(self, env: Problems, seed: int, *, whole: bool, forgets: float, slips: float) -> None:
        self._env, self._seed, self._whole, self._forgets, self._slips = env, seed, whole, forgets, slips
        self._rng = random.Random(seed)
        self._left: list[str] = []
        self._plan: list[tuple[int, Step]] = []  # (line of the story that tells of the operation, operation)
        self._answer = ""

    def reset(self, task: Task) -> None:
        """Read the problem."""
        if "events" not in task.params:
            raise ValueError("the calculator's players know generated problems only: unset rows, or evaluate a model")
        self._rng = random.Random(f"{self._seed} {task.key}")
        has, events = int(task.params["has"]), [Event(*event) for event in task.params["events"]]
        kept = [i for i in range(len(events)) if not self._forgets or self._rng.random() >= self._forgets]
        steps, expression = work_out(has, [events[i] for i in kept])
        room = 10**self._env.config.display if self._env.config.display else math.inf
        if any(not 1 <= step.value < room or step.left == step.right for step in steps):
            kept = list(range(len(events)))  # without the forgotten events no valid story is left: forget none
            steps, expression = work_out(has, events)
        lines = [task.params["at"][i] for i in kept for _ in range(1 + events[i].doubles)]
        self._plan, self._left = list(zip(lines, steps, strict=True)), [expression] if self._whole else []
        self._answer = str(steps[-1].value if steps else has)

    def act(self, observation: Observation) -> Move:
        """The next call, or the final answer."""
        instance = self._env.inner.instance
        if self._slips and self._rng.random() < self._slips:
            return Move(self._rng.choice(observation.actions or instance._choices()))
        if self._whole:
            if instance._lines:
                return Move(NEXT)
            return Move(tool_action.call("calculator", expression=self._left.pop()) if self._left else self._final())
        while self._plan:
            line, step = self._plan[0]
            if instance._lines and line > instance._line:
                return Move(NEXT)
            self._plan.pop(0)
            text = ordered(*step, instance._known) if self._env.config.prompt != "chat" else str(step)
            if text not in instance._made:  # a random action may have made this call already
                return Move(tool_action.call("calculator", expression=text))
        return Move(NEXT if instance._lines else self._final())

    def _final(self) -> str:
        return tool_action.answer(self._answer)
