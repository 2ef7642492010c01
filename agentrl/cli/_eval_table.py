"""The report of `agentrl eval` as text."""

from typing import Any


def table(summary: dict[str, Any]) -> str:
    """The report as text."""
    low, high = summary["interval"]
    facts = {**summary["policy"], **summary["facts"]}
    policy = ", ".join(f"{k}={v}" for k, v in facts.items() if v not in (None, [], {}))
    lines = [
        f"{summary['benchmark']}, panel {summary['panel']}: {policy}",
        f"success {summary['success_rate']:.1%} [{low:.1%}, {high:.1%}] on {_played(summary)}",
    ]
    if abs(summary["mean_reward"] - summary["success_rate"]) > 1e-9:  # if both are equal, one line is enough
        lines.append(f"mean return {summary['mean_reward']:.3f} (sum of an episode's rewards)")
    if "per_sample" in summary:
        lines.append("success per sample " + ", ".join(f"{rate:.1%}" for rate in summary["per_sample"]))
    for name, rate in summary["per_type"].items():
        a, b = rate["interval"]
        lines.append(f"  {name:36} {rate['success_rate']:6.1%} [{a:.1%}, {b:.1%}]  of {rate['episodes']}")
    if summary["measures"]:
        lines.append("means " + ", ".join(f"{name} {value:.3f}" for name, value in summary["measures"].items()))
    if summary["signals"]:
        lines.append("signals " + ", ".join(f"{name} {value:.3f}" for name, value in summary["signals"].items()))
    if summary["mean_calls"]:
        failed = f"steps with a failed call {summary['tool_error_share']:.1%}"
        lines.append(f"tool calls {summary['mean_calls']:.1f}, {failed}")
    lines += [
        f"steps {summary['mean_steps']:.1f} (successes {summary['mean_steps_success']:.1f}), "
        f"answers without a valid action {summary['invalid_share']:.1%}, episodes cut by a limit "
        f"{summary['truncated_share']:.1%}, "
        f"episodes lost to faults {summary['env_errors']}",
        f"tokens {summary['tokens']}, wall time {summary['wall_seconds']:.1f} s, endings "
        + ", ".join(f"{k} {v}" for k, v in summary["endings"].items()),
    ]
    lines += [f"fault, {count} times: {fault}" for fault, count in summary.get("faults", {}).items()]
    if summary["usage"]:
        lines.append("usage " + ", ".join(f"{k} {v:.10g}" for k, v in summary["usage"].items() if k != "cost"))
    if "cost" in summary["usage"]:
        lines.append(f"cost {summary['usage']['cost']:.4f} USD, by endpoint.price_in and endpoint.price_out")
    lines += [failure["line"] for failure in summary["failures"].values()]
    return "\n".join(lines)


def _played(summary: dict[str, Any]) -> str:
    if summary["samples"] == 1:
        return f"{summary['episodes']} tasks, each once"
    return f"{summary['episodes']} episodes, {summary['samples']} samples of each task"
