"""Is the run healthy? The findings of the health rules, and the metrics of training as series."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentrl.evaluate import CERTAIN_IN_WORDS, Finding
from agentrl.report.printable import printable
from agentrl.report.run_curve import thinned
from agentrl.report.run_schema import FindingData, HealthData
from agentrl.run import RULES, RULES_IN_WORDS, findings, finite_number, read_findings

Row = Mapping[str, Any]
MASS = re.compile(r"credit_mass_turn_(\d+)")
NOT_SERIES = ("stage", "step")


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
