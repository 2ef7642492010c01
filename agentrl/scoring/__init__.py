"""The score stage, between rollout and rewards: rules or models give the played chains named signals."""

from agentrl.scoring.chains import Chain, Turn, chains_of
from agentrl.scoring.entry import (
    Desk,
    Paid,
    ScoreFault,
    ScoreFile,
    ScoreOptions,
    Scorer,
    Signals,
    Speaker,
    resolve_scores,
)
from agentrl.scoring.paid_calls import BudgetSpent, PaidAnswers
from agentrl.scoring.second_judge import Disagreement
from agentrl.scoring.stage import Scored, ScoreStage

__all__ = [
    "BudgetSpent",
    "Chain",
    "Desk",
    "Disagreement",
    "Paid",
    "PaidAnswers",
    "ScoreFault",
    "ScoreFile",
    "ScoreOptions",
    "ScoreStage",
    "Scored",
    "Scorer",
    "Signals",
    "Speaker",
    "Turn",
    "chains_of",
    "resolve_scores",
]
