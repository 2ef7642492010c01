"""Makes the pool of an environment entry: instances in this process, in threads or in worker processes."""

import functools
from collections.abc import Callable
from typing import Any

from agentrl import catalogue
from agentrl.config import Entry
from agentrl.env.hooks import EnvironmentFile
from agentrl.env.limits import START_S, Limits
from agentrl.env.pool import InlinePool, Pool
from agentrl.env.processes import WorkerPool
from agentrl.env.protocol import Env
from agentrl.env.threads import ThreadPool


@functools.cache
def _file(name: str) -> EnvironmentFile:
    """The environment's file, read once per process: every new instance and every new expert needs it."""
    return catalogue.load(EnvironmentFile, name)


def _make(name: str, config: Any) -> Env:
    return _file(name).make(config)


def _expert(entry_name: str, env: Env, name: str, seed: int) -> Any:
    make = _file(entry_name).expert
    assert make is not None, "the pool was made with an expert"
    return make(env, name, seed)


def place_of(entry: Entry[EnvironmentFile], where: str = "auto") -> str:
    """Where instances run: `inline`, `threads` or `processes`. `auto` chooses by the hooks `HEAVY` and `WAITS`."""
    if where != "auto":
        return where
    if entry.hooks.heavy:
        return "processes"
    return "threads" if entry.hooks.waits_under(entry.config) else "inline"


def make_pool(
    entry: Entry[EnvironmentFile],
    where: str = "auto",
    workers: int = 0,
    timeout_s: float = 60.0,
    start_s: float = START_S,
    output_chars: int | None = None,
    worker_memory_mb: int | None = None,
) -> Pool:
    """A pool of instances of the environment.

    Args:
        entry: the environment.
        where: see `place_of`.
        workers: number of processes, 0 for one per core.
        timeout_s, start_s: largest number of seconds for a call, and for making an instance.
        output_chars, worker_memory_mb: see `Limits`.
    """
    make: Callable[[], Env] = functools.partial(_make, entry.name, entry.config)
    expert = functools.partial(_expert, entry.name) if entry.hooks.expert is not None else None
    where = place_of(entry, where)
    if where == "processes":
        return WorkerPool(make, expert, timeout_s, workers, start_s, output_chars, worker_memory_mb)
    if where == "threads":
        return ThreadPool(make, expert, timeout_s, start_s, output_chars)
    return InlinePool(make, expert, timeout_s, start_s, output_chars)


def pool_within(entry: Entry[EnvironmentFile], limits: Limits, where: str = "auto", workers: int = 0) -> Pool:
    """`make_pool` with the time limits, the output length and the worker memory of `limits`."""
    seconds, chars, memory_mb = (
        (limits.call_seconds, limits.start_seconds),
        limits.output_chars,
        limits.worker_memory_mb,
    )
    return make_pool(entry, where, workers, *seconds, chars, memory_mb)
