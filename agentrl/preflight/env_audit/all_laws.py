"""Tries every law on an environment, and measures what it pays; `agentrl check ENV --report FILE` writes the result."""

import functools
import platform
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

from agentrl import __version__
from agentrl.config import Entry
from agentrl.env import EnvironmentFile, facts_of, tasks_of
from agentrl.gym import LawResult, Untried, Walk, check_laws, spread, try_law
from agentrl.preflight.env_audit import further_laws as further
from agentrl.preflight.env_audit.payment import Payment, Payments, law
from agentrl.types import Task

Fault = Literal["environment", "adapter", "unknown"]
COMPARED = 20  # number of tasks that are compared with each other
ADVICE = "; return an observation instead"  # some messages of check_env have it before the place
RAISED = re.compile(
    r".*\b([A-Z]\w*(?:Error|Exception|Exit): .*?\(\w+\.py:\d+, in [\w<>]+\))"
)  # the last exception in a message
PLACE = re.compile(r"\((\w+\.py):\d+, in [\w<>]+\)")  # how messages name the place where an exception was raised

FURTHER: Mapping[str, str] = MappingProxyType(
    {
        "processes": "Other processes, with another PYTHONHASHSEED or global random state, give the same results.",
        "instances": "Two instances that play in turn give what each of them gives alone.",
        "end": "Random walks end, and a step after the end of an episode is not rewarded.",
        "tasks": "Tasks differ in their start, or in what the same actions give.",
        "release": "Closed instances hold no open file, thread or process.",
        "right": "The environment's own right answers are a success.",
        "graded": "The environment fails to read no answer.",
        "worthless": "Answers that solve nothing are not paid like right answers.",
        "idle": "Turns with a text that is no action are not paid better than every play of listed actions.",
        "shown": "No marked place has the right answer: not the words behind `answer:`, no key, and no info of a step.",
    }
)
# Law -> who is likely at fault if a file that plays another package (the hook ADAPTS) breaks it. A finding that names
# the place of an exception is judged by this place.
LIKELY: Mapping[str, Fault] = MappingProxyType(
    {
        "list": "adapter",
        "listed actions": "unknown",
        "repeat": "environment",
        "snapshot": "adapter",
        "pickle": "adapter",
        "words": "adapter",
        "any text": "environment",
        "experts": "adapter",
        "gymnasium": "adapter",
        "processes": "environment",
        "instances": "unknown",
        "end": "adapter",
        "tasks": "environment",
        "release": "adapter",
        "right": "environment",
        "graded": "environment",
        "worthless": "environment",
        "idle": "adapter",
        "shown": "environment",
    }
)


@dataclass(frozen=True, kw_only=True)
class EnvFinding:
    """One way in which a law is broken, and who is likely at fault: the environment, or the adapter that plays it."""

    law: str
    text: str
    fault: Fault


@dataclass(frozen=True, kw_only=True)
class EnvAudit:
    """The result.

    Attributes:
        env: name of the environment; `options` are its options.
        versions: of agentrl, Python and the packages that the environment names.
        keys: keys of the tasks that were walked through; `count` is the number of all tasks.
        compared: number of tasks that were compared with each other, and number of those that are as an earlier one.
        steps, seed: largest number of steps, and seed, of the random walks.
        walked: number of random walks that ended, and number of random walks.
        laws: the result of each law.
        findings: their findings; of several that name the same exception, the first.
        payment: what was paid; None if nothing could be played.
        step_ms: median and largest wall time of a step, in milliseconds; None if nothing could be played.
    """

    env: str
    options: Mapping[str, Any]
    versions: Mapping[str, str]
    keys: Sequence[str]
    count: int
    compared: tuple[int, int]
    steps: int
    seed: int
    walked: tuple[int, int]
    laws: Sequence[LawResult]
    findings: Sequence[EnvFinding]
    payment: Payment | None
    step_ms: tuple[float, float] | None

    @property
    def holds(self) -> bool:
        """Was no law found broken?"""
        return not self.findings


def audit_env(entry: Entry[EnvironmentFile], *, tasks: int = 4, steps: int = 60, seed: int = 0) -> EnvAudit:
    """Try all laws on `tasks` tasks, spread over the list, with random walks of at most `steps` steps.

    Two or four Python processes are started for the law `processes`. No file is written.
    """
    laws = check_laws(entry, tasks=tasks, steps=steps, seed=seed)
    if laws[0].state == "broken":  # nothing can be played
        why = "the tasks cannot be listed"
        further_results = [LawResult(law=one, text=text, state="untried", why=why) for one, text in FURTHER.items()]
        return _audit(entry, [*laws, *further_results], steps=steps, seed=seed)
    listed = tasks_of(entry)
    chosen = spread(listed, tasks)
    walked, step_ms = _timed_walks(entry, chosen, steps, seed)
    payments = Payments(entry, chosen, steps, seed)
    measured: list[Payment] = []

    def measure() -> Iterator[str]:
        measured.append(payments.measure())
        yield from law(payments, "right")

    compared: list[tuple[int, int]] = []
    tried = _further(entry, chosen, spread(listed, COMPARED), steps, seed, compared)
    tried["right"] = measure
    results = [*laws, *(try_law(one, FURTHER[one], check) for one, check in tried.items())]
    for name in ("graded", "worthless", "idle", "shown"):
        check = functools.partial(law, payments, name) if measured else functools.partial(_unmeasured, results[-1])
        results.append(try_law(name, FURTHER[name], check))
    return replace(
        _audit(entry, results, steps=steps, seed=seed),
        keys=[task.key for task in chosen],
        count=len(listed),
        compared=compared[0] if compared else (0, 0),
        walked=walked,
        payment=measured[0] if measured else None,
        step_ms=step_ms,
    )


