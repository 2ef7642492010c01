"""What a rule about a run's health found; the rules are in `agentrl.run.health` and `agentrl.evaluate.certainty`."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a rule found.

    Attributes:
        rule: its name.
        severity: error (the run is broken), warning (it is likely to learn nothing) or note.
        text: one sentence with numbers and the next move.
        stage, iteration: stage and step of the row at which the rule was first broken.
        subject: what the finding is about, where a rule can be broken by several things; else empty.
    """

    rule: str
    severity: Severity
    text: str
    stage: str
    iteration: int
    subject: str = ""
