"""Catalogue `agentrl.algorithms.sampler`: one file an entry."""
