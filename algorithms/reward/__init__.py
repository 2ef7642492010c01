"""Catalogue `agentrl.algorithms.reward`: one file an entry."""
