"""The score stage, between rollout and rewards: rules or models give the played chains named signals."""

from agentrl.scoring.chain_steps import Chain, ChainStep, chains_of
from agentrl.scoring.entry import (
    JudgeClient,
    Paid,
    PolicyClient,
    ScoreFault,
    ScoreFile,
    ScoreOptions,
    Scorer,
    Signals,
    resolve_scores,
)
from agentrl.scoring.paid_calls import BudgetSpent, PaidAnswers
from agentrl.scoring.second_judge import Disagreement
from agentrl.scoring.stage import ScoredGraph, ScoreStage

__all__ = [
    "BudgetSpent",
    "Chain",
    "ChainStep",
    "Disagreement",
    "JudgeClient",
    "Paid",
    "PaidAnswers",
    "PolicyClient",
    "ScoreFault",
    "ScoreFile",
    "ScoreOptions",
    "ScoreStage",
    "ScoredGraph",
    "Scorer",
    "Signals",
    "chains_of",
    "resolve_scores",
]
