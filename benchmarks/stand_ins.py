"""A run whose engine and learner take time and compute nothing, around the real rollouts and training loops.

The engine answers with random tokens after the time that generation and a tool would take. Lengths of episodes are
log-normal and tool calls have a Pareto tail. An update takes time too. No waiting is real: the clock of the event
loop jumps to the next event, and to the end of an update where the loop waits for one. So times do not depend on the
machine, and the CPU seconds are those of the driver.
"""

import asyncio
import math
import selectors
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from long_tail import WORDS

from agentrl.chat import build_word_tokenizer
from agentrl.model import Weights
from agentrl.noise import fold, uniforms
from agentrl.run import Loop, Metrics, Progress, Rollouts, Run, RunFolder
from agentrl.run.checkpoint import RunState
from agentrl.run.health import Health
from agentrl.run.progress import Now
from agentrl.run.stored_decisions import Decisions
from agentrl.settings import Settings
from agentrl.trainer import Annotated
from agentrl.types import Generation, Request

ENVIRONMENT = str(Path(__file__).with_name("long_tail.py"))


@dataclass(frozen=True, kw_only=True)
class Times:
    """Seconds and lengths of the stand-ins.

    Attributes:
        token_s: seconds per token at `slots` running answers; an answer that runs alone takes 0.7 times as long.
        answer_tokens: mean tokens per answer, uniform between half and one and a half of it.
        turns, spread: median turns per episode and the standard deviation of their logarithm.
        most_turns: largest number of turns of an episode.
        tool_s, tail: seconds of the quickest tool call and the exponent of the Pareto tail; 0 seconds for no tool.
        slots: running answers at which the engine is fully used.
        update_s: seconds of an update.
    """

    token_s: float
    answer_tokens: int = 64
    turns: float = 6.0
    spread: float = 0.8
    most_turns: int = 50
    tool_s: float = 0.0
    tail: float = 1.5
    slots: int = 64
    update_s: float = 0.0

    def length(self, key: tuple[int, ...]) -> int:
        """Turns of the episode of a noise key (seed, stage, iteration, group, copy)."""
        a, b = uniforms(np.full(2, fold(key), np.uint64), np.arange(2))
        normal = math.sqrt(-2 * math.log(a)) * math.cos(2 * math.pi * b)
        return min(self.most_turns, max(1, round(self.turns * math.exp(self.spread * normal))))


class TimedEngine:
    """Answers after the time that generation and a tool call take.

    Attributes:
        busy_s: sum over answers of the seconds that they were generated.
        own_cpu_s: CPU seconds of this stand-in, which a real engine's client would not have.
    """

    name = "timed"

    def __init__(self, times: Times, vocabulary: int) -> None:
        self.times, self.vocabulary = times, vocabulary
        self.version, self.running, self.busy_s, self.own_cpu_s, self.answers = 0, 0, 0.0, 0.0, 0

    def load(self, model: Any, version: int) -> None:
        self.version = version

    def describe(self) -> dict[str, object]:
        return {"engine": self.name}

    def open(self, session: int) -> None: ...

    def fork(self, session: int, of: int, tokens: int) -> None: ...

    def rest(self, session: int) -> None: ...

    def wake(self, session: int) -> None: ...

    def release(self, session: int) -> None: ...

    async def generate(self, request: Request) -> Generation:
        started, times, begun = time.thread_time(), self.times, self.version
        key = request.noise_key
        count = 2 + 2 * times.answer_tokens
        noise = uniforms(np.full(count, fold(key), np.uint64), np.arange(count))
        size = max(1, round(times.answer_tokens * (0.5 + noise[0])))
        done = key[-1] + 1 >= times.length(key[:5])
        seconds = size * times.token_s * (0.7 + 0.3 * min(2.0, self.running / times.slots))
        tool = 0.0 if done else times.tool_s * noise[1] ** (-1 / times.tail)
        self.own_cpu_s += time.thread_time() - started
        self.running += 1
        clock = asyncio.get_running_loop().time
        since = clock()
        try:
            await asyncio.sleep(seconds)
        finally:  # the episode may be cancelled
            self.running -= 1
            self.busy_s += clock() - since
        if tool:
            await asyncio.sleep(tool)
        started = time.thread_time()
        self.answers += 1
        answer = Generation(
            text="done" if done else "go",
            token_ids=(noise[2 : 2 + size] * self.vocabulary).astype(np.int64),
            logprobs=np.log(noise[2 : 2 + size]),
            policy_version=(begun, self.version),
        )
        self.own_cpu_s += time.thread_time() - started
        return answer


