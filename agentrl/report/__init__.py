"""Pictures of a run: its learning curve."""

from agentrl.report.curve import check_matplotlib, learning_curve

__all__ = [
    "check_matplotlib",
    "learning_curve",
]
