"""`agentrl compare A B [--mode greedy|sampled] [--json]`: compare two evaluations of the same panel, paired by task.

A and B are reports that `agentrl eval --out` wrote, files in the folder `evaluations` of a run, or run folders. From a
run folder, the last evaluation is taken. The difference is A minus B. If both are evaluations of one run, the later one
becomes A. Notes below the comparison name other possible causes of a difference: empty or cut-off answers, and
different limits.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl.cli._parser import Parser
from agentrl.evaluate import MODES, caveats, chosen_evaluations, compare, evaluations, read_report


def main(words: Sequence[str]) -> int:
    """See the module."""
    parser = Parser("agentrl compare", __doc__)
    parser.add_argument("a", type=Path)
    parser.add_argument("b", type=Path)
    parser.add_argument(
        "--mode",
        choices=MODES,
        help="mode of the evaluations of run folders; default: greedy if each has a greedy one, else sampled",
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(words)
    a, b = chosen_evaluations(arguments.a, arguments.b, arguments.mode)
    first, second = read_report(a), read_report(b)
    notes = [*_why_this_mode([arguments.a, arguments.b], arguments.mode), *caveats(first, second, (str(a), str(b)))]
    result = {"a": str(a), "b": str(b), **compare(first, second), "notes": notes}
    print(json.dumps(result) if arguments.json else "\n".join([sentence(result), *(f"note: {one}" for one in notes)]))
    return 0


def _why_this_mode(paths: Sequence[Path], asked: str | None) -> list[str]:
    """A sentence on the mode that was chosen for run folders; empty if the command line names the mode."""
    folders = [path for path in paths if path.is_dir()]
    if asked is not None or not folders:
        return []
    there = [mode for mode in MODES if all(evaluations(folder, mode) for folder in folders)]
    if len(there) > 1:
        return [
            "greedy evaluations are compared, because they have no sampling noise; --mode sampled compares the others"
        ]
    return [f"{there[0]} evaluations are compared, because no evaluation of the other mode is stored"]


def _too_few(r: dict[str, Any]) -> str:
    """If the interval includes 0: a note that there may be a difference below the detectable one; else empty."""
    found = r["interval"][0] > 0 or r["interval"][1] < 0
    return "" if found else "; a smaller difference is possible"


def sentence(r: dict[str, Any]) -> str:
    """The comparison as text."""
    low, high = r["interval"]
    if not r["only_a"] and not r["only_b"]:
        return (
            f"A {r['a']}: {r['success_a']:.1%}\nB {r['b']}: {r['success_b']:.1%}\n"
            f"A minus B: {0:+.1%}, because each of the {r['episodes']} tasks of {r['benchmark']}, panel {r['panel']}, "
            "has the same outcome in both: A and B may be one policy, or the tasks may be too easy or too hard to tell "
            "them apart; no "
            f"interval can be estimated from differences that are all 0 (with 95% confidence, at most "
            f"{1 - 0.05 ** (1 / r['episodes']):.1%} of such tasks have different outcomes)\n{_detectable(r)}"
        )
    return (
        f"A {r['a']}: {r['success_a']:.1%}\nB {r['b']}: {r['success_b']:.1%}\n"
        f"A minus B: {r['difference']:+.1%} [{low:+.1%}, {high:+.1%}] (paired bootstrap) on {r['episodes']} tasks of "
        f"{r['benchmark']}, panel {r['panel']}; "
        f"{r['only_a']} tasks won by A only, {r['only_b']} by B only, exact McNemar p = {r['p_value']:.3g}\n"
        f"{_detectable(r)}{_too_few(r)}"
    )


def _detectable(r: dict[str, Any]) -> str:
    return (
        "minimum detectable effect: with this number of tasks, 8 of 10 comparisons find a true difference of "
        f"{r['minimum_detectable']:.1%}"
    )
