"""A run: its folder and state, the rollouts, the policies that learn, and the training loop that connects them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentrl.run.checks import check_beginning, dry_run_notes, leak_note
    from agentrl.run.evaluated_policy import Contestant
    from agentrl.run.event_loop import Loop
    from agentrl.run.folder import TASK_KINDS, RunFolder, versions
    from agentrl.run.health import RULES, RULES_IN_WORDS, findings, read_findings
    from agentrl.run.learner_group import Place
    from agentrl.run.listing import Condition, ListedRun, condition, listed_runs, ordered, selected
    from agentrl.run.memory_forecast import forecast
    from agentrl.run.metrics import Metrics, Stopwatch, read_metrics, wall_seconds
    from agentrl.run.now import Now
    from agentrl.run.policies import Policies
    from agentrl.run.progress import Progress, Tally
    from agentrl.run.ranks import follow_torchrun
    from agentrl.run.reward_check import RewardCheck, check_reward
    from agentrl.run.rollouts import Rollouts
    from agentrl.run.run import Run, open_run
    from agentrl.run.stages import BRANCH
    from agentrl.run.status import RunStatus, is_run, read_config, read_lines, setting, spell, status_of
    from agentrl.run.training import train
    from agentrl.run.trials import preflight
    from agentrl.run.vocabulary import read_vocabularies, vocabularies, write_vocabularies
    from agentrl.run.watching import Curve, Frame, frame, thinned
    from agentrl.settings import Settings

__all__ = [
    "BRANCH",
    "RULES",
    "RULES_IN_WORDS",
    "TASK_KINDS",
    "Condition",
    "Contestant",
    "Curve",
    "Frame",
    "ListedRun",
    "Loop",
    "Metrics",
    "Now",
    "Place",
    "Policies",
    "Progress",
    "RewardCheck",
    "Rollouts",
    "Run",
    "RunFolder",
    "RunStatus",
    "Settings",
    "Stopwatch",
    "Tally",
    "check_beginning",
    "check_reward",
    "condition",
    "dry_run_notes",
    "findings",
    "follow_torchrun",
    "forecast",
    "frame",
    "is_run",
    "leak_note",
    "listed_runs",
    "open_run",
    "ordered",
    "preflight",
    "read_config",
    "read_findings",
    "read_lines",
    "read_metrics",
    "read_vocabularies",
    "selected",
    "setting",
    "spell",
    "status_of",
    "thinned",
    "train",
    "versions",
    "vocabularies",
    "wall_seconds",
    "write_vocabularies",
]

_HOME = {
    "selected": "agentrl.run.listing",
    "ordered": "agentrl.run.listing",
    "listed_runs": "agentrl.run.listing",
    "condition": "agentrl.run.listing",
    "ListedRun": "agentrl.run.listing",
    "Condition": "agentrl.run.listing",
    "Now": "agentrl.run.now",
    "thinned": "agentrl.run.watching",
    "frame": "agentrl.run.watching",
    "Frame": "agentrl.run.watching",
    "Curve": "agentrl.run.watching",
    "BRANCH": "agentrl.run.stages",
    "RULES": "agentrl.run.health",
    "RULES_IN_WORDS": "agentrl.run.health",
    "Contestant": "agentrl.run.evaluated_policy",
    "Loop": "agentrl.run.event_loop",
    "Metrics": "agentrl.run.metrics",
    "Place": "agentrl.run.learner_group",
    "Policies": "agentrl.run.policies",
    "Progress": "agentrl.run.progress",
    "RewardCheck": "agentrl.run.reward_check",
    "Rollouts": "agentrl.run.rollouts",
    "Run": "agentrl.run.run",
    "RunFolder": "agentrl.run.folder",
    "RunStatus": "agentrl.run.status",
    "is_run": "agentrl.run.status",
    "read_config": "agentrl.run.status",
    "read_lines": "agentrl.run.status",
    "setting": "agentrl.run.status",
    "spell": "agentrl.run.status",
    "status_of": "agentrl.run.status",
    "Settings": "agentrl.settings",
    "Stopwatch": "agentrl.run.metrics",
    "follow_torchrun": "agentrl.run.ranks",
    "forecast": "agentrl.run.memory_forecast",
    "findings": "agentrl.run.health",
    "read_findings": "agentrl.run.health",
    "Tally": "agentrl.run.progress",
    "check_beginning": "agentrl.run.checks",
    "check_reward": "agentrl.run.reward_check",
    "leak_note": "agentrl.run.checks",
    "open_run": "agentrl.run.run",
    "preflight": "agentrl.run.trials",
    "dry_run_notes": "agentrl.run.checks",
    "TASK_KINDS": "agentrl.run.folder",
    "read_metrics": "agentrl.run.metrics",
    "read_vocabularies": "agentrl.run.vocabulary",
    "train": "agentrl.run.training",
    "versions": "agentrl.run.folder",
    "vocabularies": "agentrl.run.vocabulary",
    "wall_seconds": "agentrl.run.metrics",
    "write_vocabularies": "agentrl.run.vocabulary",
}


def __getattr__(name: str) -> Any:
    """Import the module of a public name when the name is first used."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
