"""Catalogue `agentrl.algorithms.credit`: one file an entry."""
