"""Catalogue `agentrl.algorithms.loss`: one file per entry."""
