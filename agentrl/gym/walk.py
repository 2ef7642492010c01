"""Random walks through an environment's tasks, and their transcripts, which checks compare."""

import functools
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentrl.config import Entry, resolve
from agentrl.env import Delegates, Env, EnvironmentFile, checked_observation, checked_result, deadline
from agentrl.tool import random_action
from agentrl.types import AgentCall, AgentReply, EnvFault, Observation, Status, StepResult, Task

CALL_S = 30.0  # seconds; a call of the environment that takes longer counts as hanging
GARBAGE = (
    "",
    " ",
    "\n",
    "no such action",
    "go to \x00",
    "Ünïcode 漢字 \N{SLIGHTLY SMILING FACE}",
    '{"tool": ',
    "<action>look</action>",
    "a" * 10_000,
)


def timed(call: Callable[[], Any]) -> Any:
    """The value of a call, or EnvFault if the call hangs."""
    with deadline(CALL_S):
        return call()


EXAMPLE = re.compile(r"\[[^\[\]\n]{1,30}\]")  # how a text shows an action's form, such as [guess] or [3 4]
SENDER = re.compile(r"\[(GAME|Player \d+)\]")  # the names of senders before messages of games are no actions
EXAMPLES = 0.9  # share of the random actions that are such examples, if the observations so far show any


@dataclass
class Walk:
    """A random walk through one task; equal seeds give equal walks."""

    entry: Entry[EnvironmentFile]
    task: Task
    seed: int
    steps: int
    env: Env = field(init=False)
    observations: list[Observation] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    results: list[StepResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.env = timed(lambda: self.entry.hooks.make(self.entry.config))

    def reset(self) -> Observation:
        """Start the task."""
        self.observations, self.actions, self.results = [], [], []
        self.observations.append(checked_observation(timed(lambda: self.env.reset(self.task))))
        return self.observations[0]

    def step(self, action: str) -> StepResult:
        """Carry out one action.

        An errand for an agent that plays one turn, such as the move of an opponent, gets a random action as its reply.
        No agent plays here, so every other errand gets the reply of a failed episode (`ENV_ERROR`).
        """
        result = checked_result(timed(lambda: self.env.step(action)))
        while errands := result.info.get("errands"):
            if not isinstance(self.env, Delegates):
                raise EnvFault(
                    "the environment sends errands and has no method `returned(replies)` to take their replies"
                )
            replies = tuple(self._reply(errand) for errand in errands)
            result = checked_result(timed(functools.partial(self.env.returned, replies)))
        self.actions.append(action)
        self.results.append(result)
        self.observations.append(result.observation)
        return result

    def run(self, steps: int | None = None) -> "Walk":
        """Reset, then take random actions until the episode ends, at most `steps`.

        Each action is one of the listed actions. If the environment lists no actions, it is a random tool call. If
        there are no tools either, it is a text in square brackets of the observations so far, or a text of `GARBAGE`.
        """
        self.reset()
        rng = random.Random(self.seed)
        for _ in range(self.steps if steps is None else steps):
            result = self.step(self._random_action(rng))
            if result.terminated or result.truncated:
                break
        return self

    def _random_action(self, rng: random.Random) -> str:
        observation = self.observations[-1]
        if observation.tools and not observation.actions:
            return random_action(observation, np.random.default_rng(rng.getrandbits(32)))
        return rng.choice(observation.actions) if observation.actions else self._random_text(rng)

    def _random_text(self, rng: random.Random) -> str:
        return _random_text("\n".join(f"{one.task}\n{one.text}" for one in self.observations), rng)

    def _reply(self, errand: AgentCall) -> AgentReply:
        """See `step`. The random action depends on the seed, the number of steps so far and what the agent sees."""
        hooks = self.entry.hooks
        section = {} if hooks.agents is None else hooks.agents(self.entry.config).get(errand.agent, {})
        if "env" not in section or section.get("limits", {}).get("turns") != 1:
            return AgentReply("", Status.ENV_ERROR)
        agent = resolve(EnvironmentFile, section["env"], "env")
        env = timed(lambda: agent.hooks.make(agent.config))
        seen = checked_observation(timed(lambda: env.reset(errand.task)))
        rng = random.Random(f"{self.seed}/{len(self.actions)}/{seen.text}")
        action = rng.choice(seen.actions) if seen.actions else _random_text(seen.text, rng)
        last = checked_result(timed(lambda: env.step(action)))
        said = last.info.get("answer")
        env.close()
        return AgentReply(said if isinstance(said, str) else action, Status.DONE, last.reward, last.info)

    def again(self, actions: Sequence[str]) -> "Walk":
        """Reset, then carry out these actions."""
        self.reset()
        for action in actions:
            self.step(action)
        return self

    def transcript(self) -> list[str]:
        """The first observation and every result as texts, for comparisons."""
        return [repr(self.observations[0]), *map(line, self.results)]


def _random_text(seen: str, rng: random.Random) -> str:
    """A text in square brackets that was seen, or a text of `GARBAGE`."""
    examples = sorted(set(EXAMPLE.findall(SENDER.sub("", seen))))
    return rng.choice(examples) if examples and rng.random() < EXAMPLES else rng.choice(GARBAGE)


def line(result: StepResult) -> str:
    """A result as a text for comparisons; the order of the entries of `info` does not matter."""
    return repr((*result[:4], sorted(result.info.items())))


def difference(a: Sequence[str], b: Sequence[str]) -> str:
    """The first step at which two transcripts differ, and both texts, shortened."""
    step, x, y = next((i, x, y) for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
    at = next((i for i, (p, q) in enumerate(zip(x, y, strict=False)) if p != q), min(len(x), len(y)))
    return f"at step {step}: ...{x[max(0, at - 20) : at + 40]!r} and ...{y[max(0, at - 20) : at + 40]!r}"
