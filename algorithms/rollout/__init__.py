"""Catalogue `agentrl.algorithms.rollout`: one file per entry."""