def _further(
    entry: Entry[EnvironmentFile],
    chosen: Sequence[Task],
    many: Sequence[Task],
    steps: int,
    seed: int,
    compared: list[tuple[int, int]],
) -> dict[str, Callable[[], Iterator[str]]]:
    """Law -> its check on the `chosen` tasks; `tasks` compares `many`, and puts `EnvAudit.compared` into `compared`."""

    def differ() -> Iterator[str]:
        repeats = further.repeated(entry, many, seed=seed)
        compared.append((len(many), len(repeats)))
        yield from further.differ(many, repeats)

    return {
        "processes": functools.partial(further.same_in_processes, entry, chosen, steps=steps, seed=seed),
        "instances": functools.partial(further.apart, entry, chosen, steps=steps, seed=seed),
        "end": functools.partial(further.ends, entry, chosen, steps=steps, seed=seed),
        "tasks": differ,
        "release": functools.partial(further.released, entry, chosen[0], steps=steps, seed=seed),
    }


def _unmeasured(right: LawResult) -> Iterator[str]:
    raise Untried(f"answers could not be played: {'; '.join(right.findings)}")
    yield ""


def _timed_walks(
    entry: Entry[EnvironmentFile], tasks: Sequence[Task], steps: int, seed: int
) -> tuple[tuple[int, int], tuple[float, float] | None]:
    """(`EnvAudit.walked`, `EnvAudit.step_ms`) of one random walk per task."""
    took: list[float] = []
    ended = 0
    try:
        for task in tasks:
            chosen = Walk(entry, task, seed, steps).run()
            chosen.env.close()
            walk = Walk(entry, task, seed, steps)
            walk.reset()
            for action in chosen.actions:
                began = time.perf_counter()
                last = walk.step(action)
                took.append(1000 * (time.perf_counter() - began))
            ended += last.terminated or last.truncated
            walk.env.close()
    except Exception:  # noqa: BLE001  the law `listed actions` reports the exception
        return (0, 0), None
    return (ended, len(tasks)), (statistics.median(took), max(took))


def _audit(entry: Entry[EnvironmentFile], laws: Sequence[LawResult], *, steps: int, seed: int) -> EnvAudit:
    """An audit with these laws and without any measurement."""
    findings = [
        EnvFinding(law=one.law, text=text, fault=_fault(entry, one.law, text)) for one in laws for text in one.findings
    ]
    options = {name: value for name, value in entry.dump().items() if name != "name"}
    return EnvAudit(
        env=entry.name,
        options=options,
        versions=_versions(entry),
        keys=[],
        count=0,
        compared=(0, 0),
        steps=steps,
        seed=seed,
        walked=(0, 0),
        laws=laws,
        findings=_joined(findings),
        payment=None,
        step_ms=None,
    )


def _joined(findings: Sequence[EnvFinding]) -> list[EnvFinding]:
    """The findings. Of several that name the same exception, in any law, only the first stays."""
    alike: dict[str, list[EnvFinding]] = {}
    for number, one in enumerate(findings):
        raised = RAISED.search(one.text.replace(ADVICE, ""))
        alike.setdefault(raised.group(1) if raised else f"finding {number}", []).append(one)
    return [
        replace(same[0], text=f"{same[0].text} (and {len(same) - 1} more findings with this exception)")
        if same[1:]
        else same[0]
        for same in alike.values()
    ]


def _fault(entry: Entry[EnvironmentFile], law_name: str, finding: str) -> Fault:
    """Who is likely at fault; an environment of no other package is at fault itself."""
    if not entry.hooks.adapts:
        return "environment"
    if "PackageError: " in finding:  # an adapter raises it for what its package did wrong
        return "environment"
    if finding.endswith(" s") and "no answer in " in finding:  # nothing says where the time went
        return "unknown"
    place = PLACE.search(finding)
    if place is not None:
        return "adapter" if place.group(1) in ("adapter.py", "environment.py", "adapter_client.py") else "environment"
    return LIKELY[law_name]


def _versions(entry: Entry[EnvironmentFile]) -> dict[str, str]:
    found = {"agentrl": __version__, "python": platform.python_version()}
    try:
        return {**found, **facts_of(entry)}
    except ValueError:  # the law `list` reports the mistake
        return found
