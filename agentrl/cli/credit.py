"""`agentrl credit METHOD --steps FILE [key=value ...] [--json]`: any credit method on steps from anywhere."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from agentrl import catalogue
from agentrl.credit import Credit, assign
from agentrl.graph import StepGraph
from agentrl.interchange import read_steps


def run(method: str, steps: Path, options: Sequence[str], as_json: bool) -> int:
    """Print the credit of each line of `steps`, in its order. Exit code: 0, or 2 with one sentence on
    stderr."""
    try:
        module = catalogue.load("credit", method)
        config = parse_options(method, module.Config, options)
        graph = read_steps(steps)
        credit = assign(module, graph, config)
    except (ValueError, OSError) as error:
        print(f"agentrl credit: {error}", file=sys.stderr)
        return 2
    print("\n".join(json_lines(graph, credit)) if as_json else table(graph, credit, method))
    return 0


def parse_options(method: str, config: type[BaseModel], options: Sequence[str]) -> Any:
    """The method's Config from `key=value` words.

    Raises:
        ValueError: not key=value, an unknown or repeated key, a value the option does not take.
    """
    given: dict[str, str] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key:
            raise ValueError(f"{option!r} is not an option: write key=value")
        if key not in config.model_fields:
            raise ValueError(f"{method} has no option {key!r}{catalogue.nearest(key, config.model_fields)}")
        if key in given:
            raise ValueError(f"option {key} is given twice")
        given[key] = value
    try:
        return config.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        name = first["loc"][0] if first["loc"] else "its options"
        value = f"={given[name]}" if name in given else ""
        raise ValueError(f"{method}: {name}{value}: {first['msg'].removeprefix('Value error, ')}") from None


def json_lines(graph: StepGraph, credit: Credit) -> list[str]:
    """One JSON object a step, in the order of the input's lines; null where no credit was given."""
    advantage: list[Any] = np.where(credit.assigned, credit.advantage, np.nan).tolist()
    parts: dict[str, list[Any]] = {"advantage": advantage}
    parts |= {name: per_row(graph, name, values) for name, values in credit.parts.items()}
    order = np.argsort(graph.column("line"), kind="stable").tolist()
    return [json.dumps({name: null(values[i]) for name, values in parts.items()}) for i in order]


def per_row(graph: StepGraph, name: str, values: np.ndarray) -> list[Any]:
    """One entry a row: a number, or for `token_...` parts the list of its sampled tokens' numbers."""
    if not name.startswith("token_") or graph.tokens is None:
        return list(values.tolist())
    bounds, sampled = graph.tokens.offsets.tolist(), graph.tokens.sampled
    return [values[start:end][sampled[start:end]].tolist() for start, end in pairwise(bounds)]


def null(x: Any) -> Any:
    """NaN, which JSON does not have, as null."""
    return None if isinstance(x, float) and x != x else x


def table(graph: StepGraph, credit: Credit, method: str) -> str:
    """A summary of each group and the metrics, for the eye."""
    names = graph.names["group"]
    lines = [f"{method}: {len(graph)} steps, {int(graph.first.sum())} episodes, {len(names)} groups"]
    width = max(5, *(len(name) for name in names))
    lines.append(f"{'group':{width}}  episodes  steps  score mean  advantage min      mean       max")
    for number, name in enumerate(names):
        rows = np.flatnonzero(graph.group == number)
        a = credit.advantage[rows][credit.assigned[rows]]
        spread = f"{a.min():13.4f} {a.mean():9.4f} {a.max():9.4f}" if len(a) else "not assigned".rjust(33)
        first = rows[graph.first[rows]]
        lines.append(
            f"{name:{width}}  {len(first):8d} {len(rows):6d} {graph.score[first].mean():11.4f}  {spread}"
        )
    lines += [f"{name} = {value:.4f}" for name, value in credit.metrics.items()]
    return "\n".join(lines)


def methods() -> list[Mapping[str, Any]]:
    """Each method with its paper and the columns it needs."""
    found: list[Mapping[str, Any]] = []
    for name in catalogue.names("credit"):
        module: ModuleType = catalogue.load("credit", name)
        needs, reads = getattr(module, "NEEDS", ()), getattr(module, "READS", ())
        found.append({"name": name, "paper": module.PAPER, "needs": needs, "may_be_absent_on_steps": reads})
    return found


def main(words: Sequence[str] | None = None) -> int:
    """The verb by itself: `python -m agentrl.cli.credit METHOD --steps FILE key=value --json`."""
    parser = argparse.ArgumentParser("agentrl credit")
    parser.add_argument("method")
    parser.add_argument("options", nargs="*", metavar="key=value")
    parser.add_argument("--steps", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_intermixed_args(words)
    return run(given.method, given.steps, given.options, given.json)


if __name__ == "__main__":
    sys.exit(main())
