"""The learning curve of a run as a picture (extra `report`)."""

from pathlib import Path
from typing import Any

from agentrl.run import RunFolder, read_metrics


def check_matplotlib() -> None:
    """Raises ValueError if matplotlib is missing; a run checks this before it trains for hours."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ValueError("log.picture=true needs matplotlib: pip install 'agentrl-stepgraph[report]'") from None


def learning_curve(folder: RunFolder) -> Path:
    """Draw success per iteration on training tasks, and held-out evaluations with their 95% intervals.

    Returns:
        Path of the PNG file.

    Raises:
        ValueError: matplotlib is missing.
    """
    check_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = read_metrics(folder.metrics)
    train = [r for r in rows if r["stage"] == "train"]
    figure, axes = pyplot.subplots(figsize=(7.5, 4.2), dpi=120)
    alone = [r for r in train if "success" in r]  # not where all chains of an iteration had a guide's help
    axes.plot([r["step"] + 1 for r in alone], [r["success"] for r in alone], color="0.75", lw=1, label="training tasks")
    cloned = any(r.get("name") == "clone" for r in rows)  # then the clone is iteration 0, else the start
    held_out = [r for r in rows if r["stage"] == "eval" and not (cloned and r["name"] == "start")]
    for mode, colour in (("sampled", "tab:blue"), ("greedy", "tab:orange")):
        _points(axes, [r for r in held_out if r["mode"] == mode], mode, colour)
    axes.set(
        xlabel="iteration", ylabel="success", ylim=(0, 1), title=f"{folder.path.name}: success on tasks never seen"
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", frameon=False)
    figure.tight_layout()
    path = folder.path / "learning_curve.png"
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)
    return path


def _points(axes: Any, rows: list[dict[str, Any]], mode: str, colour: str) -> None:
    """Plot the evaluations of one mode; the evaluation of the clone is at iteration 0."""
    if not rows:
        return
    at = [0 if r["name"] == "clone" else r["step"] for r in rows]
    rate = [r["success_rate"] for r in rows]
    below = [max(0.0, r["success_rate"] - r["interval"][0]) for r in rows]  # older runs store bounds beyond the rate
    above = [max(0.0, r["interval"][1] - r["success_rate"]) for r in rows]
    axes.errorbar(
        at, rate, yerr=[below, above], color=colour, marker="o", ms=4, lw=1.5, capsize=3, label=f"held-out, {mode}"
    )
