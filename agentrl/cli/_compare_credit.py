"""The output of `agentrl credit --compare a,b,c`: how far methods agree on the same steps, and where they differ."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.chat import shorten


def table(pairs: Sequence[Mapping[str, Any]]) -> str:
    """The comparison as text."""
    lines = [f"{'methods':32} {'steps':>7} {'correlation':>12} {'sign differs':>13}"]
    for pair in pairs:
        r = "-" if pair["correlation"] is None else f"{pair['correlation']:.4f}"
        lines.append(f"{' '.join(pair['methods']):32} {pair['steps']:7d} {r:>12} {pair['sign_disagreements']:13.2%}")
    for pair in pairs:
        a, b = pair["methods"]
        lines.append(f"\nmost apart, {a} and {b}:")
        for step in pair["most_apart"]:
            text = _one_line(step.get("observation") or step.get("state", ""))
            act = _one_line(step.get("action") or step.get("answer", ""))
            place = f"{step.get('episode', '?')} turn {step['turn']}"
            lines.append(f"  {step[a]:+9.4f} {step[b]:+9.4f}  {place}: {text} -> {act}")
    return "\n".join(lines)


def _one_line(text: str) -> str:
    return shorten(" ".join(text.split()), 60)
