"""Catalogue `agentrl.algorithms.score`: chains that were played to named signals; one file an entry.

Each offers `make(config) -> Scorer` and `signals(config)` for the section `[[score]]` of a recipe (see
`agentrl.scoring.entry`), and the function it is made of, on plain values.
"""
