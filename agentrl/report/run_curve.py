"""Does it learn, and is it healthy? The learning curve of a run, its metrics as series, and the health findings."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from typing import Any

from agentrl.evaluate import CERTAIN_IN_WORDS, Finding, compare, evaluations, read_report
from agentrl.report.printable import printable
from agentrl.report.run_schema import CurveData, EvaluationPoint, FindingData, HealthData
from agentrl.run import RULES, RULES_IN_WORDS, findings, finite_number, read_findings, read_metrics

Row = Mapping[str, Any]
ORDER = ("sampled", "greedy")  # sampled comes first, because the policy also samples in training
AT_MOST = 1_000  # of a longer run, the page shows every n-th iteration (at most this many) and the last one
MASS = re.compile(r"credit_mass_turn_(\d+)")
NOT_SERIES = ("stage", "step")


def read_timings(path: Path) -> list[dict[str, Any]]:
    """The rows of a timings file. Damaged lines are left out, because times are not results."""
    return read_metrics(path, damaged="skip").rows


def curve_data(name: str, run: Path, rows: Sequence[Row], timings: Sequence[Row]) -> CurveData:
    """The learning curve.

    Args:
        name: name of the run.
        run: the run's folder, for the outcomes of its evaluations.
        rows: the lines of metrics.jsonl.
        timings: the lines of timings.jsonl. CPU seconds are known only if there is one line per entry of `rows`, with
            the same stage and step.
    """
    spent = _cpu_seconds(rows, timings)  # [R]
    sampled = list(accumulate(_tokens(row) for row in rows))  # [R]
    train = [i for i, row in enumerate(rows) if row["stage"] == "train"]
    shown = thinned(train)
    points = [
        _point(row, sampled[i], spent[i]) for i, row in enumerate(rows) if row["stage"] == "eval" and "name" in row
    ]
    return CurveData(
        name=name,
        iteration=[int(rows[i]["step"]) for i in shown],
        success=[finite_number(rows[i].get("success")) for i in shown],
        reward=[finite_number(rows[i].get("reward")) for i in shown],
        tokens=[sampled[i] for i in shown],
        cpu_s=[spent[i] for i in shown],
        evaluations=points,
        verdicts=_verdicts(run),
    )


def thinned(indices: Sequence[int]) -> list[int]:
    """Every n-th of the indices, at most `AT_MOST` of them, and the last index if it is not among them."""
    stride = math.ceil(len(indices) / AT_MOST) or 1
    kept = list(indices[::stride])
    return kept if not indices or kept[-1] == indices[-1] else [*kept, indices[-1]]


def _tokens(row: Row) -> int:
    """Number of tokens sampled in the iteration of a training line, filtered rollouts included; 0 for other lines."""
    found = row.get("generated_tokens", row.get("tokens", 0)) if row["stage"] == "train" else 0
    return int(found)


def _cpu_seconds(rows: Sequence[Row], timings: Sequence[Row]) -> list[float | None]:
    """[R] CPU seconds of the run up to and including each line; None for all lines if the timings do not fit."""
    if [(r["stage"], r["step"]) for r in rows] != [(t.get("stage"), t.get("step")) for t in timings]:
        return [None] * len(rows)
    return [float(f"{x:.6g}") for x in accumulate(sum(phase_seconds(row).values()) for row in timings)]


def phase_seconds(row: Row) -> dict[str, float]:
    """CPU seconds by phase of a line of timings."""
    found = {key: finite_number(x) for key, x in row.items() if key.endswith("_cpu_s")}
    return {key.removesuffix("_cpu_s"): x for key, x in found.items() if x is not None}


def _point(row: Row, tokens: int, cpu_s: float | None) -> EvaluationPoint:
    rate = float(row["success_rate"])
    low, high = row["interval"]
    kinds = row.get("per_type") or {}
    return EvaluationPoint(
        name=str(row["name"]),
        mode=str(row["mode"]),
        iteration=0 if row["name"] in ("start", "clone") else int(row["step"]),
        success=rate,
        low=min(float(low), rate),  # in older runs, rounding could put a bound on the wrong side of the rate
        high=max(float(high), rate),
        episodes=int(row["episodes"]),
        panel=str(row["panel"]),
        tokens=tokens,
        cpu_s=cpu_s,
        reward=finite_number(row.get("mean_reward")),
        steps=finite_number(row.get("mean_steps")),
        per_type={
            kind: (int(one["episodes"]), float(one["success_rate"]), *map(float, one["interval"]))
            for kind, one in kinds.items()
        },
    )


def _verdicts(run: Path) -> list[str]:
    """For each mode with an evaluation before training and a later one: a sentence that compares their success."""
    found = []
    for mode in ORDER:
        files = evaluations(run, mode)
        before = [path for path in files if path.name.startswith(("clone-", "start-"))]
        if not before or files[-1] == before[-1]:
            continue
        first, last = before[-1], files[-1]
        names = [path.name.removesuffix(f"-{mode}.json").replace("-", " ") for path in (first, last)]
        try:
            found.append(_verdict(mode, names, compare(*on_common_tasks(read_outcomes(last), read_outcomes(first)))))
        except ValueError as error:
            found.append(f"{mode.capitalize()} success cannot be compared with {names[0]}: {error}.")
    return found


def read_outcomes(report: Path) -> dict[str, Any]:
    """The report of an evaluation, with its outcomes; ValueError if the file is no such report."""
    return printable(read_report(report))


def on_common_tasks(a: Row, b: Row) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two reports, reduced to the tasks that both played and with an empty panel, so that `compare` accepts them.

    This is needed because the evaluations between two iterations play only the first tasks (`eval.during`) of the panel
    that the evaluations before and after training play. Reports of one panel, of different benchmarks or without a
    common task are returned unchanged.
    """
    if a["benchmark"] != b["benchmark"] or a["panel"] == b["panel"]:
        return dict(a), dict(b)
    both = {o["task"] for o in a["outcomes"]} & {o["task"] for o in b["outcomes"]}
    first, second = ({**r, "panel": "", "outcomes": [o for o in r["outcomes"] if o["task"] in both]} for r in (a, b))
    return (first, second) if both else (dict(a), dict(b))


