"""Servers: the inspector of a run, an MCP server for an environment's tools, a retriever server for a search tool."""

from agentrl.serve.inspector import Inspector, serve_inspector
from agentrl.serve.mcp import McpTable, serve_mcp
from agentrl.serve.retriever import serve_retriever

__all__ = [
    "Inspector",
    "McpTable",
    "serve_inspector",
    "serve_mcp",
    "serve_retriever",
]
