"""An environment entry with what a rollout needs of it: tasks, words, a pool."""

import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from agentrl import catalogue
from agentrl.config import Entry
from agentrl.env.inline import InlinePool
from agentrl.env.limits import START_S, Limits
from agentrl.env.pool import Pool
from agentrl.env.processes import WorkerPool
from agentrl.env.prompt import Plain, Prompt
from agentrl.env.protocol import Env
from agentrl.env.threads import ThreadPool
from agentrl.types import Task


def words(entry: Entry) -> Prompt:
    """How the environment speaks to a model."""
    prompt: Prompt = entry.module.prompt(entry.config) if hasattr(entry.module, "prompt") else Plain()
    return prompt


def tasks(entry: Entry) -> Sequence[Task]:
    """The environment's tasks under its configuration; ValueError if there are none."""
    found: Sequence[Task] = entry.module.tasks(entry.config)
    if not len(found):
        raise ValueError(f"environment {entry.name} has no tasks under this configuration: check its data and split")
    return found


def kind(entry: Entry, task: Task) -> str:
    """The label a task is tabled under."""
    return str(entry.module.kind(task)) if hasattr(entry.module, "kind") else entry.name


def benchmark(entry: Entry) -> str:
    """The name results are reported under."""
    return str(entry.module.benchmark(entry.config)) if hasattr(entry.module, "benchmark") else entry.name


def facts(entry: Entry) -> dict[str, str]:
    """What reports say of how the environment ran, besides its name."""
    hook = getattr(entry.module, "facts", None)
    return dict(hook(entry.config)) if callable(hook) else {}  # ALFWorld has a module of that name


@functools.cache
def _module(entry_name: str) -> ModuleType:
    """The environment's module, found once a process: an expert is made for every episode."""
    return catalogue.load("envs", entry_name)


def check_expert(entry: Entry, name: str, where: str) -> None:
    """ValueError if the environment has no expert of this name (what follows a colon are the expert's own words)."""
    if not hasattr(entry.module, "expert"):
        raise ValueError(f"{where} = {name!r}: environment {entry.name} has no experts, its file has no expert(...)")
    known = getattr(entry.module, "EXPERTS", None)
    if known is not None and name.partition(":")[0] not in known:
        raise ValueError(
            f"{where} = {name!r} is no expert of {entry.name}{catalogue.nearest(name.partition(':')[0], known)}"
        )


def _make(entry_name: str, config: Any) -> Env:
    env: Env = _module(entry_name).make(config)
    return env


def _expert(entry_name: str, env: Env, name: str, seed: int) -> Any:
    return _module(entry_name).expert(env, name, seed)


def pool(
    entry: Entry,
    where: str = "auto",
    workers: int = 0,
    timeout_s: float = 60.0,
    start_s: float = START_S,
    output_chars: int | None = None,
) -> Pool:
    """Instances of the environment: in this process, in its threads or in workers (`where` = auto, inline, threads,
    processes; auto goes by the module's `HEAVY` and `WAITS`).

    timeout_s, start_s: seconds that a call, and the making of an instance, may take. output_chars: see `Limits`.
    """
    make: Callable[[], Env] = functools.partial(_make, entry.name, entry.config)
    expert = functools.partial(_expert, entry.name) if hasattr(entry.module, "expert") else None
    heavy = where == "processes" or (where == "auto" and bool(getattr(entry.module, "HEAVY", False)))
    if heavy:
        return WorkerPool(make, expert, timeout_s, workers, start_s, output_chars)
    if where == "threads" or (where == "auto" and waits(entry)):
        return ThreadPool(make, expert, timeout_s, start_s, output_chars)
    return InlinePool(make, expert, timeout_s, start_s, output_chars)


def pool_within(entry: Entry, limits: Limits, where: str = "auto", workers: int = 0) -> Pool:
    """`pool`, with the times and lengths of these limits."""
    return pool(entry, where, workers, limits.call_seconds, limits.start_seconds, limits.output_chars)


def waits(entry: Entry) -> bool:
    """Do the environment's steps wait? Its file says so (`WAITS`); a tool environment's tools may unless it says no."""
    said = getattr(entry.module, "WAITS", None)
    if said is None:
        setup = getattr(getattr(entry.module, "make", None), "__self__", None)
        return bool(getattr(setup, "waits", False))
    return bool(said(entry.config) if callable(said) else said)


ENDLESS = 100_000  # a longer list of tasks is drawn from at random, never shuffled or searched
