"""`agentrl compare A.json B.json [--json]`: compare two evaluations of the same panel, paired by task.

A and B are reports that `agentrl eval --out` wrote, or files in the folder evaluations of a run.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl.cli._parser import Parser
from agentrl.evaluate import compare, read_report


def main(words: Sequence[str]) -> int:
    """See the module."""
    parser = Parser("agentrl compare", __doc__)
    parser.add_argument("a", type=Path)
    parser.add_argument("b", type=Path)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(words)
    result = compare(read_report(arguments.a), read_report(arguments.b))
    print(json.dumps(result) if arguments.json else sentence(result))
    return 0


def sentence(r: dict[str, Any]) -> str:
    """The comparison as one sentence."""
    low, high = r["interval"]
    return (
        f"{r['benchmark']}, panel {r['panel']}, {r['episodes']} tasks: {r['success_a']:.1%} against "
        f"{r['success_b']:.1%}, difference {r['difference']:+.1%} [{low:+.1%}, {high:+.1%}] (paired bootstrap), "
        f"{r['only_a']} tasks won by A only, {r['only_b']} by B only, exact McNemar p = {r['p_value']:.3g}"
    )
