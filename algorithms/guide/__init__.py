"""Catalogue `agentrl.algorithms.guide`: one file per entry."""
