"""Evaluation on panels, intervals, paired comparison, replay of stored episodes, continuations from stored steps."""

from agentrl.evaluate.branched_graph import attach_branches, mark_row, with_run_rewards
from agentrl.evaluate.certainty import CERTAIN_IN_WORDS, CERTAIN_ITERATIONS, Finding, Severity, certain_too_early
from agentrl.evaluate.comparison import (
    MODES,
    NOT_PLAYED,
    caveats,
    chosen_evaluations,
    compare,
    evaluation_rank,
    evaluations,
    read_report,
)
from agentrl.evaluate.continuations import StoredStep, branch_summary, continuation_returns, find_place, play_on
from agentrl.evaluate.decisions import SituationRow, pooled, situation_names, situation_rows
from agentrl.evaluate.episode_files import EpisodeFiles, folder_of, outcome_of, read_episode, stored_episodes
from agentrl.evaluate.evaluation import Outcome, Report, evaluate
from agentrl.evaluate.failures import without_answer
from agentrl.evaluate.reenact import Replayed, Stage, replay, task_keys
from agentrl.evaluate.samples import (
    Sample,
    majority_at_k,
    pass_at_k,
    samples_of_graph,
    samples_of_report,
    summary as sample_summary,
)
from agentrl.evaluate.setting import evaluated_entry, header
from agentrl.evaluate.stats import Interval, mcnemar, minimum_detectable, paired_bootstrap, wilson

__all__ = [
    "CERTAIN_IN_WORDS",
    "CERTAIN_ITERATIONS",
    "MODES",
    "NOT_PLAYED",
    "EpisodeFiles",
    "Finding",
    "Interval",
    "Outcome",
    "Replayed",
    "Report",
    "Sample",
    "Severity",
    "SituationRow",
    "Stage",
    "StoredStep",
    "attach_branches",
    "branch_summary",
    "caveats",
    "certain_too_early",
    "chosen_evaluations",
    "compare",
    "continuation_returns",
    "evaluate",
    "evaluated_entry",
    "evaluation_rank",
    "evaluations",
    "find_place",
    "folder_of",
    "header",
    "majority_at_k",
    "mark_row",
    "mcnemar",
    "minimum_detectable",
    "outcome_of",
    "paired_bootstrap",
    "pass_at_k",
    "play_on",
    "pooled",
    "read_episode",
    "read_report",
    "replay",
    "sample_summary",
    "samples_of_graph",
    "samples_of_report",
    "situation_names",
    "situation_rows",
    "stored_episodes",
    "task_keys",
    "wilson",
    "with_run_rewards",
    "without_answer",
]
