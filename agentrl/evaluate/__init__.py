"""Evaluation on panels, intervals, paired comparison, replay of stored episodes, continuations from stored steps."""

from agentrl.evaluate.branched_graph import attach_branches, mark_row, with_run_rewards
from agentrl.evaluate.certainty import Finding, certain_too_early
from agentrl.evaluate.comparison import compare, read_report
from agentrl.evaluate.continuations import Place, continuation_returns, find_place, play_on
from agentrl.evaluate.decisions import SituationRow, pooled, situation_rows
from agentrl.evaluate.evaluation import Outcome, Report, evaluate
from agentrl.evaluate.monte_carlo import branch_summary
from agentrl.evaluate.replaying import Replayed, Stage, replay, task_keys
from agentrl.evaluate.stats import Interval, mcnemar, paired_bootstrap, wilson

__all__ = [
    "Finding",
    "Interval",
    "Outcome",
    "Place",
    "Replayed",
    "Report",
    "SituationRow",
    "Stage",
    "attach_branches",
    "branch_summary",
    "certain_too_early",
    "compare",
    "continuation_returns",
    "evaluate",
    "find_place",
    "mark_row",
    "mcnemar",
    "paired_bootstrap",
    "play_on",
    "pooled",
    "read_report",
    "replay",
    "situation_rows",
    "task_keys",
    "wilson",
    "with_run_rewards",
]
