"""Plays random and hostile actions against real environments in this process.

Half of the answers pass through the environment's `parse` and then `step`, as answers of a model do; the other half go
to `step` unchanged. Neither may raise an exception, what `step` returns must pass the core's checks, and no action may
take longer than BOUND_S seconds of CPU time. Otherwise an agent could break its environment, so that an episode that it
loses does not count, or could keep the environment busy and stop the trainer.
"""

import math
import resource
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from agentrl.config import Entry, resolve
from agentrl.env import EnvironmentFile, Limits, prompt_of, tasks_of
from agentrl.env.pool import Slot
from agentrl.types import Observation
from benchmarks.reliability import hostile

BOUND_S = 1.0  # CPU seconds of one action; the longest have some six million characters
TURNS = 40  # largest number of turns of an episode
MOST_TOLD = 20  # largest number of sentences in `lost` about one environment
ENVIRONMENTS: Mapping[str, Mapping[str, Any]] = {
    "alfworld": {"name": "alfworld", "subgoal_reward": 0.1},
    "webshop": {"name": "webshop", "num_products": 1000},
    "sokoban": {"name": "sokoban", "moves_per_turn": 3},
    "calculator": {"name": "calculator"},
    "calculator, compact": {"name": "calculator", "prompt": "compact", "show": "lines"},
    "search_qa": {"name": "search_qa", "reward": {"em_format": 1.0}},
    "search_qa, compact": {"name": "search_qa", "prompt": "compact"},
    "code_math": {"name": "code_math"},
}
STARTS_PROCESSES = ("code_math",)


class Attack:
    """One environment under attack; the counts that the report holds."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.entry: Entry[EnvironmentFile] = resolve(EnvironmentFile, dict(ENVIRONMENTS[name]), "env")
        self.prompt, self.tasks = prompt_of(self.entry), tasks_of(self.entry)
        make, config = self.entry.hooks.make, self.entry.config
        self.slot = Slot(lambda: make(config), None, math.inf, output_chars=Limits().output_chars)
        self.rng = np.random.default_rng((seed, *name.encode()))
        self.actions = self.episodes = self.rewarded = 0
        self.kinds: Counter[str] = Counter()
        self.cpu_s = self.slowest_s = 0.0
        self.slowest = ""
        self.lost: list[str] = []
        self.kb_before = 0

    def run(self, actions: int, until: float) -> None:
        """Play at most `actions` actions; begin no episode after `until`, a time of `time.monotonic`."""
        while self.actions < actions and time.monotonic() < until:
            self.episode(actions)
            if not self.kb_before and self.actions > actions // 10:  # by now the caches are nearly full
                self.kb_before = peak_kb()

    def episode(self, most: int) -> None:
        """Play one task until it ends or TURNS actions were taken. Sometimes a few more actions follow its end."""
        number = int(self.rng.integers(min(len(self.tasks), 10_000)))
        seen = self.slot.reset(self.tasks[number])
        show = getattr(self.prompt, "show", None)
        if show is not None:
            show(seen, None)
        self.episodes += 1
        after = int(self.rng.integers(3)) if self.rng.random() < 0.1 else 0
        for _ in range(TURNS):
            seen, over = self.act(seen)
            if (over and after == 0) or self.actions >= most:
                break
            after -= over

    def act(self, seen: Observation) -> tuple[Observation, bool]:
        """Take one action; returns the next observation, and whether the episode is over."""
        kind, text = hostile.draw(self.rng, seen)
        parsed = bool(self.rng.random() < 0.5)
        self.actions += 1
        self.kinds[kind] += 1
        began = time.process_time()
        try:
            action = self.prompt.parse(text, seen).action if parsed else text
            result = self.slot.step(action)
        except BaseException as error:  # the attack looks for exceptions of every kind
            if isinstance(error, KeyboardInterrupt):
                raise
            self.lose(f"{type(error).__name__}: {error!s:.200}", kind, text, parsed)
            return seen, True
        spent = time.process_time() - began
        self.cpu_s += spent
        self.rewarded += result.reward > 0
        if spent > self.slowest_s:
            self.slowest_s, self.slowest = spent, f"{kind}, {len(text)} characters: {text[:60]!a}"
        if spent > BOUND_S:
            self.lose(f"took {spent:.2f} CPU seconds, the bound is {BOUND_S:g}", kind, text, parsed)
        return result.observation, result.terminated or result.truncated

    def lose(self, why: str, kind: str, text: str, parsed: bool) -> None:
        """Note that an action did what no action may do."""
        way = "parsed" if parsed else "as it is"
        if len(self.lost) < MOST_TOLD:
            self.lost.append(f"{self.name}: {why}; {kind} {way}, {len(text)} characters, begins {text[:80]!a}")

    def report(self) -> dict[str, Any]:
        """The counts as JSON values."""
        return {
            "actions": self.actions,
            "episodes": self.episodes,
            "actions_rewarded": self.rewarded,
            "kinds": dict(self.kinds.most_common()),
            "cpu_us_per_action": round(1e6 * self.cpu_s / max(1, self.actions), 1),
            "slowest_action_cpu_ms": round(1e3 * self.slowest_s, 1),
            "slowest_action": self.slowest,
            "peak_memory_mb": round(peak_kb() / 1024),
            "peak_memory_grew_mb_after_a_tenth": round((peak_kb() - self.kb_before) / 1024, 1)
            if self.kb_before
            else None,
            "lost": self.lost,
        }


def peak_kb() -> int:
    """The most memory this process has held, in kilobytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def attack(name: str, seed: int, actions: int, until: float, say: Callable[[str], None]) -> dict[str, Any]:
    """The report of one environment."""
    one = Attack(name, seed)
    try:
        one.run(actions, until)
    finally:
        one.slot.close()
    report = one.report()
    each, slowest = report["cpu_us_per_action"], report["slowest_action_cpu_ms"]
    say(f"{name}: {one.actions} actions, {each} CPU us each, slowest {slowest} CPU ms, {len(one.lost)} lost")
    return report
