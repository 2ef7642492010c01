"""Reads a step graph from a path that a user names: steps, another tool's log, a stored graph or a run folder."""

from pathlib import Path

from agentrl.exchange.converters import read_log
from agentrl.graph import StepGraph, read_graph


def read_any(steps: Path) -> StepGraph:
    """The step graph that a path holds.

    The path is a stored graph (.safetensors), a run folder (its newest graph is read), a file of steps, or a log of
    another tool (`agentrl.exchange.converters`).

    Raises:
        ValueError: the file cannot be read as steps or as a stored graph, or the run folder holds no graph.
    """
    if steps.is_dir():
        steps = newest_graph(steps)
    return read_graph(steps) if steps.suffix == ".safetensors" else read_log(steps)


def newest_graph(run: Path) -> Path:
    """The newest graph file of a run folder; ValueError if the folder has no graph file."""
    stored = sorted((run / "graphs").glob("*.safetensors"))
    if not stored:
        raise ValueError(f"{run} has no graphs/*.safetensors: give a run folder with stored rollouts, or a file")
    return stored[-1]
