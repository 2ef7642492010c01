"""The output of `agentrl credit --compare a,b,c`: how far methods agree on the same steps, and where they differ."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.chat import shorten

UNIT = (
    "columns: the advantage by each of the two methods, and how far these are apart: their absolute difference, after "
    "each is divided by its method's root mean square over these steps; 1.00 is the size of a typical advantage"
)


def table(pairs: Sequence[Mapping[str, Any]]) -> str:
    """The comparison as text."""
    lines = [f"{'methods':32} {'steps':>7} {'correlation':>12} {'sign differs':>13}"]
    for pair in pairs:
        r = "-" if pair["correlation"] is None else f"{pair['correlation']:.4f}"
        lines.append(f"{' '.join(pair['methods']):32} {pair['steps']:7d} {r:>12} {pair['sign_disagreements']:13.2%}")
    for pair in pairs:
        a, b = pair["methods"]
        if not pair["most_apart"]:
            lines.append(f"\n{_alike(pair)}")
            continue
        lines.append(f"\nmost apart, {a} and {b}:")
        for step in pair["most_apart"]:
            text = _one_line(step.get("observation") or step.get("state", ""))
            act = _one_line(step.get("action") or step.get("answer", ""))
            place = f"{step.get('episode', '?')} turn {step['turn']}"
            lines.append(f"  {step[a]:+9.4f} {step[b]:+9.4f} {step['apart']:7.2f}  {place}: {text} -> {act}")
    if any(pair["most_apart"] for pair in pairs):
        lines.append(f"\n{UNIT}")
    return "\n".join(lines)


def _alike(pair: Mapping[str, Any]) -> str:
    """The sentence for two methods that give credit to no common step, or whose credits differ by one factor only."""
    a, b = pair["methods"]
    if not pair["steps"]:
        return f"{a} and {b}: there is no step to which both give credit"
    return f"{a} and {b} are equal on all {pair['steps']} steps, apart from a factor that is the same for all steps"


def _one_line(text: str) -> str:
    return shorten(" ".join(text.split()), 60)
