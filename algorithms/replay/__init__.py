"""Catalogue `agentrl.algorithms.replay`: one file an entry."""
