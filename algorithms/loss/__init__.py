"""Catalogue `agentrl.algorithms.loss`: one file an entry."""
