"""A step graph from whatever a user names: a table of steps, a stored graph, a run folder."""

from pathlib import Path

from agentrl.graph import store
from agentrl.graph.jsonl import read_steps
from agentrl.graph.step_graph import StepGraph


def read_any(steps: Path) -> StepGraph:
    """Steps from a JSONL file, a stored graph (.safetensors), or the newest graph of a run folder.

    Raises:
        ValueError: the file is no such thing; the run holds no graph.
    """
    if steps.is_dir():
        stored = sorted((steps / "graphs").glob("*.safetensors"))
        if not stored:
            raise ValueError(f"{steps} has no graphs/*.safetensors: give a run folder with stored rollouts, or a file")
        steps = stored[-1]
    return store.read_graph(steps) if steps.suffix == ".safetensors" else read_steps(steps)
