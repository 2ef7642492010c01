"""Catalogue `agentrl.algorithms.context`: one file an entry."""
