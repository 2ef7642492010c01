"""Recognises the logs of other tools, and reads them as step graphs through the converters.

A log is a JSONL file or a Parquet table (extra `data`) with one of these forms:
  - steps (`agentrl.graph.jsonl`): group, episode, turn, reward;
  - chat trajectories in OpenAI's format: messages, group, reward;
  - a verl batch: uid, traj_uid, rewards or token_level_rewards; verl's stored rollouts: input, output, score;
  - TRL's logged completions: prompt, completion, one column per reward.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.files import read_jsonl
from agentrl.graph.converters import from_messages, from_trl, from_verl, from_verl_rollouts
from agentrl.graph.jsonl import read_steps, steps_graph
from agentrl.graph.step_graph import StepGraph
from agentrl.rows import read_rows

Rows = Sequence[Mapping[str, Any]]


def read_log(path: Path) -> StepGraph:
    """The step graph of a file of steps, or of another tool's log.

    Raises:
        ValueError: the file has none of the module's forms; the message names the line, the row or the file.
    """
    rows = _parquet(path) if path.suffix == ".parquet" else None
    convert = _converter(_first(path) if rows is None else next(iter(rows), {}))
    if convert is None:
        if rows is None:
            return read_steps(path)
        return steps_graph([json.dumps(row) for row in rows], str(path))
    if rows is None:
        rows = [row for _, row in read_jsonl(path, "log")]
    try:
        steps = convert(rows)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return steps_graph([json.dumps(step) for step in steps], str(path))


def _converter(row: Any) -> Callable[[Rows], list[dict[str, Any]]] | None:
    """The function that turns rows of this form into steps; None if the rows are steps or have an unknown form."""
    keys = set(row) if isinstance(row, Mapping) else set()
    if "messages" in keys:
        return from_messages
    if {"uid", "traj_uid"} <= keys:
        return _verl_columns
    if {"input", "output", "score"} <= keys:
        return from_verl_rollouts
    return from_trl if {"prompt", "completion"} <= keys else None


def _verl_columns(rows: Rows) -> list[dict[str, Any]]:
    names = list(rows[0])
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping) or set(row) != set(names):
            raise ValueError(f"row {number} of the batch has other columns than row 0, which has {sorted(names)}")
    try:
        return from_verl({name: [row[name] for row in rows] for name in names})
    except TypeError as error:
        raise ValueError(f"a column of the batch holds other values than verl writes: {error}") from None


def _first(path: Path) -> Any:
    """The first value of a JSONL file; None if the file cannot be read, so that `read_steps` raises the error."""
    try:
        return next((value for _, value in read_jsonl(path, "file of steps")), None)
    except (ValueError, OSError):
        return None


def _parquet(path: Path) -> Rows:
    if not path.is_file():
        raise ValueError(f"no such file of steps: {path}")
    return list(read_rows(path))
