"""The view of a run at one moment, for `agentrl watch`: `frame` reads the run's folder and writes nothing."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from agentrl.evaluate import wilson
from agentrl.files import regular
from agentrl.run import TimeLeft, finite_number, forecast_of, plan_of, read_metrics, wall_phases, wall_seconds
from agentrl.runs.status import RunStatus, read_config, setting, status_of
from agentrl.watchdog import stall_words

Row = Mapping[str, Any]
LATELY = 20  # number of the newest iterations, from which speeds and shares are computed
CURVES = (
    "reward",
    "entropy",
    "approx_kl",
    "grad_norm",
    "steps",
    "invalid_share",
    "constant_groups",
    "loss",
    "dollars_spent",
)
FAULTS = 5  # number of faults that are named; the most frequent faults are chosen


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One metric of a run, as a function of the number of updates.

    Attributes:
        name: name of the metric.
        step: number of updates before each point.
        value: value of each point.
        low, high: bounds of the 95% interval of each value; empty if no intervals are known.
    """

    name: str
    step: Sequence[int]
    value: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A run at one moment.

    Attributes:
        schema_version: version of this list of attributes; it rises when the attributes change.
        name: `run.name`; the name of the folder if the configuration has no `run.name`.
        state, sentence, pid, news_s: see `agentrl.runs.status.RunStatus`.
        stage: warmup, train, or empty before the first line of metrics.
        step, of: number of updates of this stage that are done, and number of all updates of this stage.
        now: content of now.json, which says what the run does at this moment; empty if there is no such file, and in
            the states absent, finished, stopped and unknown.
        curves: first the metrics of training, then held-out success by mode (greedy, sampled).
        phases: phase -> share of the wall-clock time of the last iterations. If rollouts run ahead of updates, the
            phases of two threads overlap, and the shares sum to up to 2.
        speed: name -> mean of the last iterations: `iteration_s` (seconds per iteration), `generated_tokens_per_s` and
            `episodes_per_s` (per second of rollouts), and `packed_tokens_per_s` (per second of updates).
        left_s: forecast of the seconds to the end (`agentrl.run.forecast`); None if a part of it is not known.
        left: the parts of the forecast that are known, in seconds: `warm-up`, `training`, `evaluations`; empty if the
            run does not work.
        faults: fault -> number of episodes that it ended, the most frequent fault first.
        counts: numbers of episodes that faults ended, of episodes that were tried again, of optimiser steps that were
            skipped, and of failures of each tracker. Numbers that are 0 are left out.
        stalls: sentences of the watchdog about times without progress (`agentrl.watchdog`).
        findings: the findings of the rules of health, each with rule, severity and text.
    """

    schema_version: int = 2
    name: str
    state: str
    sentence: str
    pid: int = 0
    news_s: float | None = None
    stage: str = ""
    step: int = 0
    of: int = 0
    now: Mapping[str, Any] = field(default_factory=dict)
    curves: Sequence[Curve] = ()
    phases: Mapping[str, float] = field(default_factory=dict)
    speed: Mapping[str, float] = field(default_factory=dict)
    left_s: float | None = None
    left: Mapping[str, float] = field(default_factory=dict)
    faults: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, float] = field(default_factory=dict)
    findings: Sequence[Mapping[str, str]] = ()
    stalls: Sequence[str] = ()


def frame(run: Path, *, now: float | None = None) -> Frame:
    """The view of a run. A run whose folder does not exist yet has the state `absent`.

    Args:
        run: the run's folder.
        now: the present time in seconds since 1970; None: the time of the clock.

    Raises:
        ValueError: the folder holds other files and no run, or its config.toml is damaged.
    """
    rows = read_metrics(run / "metrics.jsonl", damaged="skip").rows
    status = status_of(run, rows, now=now)
    if status.state == "absent":
        if run.exists() and (not run.is_dir() or any(not one.name.startswith(".") for one in run.iterdir())):
            raise ValueError(f"{run} is no run folder: it has no config.toml")
        return Frame(name=run.name, **_standing(status))
    config = read_config(run)
    timings = read_metrics(run / "timings.jsonl", damaged="skip").rows
    train = [row for row in rows if row["stage"] == "train"]
    clone = [row for row in rows if row["stage"] == "clone"]
    left = _left(config, rows, timings, status)
    stage = "train" if train or (rows and _after_warm_up(rows, config)) else "warmup" if rows else ""
    return Frame(
        name=str(setting(config, "run.name", run.name)),
        **_standing(status),
        stage=stage,
        step=len(train) if stage == "train" else len(clone),
        of=whole(config, "run.iterations" if stage == "train" else "warmup.updates"),
        now=_now(run) if status.state in ("running", "starting", "silent", "dead") else {},
        curves=[*_training_curves(train, clone), *_held_out(rows)],
        phases=_phases(timings),
        speed=_speed(rows, timings),
        left_s=None if left is None else left.total,
        left={} if left is None else left.parts(),
        faults=_faults(rows),
        counts={**_counts(rows), **_tracker_failures(run)},
        findings=_findings(run),
        stalls=stall_words(run),
    )


def whole(config: Row, key: str) -> int:
    """A whole number of the configuration; 0 if there is none."""
    value = setting(config, key, 0)
    return value if isinstance(value, int) else 0


def updates_before(evaluation: Row) -> int:
    """Number of iterations before an evaluation: 0 for `start` and `clone`, whose `step` counts the warm-up."""
    return 0 if evaluation.get("name") in ("start", "clone") else int(evaluation["step"])


def _standing(status: RunStatus) -> dict[str, Any]:
    return {"state": status.state, "sentence": status.sentence, "pid": status.pid, "news_s": status.news_s}


def _after_warm_up(rows: Sequence[Row], config: Row) -> bool:
    done = any(row.get("name") == "clone" for row in rows)
    return done or not whole(config, "warmup.updates")


def _training_curves(train: Sequence[Row], clone: Sequence[Row]) -> list[Curve]:
    found = []
    pairs = [(row, s) for row in train if (s := finite_number(row.get("success"))) is not None]
    if pairs:
        bounds = [wilson(s * n, int(n)) if (n := finite_number(row.get("episodes"))) else (s, s) for row, s in pairs]
        low, high = [b[0] for b in bounds], [b[1] for b in bounds]
        steps, values = [row["step"] for row, _ in pairs], [s for _, s in pairs]
        found.append(Curve(name="success, training", step=steps, value=values, low=low, high=high))
    for name in CURVES:
        for key in sorted({k for row in train for k in row if k == name or k.endswith(f"/{name}")}):
            found += _curve(key, train)
    return found or _curve("loss", clone)


def _curve(key: str, rows: Sequence[Row]) -> list[Curve]:
    points = [(row["step"], x) for row in rows if (x := finite_number(row.get(key))) is not None]
    return [Curve(name=key, step=[p[0] for p in points], value=[p[1] for p in points])] if points else []


def _held_out(rows: Sequence[Row]) -> list[Curve]:
    """Success of the evaluations, one curve per mode. Evaluations before the first update are at step 0."""
    found = []
    evaluations = [row for row in rows if row["stage"] == "eval" and finite_number(row.get("success_rate")) is not None]
    for mode in sorted({str(row.get("mode", "")) for row in evaluations}):
        own = [row for row in evaluations if str(row.get("mode", "")) == mode]
        steps = [updates_before(row) for row in own]
        values = [float(row["success_rate"]) for row in own]
        intervals = [_interval(row, value) for row, value in zip(own, values, strict=True)]
        low, high = [one[0] for one in intervals], [one[1] for one in intervals]
        found.append(Curve(name=f"success, {mode}", step=steps, value=values, low=low, high=high))
    return found


def _interval(row: Row, value: float) -> tuple[float, float]:
    """The interval of an evaluation; the value twice if the row has none, or a damaged one."""
    given = row.get("interval")
    bounds = [x for one in given if (x := finite_number(one)) is not None] if isinstance(given, list) else []
    return (bounds[0], bounds[1]) if len(bounds) == 2 else (value, value)


def _phases(timings: Sequence[Row]) -> dict[str, float]:
    total: Counter[str] = Counter()
    stage = "train" if any(row["stage"] == "train" for row in timings) else "clone"
    lately = [row for row in timings if row["stage"] == stage][-LATELY:]
    for row in lately:
        total.update(wall_phases(row))
    whole_s = sum(map(wall_seconds, lately))
    return {phase: seconds / whole_s for phase, seconds in total.most_common()} if whole_s > 0 else {}


def _speed(rows: Sequence[Row], timings: Sequence[Row]) -> dict[str, float]:
    train = {row["step"]: row for row in rows if row["stage"] == "train"}
    lately = [row for row in timings if row["stage"] == "train" and row["step"] in train][-LATELY:]
    if not lately:
        return {}

    def rate(key: str, phase: str) -> dict[str, float]:
        counted = sum(finite_number(train[row["step"]].get(key)) or 0.0 for row in lately)
        seconds = sum(wall_phases(row).get(phase, 0.0) for row in lately)
        return {f"{key}_per_s": counted / seconds} if counted and seconds > 0 else {}

    each = sum(map(wall_seconds, lately)) / len(lately)
    speeds = (rate("generated_tokens", "rollout"), rate("episodes", "rollout"), rate("packed_tokens", "update"))
    return {"iteration_s": each, **{name: value for one in speeds for name, value in one.items()}}


def _left(config: Row, rows: Sequence[Row], timings: Sequence[Row], status: RunStatus) -> TimeLeft | None:
    """The forecast of a run that works; None for other runs."""
    if status.state not in ("running", "starting", "silent"):
        return None
    return forecast_of(plan_of(config), rows, timings).left()


def _faults(rows: Sequence[Row]) -> dict[str, int]:
    return dict(_total(rows, "faults").most_common(FAULTS))


def _total(rows: Sequence[Row], name: str) -> Counter[str]:
    """The sums of the counts in the tables `name` of the rows."""
    total: Counter[str] = Counter()
    for row in rows:
        counts = row.get(name)
        if isinstance(counts, Mapping):
            total.update({str(why): count for why, count in counts.items() if isinstance(count, int)})
    return total


def _counts(rows: Sequence[Row]) -> dict[str, float]:
    lost = 0.0
    for row in rows:
        share, scored = finite_number(row.get("env_error_share")) or 0.0, finite_number(row.get("episodes")) or 0.0
        lost += finite_number(row.get("env_errors")) or (share * scored / (1 - share) if share < 1 else 0.0)
    found = {
        "episodes lost to the environment": float(round(lost)),
        "episodes left out, as their first prompt does not fit": float(_total(rows, "overlong_prompts").total()),
        "episodes tried again": sum(finite_number(row.get("retried")) or 0.0 for row in rows),
        "optimiser steps skipped": sum(
            finite_number(row.get(key)) or 0.0 for row in rows for key in row if key.endswith("skipped_steps")
        ),
    }
    return {name: count for name, count in found.items() if count}


def _tracker_failures(run: Path) -> dict[str, float]:
    """Number of failures of each tracker; a run stores them when it closes its trackers."""
    failures = _table(run / "trackers.json").get("failures")
    if not isinstance(failures, Mapping):
        return {}
    return {f"failures of the tracker {name}": float(x) for name, x in failures.items() if isinstance(x, int)}


def _table(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if the file is missing or damaged."""
    try:
        value = json.loads(regular(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _now(run: Path) -> dict[str, Any]:
    return _table(run / "now.json")


def _findings(run: Path) -> list[dict[str, str]]:
    found = _table(run / "health.json").get("findings", [])
    keys = ("rule", "severity", "text")
    found = found if isinstance(found, list) else []
    return [{key: str(one.get(key, "")) for key in keys} for one in found if isinstance(one, Mapping)]


def thinned(values: Sequence[float], width: int) -> list[float]:
    """The values; if there are more than `width`, the means of `width` consecutive parts of about equal length."""
    if len(values) <= width:
        return list(values)
    bounds = [round(i * len(values) / width) for i in range(width + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(bounds)]