def _verdict(mode: str, names: Sequence[str], r: Mapping[str, Any]) -> str:
    low, high = r["interval"]
    rose, fell = low > 0, high < 0
    word = "rose" if rose else "fell" if fell else "did not change beyond chance"
    way = f"from {r['success_b']:.1%} ({names[0]}) to {r['success_a']:.1%} ({names[1]})"
    return (
        f"{mode.capitalize()} success on {r['episodes']} held-out tasks {word}: {way}, {100 * r['difference']:+.1f} "
        f"points, 95% interval {100 * low:+.1f} to {100 * high:+.1f}, paired by task."
    )


def health_data(stored: Path, rows: Sequence[Row], certain: Sequence[Finding]) -> HealthData:
    """The findings that the run has stored, and the findings on its metrics and its decisions.

    Of several findings with the same rule and subject, the first is kept.

    Args:
        stored: path of the run's health.json, which may be absent. The file has findings that the metrics do not show,
            such as words that the model does not know.
        rows: the lines of metrics.jsonl.
        certain: findings of `agentrl.evaluate.certain_too_early`.
    """
    found = [FindingData(**_of(one)) for one in (*read_findings(stored), *findings(rows), *certain)]
    by_key: dict[tuple[str, str], FindingData] = {}
    for one in found:
        by_key.setdefault((one.rule, one.subject), one)
    train = [row for row in rows if row["stage"] == "train"]
    shown = [train[i] for i in thinned(range(len(train)))]
    names = dict.fromkeys(name for row in shown for name in row if name not in NOT_SERIES)
    series = {name: [finite_number(row.get(name)) for row in shown] for name in names}
    series = {name: values for name, values in series.items() if any(x is not None for x in values)}
    mass = {match[1]: series.pop(name) for name in [*series] if (match := MASS.fullmatch(name))}
    return HealthData(
        findings=list(by_key.values()),
        rules=len(RULES) + 1,
        looked_at={**RULES_IN_WORDS, "certain_too_early": CERTAIN_IN_WORDS},
        series=series,
        mass=dict(sorted(mass.items(), key=lambda item: int(item[0]))),
    )


def _of(finding: Finding) -> dict[str, Any]:
    known = asdict(finding)
    return {name: printable(known[name]) for name in FindingData.model_fields}
