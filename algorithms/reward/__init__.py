"""Catalogue `agentrl.algorithms.reward`: named signals to one reward an episode, or to a reward a turn; one
file an entry.

Pure NumPy, no state. Letters: E episodes, N steps, R signals.
"""
