"""Catalogue `agentrl.algorithms.reward`: from named signals to the reward of each step; one file per entry.

Each file offers `reward(graph, config) -> [N]` for the section `[reward]` of a recipe (see `agentrl.credit.rewards`).
Most files also offer the computation as a function of plain arrays. Pure NumPy, no state.

Letters: N steps, E episodes (paths), R signals.
"""
