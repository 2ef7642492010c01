"""What is wrong with rows that a user brings: fields, duplicates, leaks between splits, lengths, answers."""

from agentrl.audit.checking import Audit, check_rows
from agentrl.audit.finding import RowFinding
from agentrl.audit.split import Split, read_splits
from agentrl.audit.tasks import Context, Lengths

__all__ = ["Audit", "Context", "Lengths", "RowFinding", "Split", "check_rows", "read_splits"]
