"""Tool environments: an environment from a class or from functions."""

from agentrl.rows import read_rows
from agentrl.tool_env.definition import Hooks, environment
from agentrl.tool_env.instance import Done, SnapshotToolEnv, ToolEnv
from agentrl.tool_env.learning_notes import trial_notes
from agentrl.tool_env.listed import Listed
from agentrl.tool_env.request_tools import program_fit, tool_request
from agentrl.tool_env.setup import ToolConfig, ToolEnvSetup
from agentrl.tool_env.tasks import Division, PartRows, RowTasks, naming_column, share_of_key
from agentrl.tool_env.tools_prompt import Compact, ToolWords, template_fit

__all__ = [
    "Compact",
    "Division",
    "Done",
    "Hooks",
    "Listed",
    "PartRows",
    "RowTasks",
    "SnapshotToolEnv",
    "ToolConfig",
    "ToolEnv",
    "ToolEnvSetup",
    "ToolWords",
    "environment",
    "naming_column",
    "program_fit",
    "read_rows",
    "share_of_key",
    "template_fit",
    "tool_request",
    "trial_notes",
]
