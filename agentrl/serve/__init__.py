"""Servers: an MCP server for an environment's tools, a retriever server for a search tool."""

from agentrl.serve.mcp import McpTable, serve_mcp
from agentrl.serve.retriever import serve_retriever

__all__ = [
    "McpTable",
    "serve_mcp",
    "serve_retriever",
]
