"""What `agentrl credit --compare a,b,c` shows: how far methods agree on the same steps, and where they do
not."""

from collections.abc import Mapping, Sequence
from typing import Any


def table(pairs: Sequence[Mapping[str, Any]]) -> str:
    """The comparison for the eye."""
    lines = [f"{'methods':32} {'steps':>7} {'correlation':>12} {'sign differs':>13}"]
    for pair in pairs:
        r = "-" if pair["correlation"] is None else f"{pair['correlation']:.4f}"
        lines.append(f"{' '.join(pair['methods']):32} {pair['steps']:7d} {r:>12} {pair['sign_disagreements']:13.2%}")
    for pair in pairs:
        a, b = pair["methods"]
        lines.append(f"\nmost apart, {a} and {b}:")
        for step in pair["most_apart"]:
            text = short(step.get("observation") or step.get("state", ""))
            act = short(step.get("action") or step.get("answer", ""))
            place = f"{step.get('episode', '?')} turn {step['turn']}"
            lines.append(f"  {step[a]:+9.4f} {step[b]:+9.4f}  {place}: {text} -> {act}")
    return "\n".join(lines)


def short(text: str, size: int = 60) -> str:
    """One line of a text."""
    flat = " ".join(text.split())
    return flat if len(flat) <= size else flat[: size - 3] + "..."
