"""The type of a finding on a run's health.

The rules that make findings are in `agentrl.run.health` and `agentrl.evaluate.certainty`.
"""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A finding of a health rule on a run.

    Attributes:
        rule: name of the rule.
        severity: error (the run is broken), warning (the run is likely to learn nothing) or note.
        text: one sentence with numbers and advice.
        stage, iteration: `stage` and `step` of the line of metrics at which the rule was broken.
        subject: the thing that breaks the rule, such as a decision, if several things can break it; else empty.
    """

    rule: str
    severity: Severity
    text: str
    stage: str
    iteration: int
    subject: str = ""
