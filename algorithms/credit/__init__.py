"""Catalogue `agentrl.algorithms.credit`: one file per entry."""
