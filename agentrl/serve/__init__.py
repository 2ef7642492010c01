"""Servers: the inspector of a run, and a retriever."""

from agentrl.serve.inspector import Inspector, serve_inspector
from agentrl.serve.retriever import serve_retriever

__all__ = ["Inspector", "serve_inspector", "serve_retriever"]
