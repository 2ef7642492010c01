"""`agentrl compare A B [--mode greedy|sampled] [--json]`: compare two evaluations of the same panel, paired by task.

A and B are reports that `agentrl eval --out` wrote, files in the folder `evaluations` of a run, or run folders, whose
last evaluation is taken. The difference is A minus B; of two evaluations of one run it is the later minus the earlier.
"""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl.cli._parser import Parser
from agentrl.evaluate import compare, read_report

MODES = ("greedy", "sampled")
STAGES = ("start", "clone", "iteration", "end")  # in the order in which a run evaluates


def main(words: Sequence[str]) -> int:
    """See the module."""
    parser = Parser("agentrl compare", __doc__)
    parser.add_argument("a", type=Path)
    parser.add_argument("b", type=Path)
    parser.add_argument("--mode", choices=MODES, help="of run folders' evaluations; default: greedy if both have it")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(words)
    a, b = chosen(arguments.a, arguments.b, arguments.mode)
    result = {"a": str(a), "b": str(b), **compare(read_report(a), read_report(b))}
    print(json.dumps(result) if arguments.json else sentence(result))
    return 0


def chosen(a: Path, b: Path, mode: str | None) -> tuple[Path, Path]:
    """The two report files, the later first if they are evaluations of one run.

    Raises:
        ValueError: a run folder has no evaluation of this mode; `mode` is given and neither is a folder.
    """
    folders = [path for path in (a, b) if path.is_dir()]
    if mode is not None and not folders:
        raise ValueError("--mode is for run folders: leave it out, or name a run folder")
    modes = [mode] if mode is not None else list(MODES)
    both = [one for one in modes if all(evaluations(folder, one) for folder in folders)]
    if not both:
        wanted = " and ".join(dict.fromkeys(str(folder) for folder in folders))
        raise ValueError(f"{wanted}: no {' or '.join(modes)} evaluation in both; name two files in evaluations/")
    first, second = ((evaluations(path, both[0])[-1] if path.is_dir() else path) for path in (a, b))
    if os.path.realpath(first.parent) == os.path.realpath(second.parent) and rank(first) < rank(second):
        return second, first
    return first, second


def evaluations(run: Path, mode: str) -> list[Path]:
    """The report files of a run's evaluations of one mode, oldest first."""
    files = [path for path in (run / "evaluations").glob(f"*-{mode}.json") if rank(path) > (-1, 0)]
    return sorted(files, key=rank)


def rank(path: Path) -> tuple[int, int]:
    """When a run made the evaluation in this file: (stage, iteration); (-1, 0) for another file."""
    match = re.fullmatch(r"(start|clone|iteration|end)(?:-(\d+))?-(greedy|sampled)\.json", path.name)
    return (-1, 0) if match is None else (STAGES.index(match[1]), int(match[2] or 0))


def _too_few(r: dict[str, Any]) -> str:
    """What to say where nothing was found, and a difference of that size could not have been."""
    found = r["interval"][0] > 0 or r["interval"][1] < 0
    return "" if found else "; a smaller one may well be there and is not excluded"


def sentence(r: dict[str, Any]) -> str:
    """The comparison as text."""
    low, high = r["interval"]
    return (
        f"A {r['a']}: {r['success_a']:.1%}\nB {r['b']}: {r['success_b']:.1%}\n"
        f"A minus B: {r['difference']:+.1%} [{low:+.1%}, {high:+.1%}] (paired bootstrap) on {r['episodes']} tasks of "
        f"{r['benchmark']}, panel {r['panel']}; "
        f"{r['only_a']} tasks won by A only, {r['only_b']} by B only, exact McNemar p = {r['p_value']:.3g}\n"
        f"minimum detectable effect: with so many tasks, 8 of 10 comparisons find a true difference of "
        f"{r['minimum_detectable']:.1%}{_too_few(r)}"
    )