class NoModel:
    """Weights of nothing."""

    def eval(self) -> "NoModel":
        return self

    def named_parameters(self) -> list[Any]:
        return []

    def named_buffers(self) -> list[Any]:
        return []


class SkippingSelector(selectors.DefaultSelector):
    """Never waits: time jumps to the next timer."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout
        return ready


class SkippingLoop(Loop):
    """An event loop in which waiting takes no time; `selector.now` is its clock."""

    def __init__(self) -> None:
        super().__init__()
        self._loop.close()
        self.selector = SkippingSelector()
        self._loop = asyncio.SelectorEventLoop(self.selector)
        self._loop.time = lambda: self.selector.now


class TimedRollouts(Rollouts):
    """Rollouts on a clock that skips. They wait for an update when they load its weights.

    Attributes:
        ready_s: when the batch of each iteration was complete.
        learner: whose updates they wait for.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.loop.close()
        self.loop: SkippingLoop = SkippingLoop()
        self.ready_s: dict[int, float] = {}
        self.learner: TimedLearner | None = None

    @property
    def now(self) -> float:
        return self.loop.selector.now

    def batch(self, iteration: int, *episodes: Any, **options: Any) -> Any:
        collected = super().batch(iteration, *episodes, **options)
        self.ready_s[iteration] = self.now
        return collected

    def load(self, weights: Weights, version: int) -> None:
        if self.learner is not None:
            self.loop.selector.now = max(self.now, self.learner.end_s.get(version - 1, 0.0))
        super().load(weights, version)


class TimedLearner:
    """An update begins when its batch is complete and the update before it is done, and takes `update_s`."""

    def __init__(self, rollouts: TimedRollouts, update_s: float) -> None:
        self._rollouts, self._update_s = rollouts, update_s
        self.end_s: dict[int, float] = {}

    def weights(self) -> Weights:
        return Weights({self._rollouts.main.policy: NoModel()})

    def annotate(self, graph: Any) -> Annotated:
        return Annotated(graph, {})

    def improve(self, graph: Any, credit: Any, iteration: int, spent: float = 0.0) -> dict[str, float]:
        begin = max(self._rollouts.ready_s[iteration], self.end_s.get(iteration - 1, 0.0))
        self.end_s[iteration] = begin + self._update_s
        return {"loss": 0.0}


def recipe(folder: Path, name: str, tables: Mapping[str, Mapping[str, Any]]) -> Settings:
    """A run of the long-tailed environment."""
    base: dict[str, dict[str, Any]] = {
        "run": {"name": name, "folder": str(folder), "checkpoint_every": 0, "graphs_every": 0},
        "env": {"name": ENVIRONMENT},
        "eval": {"tasks": 1, "env": {"first": 10_000_000}, "modes": ["greedy"]},
        "model": {"new": {"max_positions": 8192}},
        "warmup": {"updates": 0},
        "engine": {"max_context": 8192, "actions": "free"},
        "limits": {"turns": 50, "turn_tokens": 512},
        "credit": {"name": "grpo"},
        "optim": {"name": "adamw", "lr": 1e-6},
    }
    return Settings({key: {**base.get(key, {}), **tables.get(key, {})} for key in {**base, **tables}})


def open_stand_in(settings: Settings, times: Times) -> Run:
    """The run, with stand-ins for its engine and its learner."""
    tokenizer = build_word_tokenizer([" ".join(WORDS), "go done"])
    rollouts = TimedRollouts(settings)
    policy = rollouts.main.policy
    rollouts.inference.speak({policy: tokenizer})
    rollouts.inference.engines = {policy: TimedEngine(times, len(tokenizer))}
    folder = RunFolder(settings.folder, complete=lambda old: old)
    folder.open(settings.shown(), resume=False)
    run = Run(
        settings=settings,
        folder=folder,
        state=RunState(stage="train"),
        metrics=Metrics(folder),
        health=Health([]),
        decisions=Decisions(folder, settings.env.hooks.situation, lambda _: None),
        teacher=None,
        progress=Progress(quiet=True),
        now=Now(folder.path / "now.json"),
        rollouts=rollouts,
        policies=TimedLearner(rollouts, times.update_s),
    )
    run.sync(0)
    rollouts.learner = run.policies
    return run
