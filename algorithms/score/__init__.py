"""Catalogue `agentrl.algorithms.score`: from played chains to named signals; one file per entry.

Each offers `make(config) -> Scorer` and `signals(config)` for the section `[[score]]` of a recipe (see
`agentrl.scoring.entry`), and the function it is made of, on plain values.
"""
