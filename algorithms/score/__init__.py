"""Catalogue `agentrl.algorithms.score`: from played chains to named signals; one file per entry.

Each entry offers `make(config) -> Scorer` and `signals(config)` for the section `[[score]]` of a recipe (see
`agentrl.scoring.entry`). It also offers the functions that compute its signals from plain values.
"""
