"""Notes of `agentrl check` on a tool environment that passes the checks but may give nothing to learn from."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from agentrl.config import Entry
from agentrl.env import Env, EnvironmentFile, tasks_of
from agentrl.tool import random_action
from agentrl.tool_env.instance import Done, ToolEnv
from agentrl.tool_env.setup import ToolEnvSetup
from agentrl.types import Task

WALKS, STEPS = 3, 20  # number of random episodes per task, and largest number of steps of each
FEWEST = 3  # a tool with fewer random calls gets no note
# Beginnings of the results of calls in which the tool refused a value of its arguments.
ON_PURPOSE = ("error: ValueError", "error: LookupError", "error: KeyError", "error: IndexError")


def trial_notes(entry: Entry[EnvironmentFile], tasks: int = 4) -> list[str]:
    """One sentence if the environment has no reward, and one per tool that raised in each call with random arguments.

    A tool with arguments that raised only `ValueError`, `LookupError` or `ToolError` gets no sentence, because random
    arguments may never be right. Environments that are no tool environments get no notes.
    """
    setup = getattr(entry.hooks.make, "setup", None)
    if not isinstance(setup, ToolEnvSetup):
        return []
    notes = []
    if not setup.has_reward:
        name = setup.owner.__name__ if setup.owner is not None else entry.hooks.label
        notes.append(
            f"{name} has no reward, so every episode earns 0 and nothing can be learned from it: give the class a "
            "method reward(self, answer), or environment(..., reward=function), or score episodes in the recipe "
            "([[score]] and [[reward]])"
        )
    listed = tasks_of(entry)
    chosen = [listed[i] for i in sorted({round(i * (min(len(listed), 1 << 20) - 1) / tasks) for i in range(tasks)})]
    for tool, calls in _calls(entry, chosen).items():
        failed = [call for call in calls if not call.ok]
        on_purpose = any(call.arguments for call in calls) and all(_is_on_purpose(call.result) for call in failed)
        if len(calls) >= FEWEST and len(failed) == len(calls) and not on_purpose:
            notes.append(
                f"the tool {tool!r} raised in all of its {len(calls)} calls with random arguments, such as "
                f"{failed[0].result.removeprefix('error: ')[:200]!r}{failed[0].raised_at}: mend it, or return a text "
                "that says what is wrong"
            )
    return notes


def _is_on_purpose(result: str) -> bool:
    kind = result.removeprefix("error: ").partition(":")[0]
    return result.startswith(ON_PURPOSE) or not kind.endswith(
        ("Error", "Exception")
    )  # the result of a ToolError is its message alone


def _calls(entry: Entry[EnvironmentFile], tasks: Sequence[Task]) -> dict[str, list[Done]]:
    """The calls of random episodes by the name of the tool; empty if the environment cannot be played."""
    found: dict[str, list[Done]] = defaultdict(list)
    rng = np.random.default_rng(0)
    env: Any = entry.hooks.make(entry.config)
    try:
        for task in tasks:
            for _ in range(WALKS):
                for call in _walk(env, task, rng):
                    found[call.name].append(call)
    except Exception:  # noqa: BLE001  the earlier checks have reported the exception
        return {}
    finally:
        env.close()
    return found


def _walk(env: Env, task: Task, rng: np.random.Generator) -> list[Done]:
    """The calls of one random episode."""
    observation = env.reset(task)
    for _ in range(STEPS):
        listed = observation.actions
        action = listed[int(rng.integers(len(listed)))] if listed else random_action(observation, rng)
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            break
    inner = getattr(env, "inner", env)
    return list(inner.log) if isinstance(inner, ToolEnv) else []
