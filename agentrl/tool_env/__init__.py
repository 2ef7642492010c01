"""Tool environments: an environment from a class or from functions."""

from agentrl.rows import read_rows
from agentrl.tool_env.definition import Hooks, environment
from agentrl.tool_env.instance import Done, SnapshotToolEnv, ToolEnv
from agentrl.tool_env.listed import Listed
from agentrl.tool_env.prompt import Compact, ToolWords, template_fit
from agentrl.tool_env.setup import Setup, ToolConfig
from agentrl.tool_env.tasks import Division, PartRows, RowTasks, naming_column, share_of_key
from agentrl.tool_env.trial import trial_notes

__all__ = [
    "Compact",
    "Division",
    "Done",
    "Hooks",
    "Listed",
    "PartRows",
    "RowTasks",
    "Setup",
    "SnapshotToolEnv",
    "ToolConfig",
    "ToolEnv",
    "ToolWords",
    "environment",
    "naming_column",
    "read_rows",
    "share_of_key",
    "template_fit",
    "trial_notes",
]
