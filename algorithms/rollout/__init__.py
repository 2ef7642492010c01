"""Catalogue `agentrl.algorithms.rollout`: one file an entry."""
