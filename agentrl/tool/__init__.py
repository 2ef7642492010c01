"""Tools: the protocol of a tool, and functions that write, read, check and carry out calls of tools."""

from agentrl.tool import action, calls
from agentrl.tool.action import ActionContent
from agentrl.tool.calls import (
    Call,
    Calls,
    Format,
    Malformed,
    Span,
    check_format_name,
    format_names,
    function_of,
    load_format,
    properties_of,
)
from agentrl.tool.code import (
    CodeResult,
    CodeRunner,
    CodeSession,
    open_runner,
    runner_facts,
    shared_runner,
    without_infra_error,
)
from agentrl.tool.code_text import Convention, describe_code, fenced_code, with_print
from agentrl.tool.coroutines import run_all, settled, shared_loop
from agentrl.tool.json_schema import TooDeep, inlined, json_checker, without_nullable
from agentrl.tool.protocol import Tool, Toolbox, ToolError, ToolFault, ToolFile
from agentrl.tool.random_calls import random_action
from agentrl.tool.retrieval import Form, Passage, Retriever, write_passages
from agentrl.tool.schema import ToolSpec, as_words, check_tool_name, tool_spec, tool_specs
from agentrl.tool.search_words import WORD_RULE, Units, search_words

__all__ = [
    "WORD_RULE",
    "ActionContent",
    "Call",
    "Calls",
    "CodeResult",
    "CodeRunner",
    "CodeSession",
    "Convention",
    "Form",
    "Format",
    "Malformed",
    "Passage",
    "Retriever",
    "Span",
    "TooDeep",
    "Tool",
    "ToolError",
    "ToolFault",
    "ToolFile",
    "ToolSpec",
    "Toolbox",
    "Units",
    "action",
    "as_words",
    "calls",
    "check_format_name",
    "check_tool_name",
    "describe_code",
    "fenced_code",
    "format_names",
    "function_of",
    "inlined",
    "json_checker",
    "load_format",
    "open_runner",
    "properties_of",
    "random_action",
    "run_all",
    "runner_facts",
    "search_words",
    "settled",
    "shared_loop",
    "shared_runner",
    "tool_spec",
    "tool_specs",
    "with_print",
    "without_infra_error",
    "without_nullable",
    "write_passages",
]
