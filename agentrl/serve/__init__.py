"""Servers: an environment as MCP tools, a search tool as a retriever."""

from agentrl.serve.mcp import McpTable, serve_mcp
from agentrl.serve.retriever import serve_retriever

__all__ = [
    "McpTable",
    "serve_mcp",
    "serve_retriever",
]
