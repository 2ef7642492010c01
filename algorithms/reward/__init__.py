"""Catalogue `agentrl.algorithms.reward`: named signals to the reward of each step; one file an entry.

Each offers `reward(graph, config) -> [N]` for the section `[reward]` of a recipe (see `agentrl.credit.rewards`), and
the function it is made of, on plain arrays. Pure NumPy, no state. Letters: N steps, E episodes (paths), R signals.
"""
