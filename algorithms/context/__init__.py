"""Catalogue `agentrl.algorithms.context`: one file per entry."""
