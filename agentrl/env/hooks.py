"""An environment entry with what a rollout needs of it: tasks, words, a pool."""

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from agentrl import catalogue
from agentrl.config import Entry, read_text
from agentrl.env.limits import Limits
from agentrl.env.pool import START_S, InlinePool, Pool
from agentrl.env.processes import WorkerPool
from agentrl.env.prompt import Plain, Prompt
from agentrl.env.protocol import Env
from agentrl.env.threads import ThreadPool
from agentrl.rollout.sampler import ENDLESS
from agentrl.tool_env.setup import Setup
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
        return isinstance(setup, Setup) and setup.waits
    return bool(said(entry.config) if callable(said) else said)


def read_panel(path: Path) -> list[str]:
    """Task keys, one a line (`#` starts a remark) or a JSON list."""
    text = read_text(path, "panel")
    if path.suffix == ".json":
        keys = _json_keys(path, text)
    else:
        keys = [line.partition("#")[0].strip() for line in text.splitlines()]
    keys = [key for key in keys if key]
    if not keys or len(set(keys)) < len(keys):
        raise ValueError(f"panel {path} is empty or lists a task twice: each task is played once")
    return keys


def _json_keys(path: Path, text: str) -> list[str]:
    try:
        keys = json.loads(text)
    except json.JSONDecodeError:
        keys = None
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ValueError(f"panel {path} is no JSON list of task keys")
    return keys


def panel(entry: Entry, keys: Sequence[str]) -> list[Task]:
    """The tasks of some keys; the environment's `find(config, key)` where it has one, else a search of its
    tasks."""
    if hasattr(entry.module, "find"):
        return [entry.module.find(entry.config, key) for key in keys]
    every = tasks(entry)
    if len(every) > ENDLESS:
        raise ValueError(
            f"environment {entry.name} has {len(every)} tasks, too many to search for {keys[0]!r}: give its file a "
            "find(config, key)"
        )
    known = {task.key: task for task in every}
    missing = [key for key in keys if key not in known]
    if missing:
        raise ValueError(
            f"{len(missing)} of {len(keys)} panel tasks are unknown to {entry.name}, such as {missing[0]!r}"
        )
    return [known[key] for key in keys]


def panel_hash(keys: Sequence[str]) -> str:
    """Twelve hex digits that name a panel: its keys in order."""
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()[:12]
