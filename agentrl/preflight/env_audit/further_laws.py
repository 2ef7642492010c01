"""Laws that `agentrl check ENV --report FILE` tries besides those of `agentrl check ENV`.

Each function yields the findings of one law, and raises `Untried` if the law cannot be tried.
"""

import functools
import gc
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from agentrl.config import Entry
from agentrl.env import EnvironmentFile
from agentrl.gym import Untried, Walk, difference, timed
from agentrl.preflight.env_audit.elsewhere import Conditions, transcripts
from agentrl.types import EnvFault, Task

PLAIN, OTHER = Conditions(0, 0), Conditions(1, 1)
CAUSES: Mapping[str, Conditions] = MappingProxyType(
    {
        "PYTHONHASHSEED=1": Conditions(1, 0),
        "another state of the global random generators": Conditions(0, 1),
    }
)
STARTS = 8  # largest number of steps by which two tasks are told apart
EPISODES = 6  # number of episodes after which an instance must hold no more than after two


def same_in_processes(entry: Entry[EnvironmentFile], tasks: Sequence[Task], *, steps: int, seed: int) -> Iterator[str]:
    """Processes with different hash seeds and states of global random generators give the same transcripts."""
    if not _can_be_named(entry):
        raise Untried("the environment has no name by which another process could find it")
    play = functools.partial(transcripts, entry, tasks, steps=steps, seed=seed)
    plain, other = play(under=[PLAIN, OTHER])
    if plain == other:
        return
    causes = [name for name, one in zip(CAUSES, play(under=list(CAUSES.values())), strict=True) if one != plain]
    unlike = [i for i in range(len(tasks)) if other[i] != plain[i]]
    where = difference(*_of_equal_length(plain[unlike[0]], other[unlike[0]]))
    yield (
        f"{len(unlike)} of {len(tasks)} tasks differ in a process with {' or '.join(causes or CAUSES)}, such as "
        f"{tasks[unlike[0]].key} {where}"
    )


def _can_be_named(entry: Entry[EnvironmentFile]) -> bool:
    """Can another process load the environment by its name?"""
    return "<" not in entry.name and "__main__" not in entry.name


def _of_equal_length(a: Sequence[str], b: Sequence[str]) -> tuple[list[str], list[str]]:
    """Both transcripts, the shorter one with lines `(the episode is over)` at its end."""
    most = max(len(a), len(b))
    return ([*a, *["(the episode is over)"] * (most - len(a))], [*b, *["(the episode is over)"] * (most - len(b))])


def apart(entry: Entry[EnvironmentFile], tasks: Sequence[Task], *, steps: int, seed: int) -> Iterator[str]:
    """Two instances that play in turn give what each gives alone."""
    if len(tasks) < 2:
        raise Untried("there is only one task")
    alone = [Walk(entry, task, seed, steps).run() for task in tasks[:2]]
    pair = [Walk(entry, one.task, seed, steps) for one in alone]
    for walk in pair:
        walk.reset()
    for turn in range(max(len(one.actions) for one in alone)):
        for one, walk in zip(alone, pair, strict=True):
            if turn < len(one.actions):
                walk.step(one.actions[turn])
    for one, walk in zip(alone, pair, strict=True):
        if one.transcript() != walk.transcript():
            where = difference(one.transcript(), walk.transcript())
            yield f"task {one.task.key} differs if another instance plays in between {where}"
        one.env.close()
        walk.env.close()


def ends(entry: Entry[EnvironmentFile], tasks: Sequence[Task], *, steps: int, seed: int) -> Iterator[str]:
    """Some random walk ends, and a step after the end is not rewarded."""
    tried = 0
    for task in tasks:
        walk = Walk(entry, task, seed, steps).run()
        last = walk.results[-1]
        if last.terminated or last.truncated:
            tried += 1
            after = walk.step(walk.actions[-1])
            if after.reward > 0:
                yield f"task {task.key}: a step after the end pays {after.reward:g}"
        walk.env.close()
    if not tried:
        raise Untried(f"no random walk of {steps} steps ended")


def differ(tasks: Sequence[Task], repeats: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Tasks differ: more than half of them, told apart by their start and by what the same few actions give.

    Args:
        tasks: the tasks that were compared.
        repeats: what `repeated` gives for them.
    """
    if len(tasks) < 2:
        raise Untried("there is only one task")
    if len(repeats) == len(tasks) - 1:
        yield (
            f"all {len(tasks)} tasks are alike: they start alike, and the same {STARTS} actions give the same results; "
            "their seeds do nothing, so held-out tasks are the training tasks"
        )
    elif 2 * len(repeats) >= len(tasks):
        pairs = ", ".join(f"{b} is as {a}" for a, b in repeats[:2])
        yield f"{len(repeats)} of {len(tasks)} tasks are as an earlier task: {pairs}"


def repeated(entry: Entry[EnvironmentFile], tasks: Sequence[Task], *, seed: int) -> list[tuple[str, str]]:
    """(key of an earlier task, key) of each task that starts as an earlier one and answers the same actions alike."""
    seen: dict[str, str] = {}
    repeats = []
    for task in tasks:
        walk = Walk(entry, task, seed, STARTS)
        try:
            walk.run()
        except EnvFault as fault:
            raise EnvFault(f"task {task.key}: {fault}") from None
        walk.env.close()
        told = "\n".join(walk.transcript()).replace(task.key, "KEY")
        if told in seen:
            repeats.append((seen[told], task.key))
        seen.setdefault(told, task.key)
    return repeats


def released(entry: Entry[EnvironmentFile], task: Task, *, steps: int, seed: int) -> Iterator[str]:
    """Closed instances hold no open file, thread or process: their number does not grow with the episodes."""
    if not sys.platform.startswith("linux"):
        raise Untried("open files and processes are counted on Linux only")
    counts = []
    for _ in range(2 + EPISODES):
        walk = Walk(entry, task, seed, min(steps, STARTS)).run()
        timed(walk.env.close)
        del walk
        gc.collect()
        counts.append(_held())
    before, after = counts[1], counts[-1]
    for name, earlier, later in zip(("open files", "threads", "processes"), before, after, strict=True):
        if later - earlier >= EPISODES:
            yield f"after {EPISODES} more episodes in closed instances there are {later - earlier} more {name}"


def _held() -> tuple[int, int, int]:
    """Numbers of open files and threads of this process, and of the processes that it started, directly or not."""
    return len(os.listdir("/proc/self/fd")), threading.active_count(), len(_started_by(os.getpid()))


def _started_by(process: int) -> list[int]:
    found = []
    for listed in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            children = [int(word) for word in listed.read_text().split()]
        except OSError:  # the thread has ended meanwhile
            continue
        for child in children:
            found += [child, *_started_by(child)]
    return found
