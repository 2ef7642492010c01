"""Catalogue `agentrl.algorithms.sampler`: one file per entry."""
