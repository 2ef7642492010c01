"""Checks a user's rows: their columns, duplicates, leaks between splits, lengths of prompts, answers and solutions."""

from agentrl.audit.checking import Audit, check_rows
from agentrl.audit.finding import RowFinding
from agentrl.audit.split import Split, read_splits
from agentrl.audit.tasks import Context, Lengths

__all__ = ["Audit", "Context", "Lengths", "RowFinding", "Split", "check_rows", "read_splits"]
