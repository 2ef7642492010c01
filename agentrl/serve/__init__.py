"""Servers: the inspector of a run, an environment by MCP or OpenEnv, a retriever, episodes of a served policy."""

from agentrl.foreign.mcp import McpTable, serve_mcp
from agentrl.foreign.openenv import OpenEnvPlace, OpenEnvTable, serve_openenv
from agentrl.programs.policy import Guests
from agentrl.serve.inspector import Inspector, serve_inspector
from agentrl.serve.retriever import serve_retriever

__all__ = [
    "Guests",
    "Inspector",
    "McpTable",
    "OpenEnvPlace",
    "OpenEnvTable",
    "serve_inspector",
    "serve_mcp",
    "serve_openenv",
    "serve_retriever",
]
