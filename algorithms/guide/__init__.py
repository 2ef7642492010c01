"""Catalogue `agentrl.algorithms.guide`: one file an entry."""
