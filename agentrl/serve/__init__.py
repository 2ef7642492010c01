"""Servers: an environment's tools by MCP, a retriever for a search tool, a policy's endpoint that records."""

from agentrl.serve.mcp import McpTable, serve_mcp
from agentrl.serve.policy import Guests
from agentrl.serve.retriever import serve_retriever

__all__ = [
    "Guests",
    "McpTable",
    "serve_mcp",
    "serve_retriever",
]
