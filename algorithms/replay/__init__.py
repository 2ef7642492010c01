"""Catalogue `agentrl.algorithms.replay`: one file per entry."""
