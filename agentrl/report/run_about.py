"""What is this? A run's facts, its recipe as a difference from the defaults, and the command that repeats it."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.files import read_json
from agentrl.report.printable import printable
from agentrl.report.run_curve import phase_seconds
from agentrl.report.run_schema import AboutData, CurveData, OptionData
from agentrl.run import dollars_spent
from agentrl.settings import Settings, code_in

Row = Mapping[str, Any]
ENTRIES = ("env", "engine", "context", "sampler", "rollout", "credit", "loss")  # sections that name a catalogue entry
OF_THE_RUN = (
    "run.name",
    "run.folder",
)  # these keys only name the run; a difference in them is no difference of recipes


def about_data(
    run: Path, config: Mapping[str, Any], rows: Sequence[Row], timings: Sequence[Row], curve: CurveData
) -> AboutData:
    """See `AboutData`.

    Args:
        run: the run's folder.
        config: the content of its config.toml.
        rows: the lines of metrics.jsonl.
        timings: the lines of timings.jsonl.
        curve: the learning curve of the same lines.
    """
    recipe = recipe_difference(config)
    return AboutData(
        facts=list(_facts(config, rows, curve)),
        recipe=_options(config) if recipe is None else recipe,
        defaults=recipe is not None,
        versions=_versions(run),
        command=shlex.join(
            [
                *("agentrl", "train", f"{run_word(run)}/config.toml", f"run.name={run.resolve().name}-again"),
                *(["--trust"] if any(code_in(config)) else []),
            ]
        ),
        seconds=_seconds(timings),
    )


def run_word(run: Path) -> str:
    """The last two parts of the path of a run's folder, such as runs/NAME."""
    return "/".join(run.resolve().parts[-2:])


def _facts(config: Mapping[str, Any], rows: Sequence[Row], curve: CurveData) -> Iterator[tuple[str, str]]:
    def at(path: str) -> Any:
        value: Any = config
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    held_out = [row for row in rows if row["stage"] == "eval"]
    last: Row = held_out[-1] if held_out else {}
    policy: Mapping[str, Any] = last.get("policy", {})
    yield "environment", str(at("env.name"))
    if last:
        most = max(held_out, key=lambda row: int(row["episodes"]))
        yield "held-out tasks", f"{most['episodes']} of {most['benchmark']}, panel {most['panel']}"
    if policy.get("model"):
        size = policy.get("parameters")
        path = at("model.path")
        yield (
            "model",
            ", ".join(
                [
                    f"{policy['model']}" + (f" from {path}" if path else ", made from scratch"),
                    *([f"{size:,} parameters"] if isinstance(size, int) else []),
                    *([str(policy["dtype"])] if policy.get("dtype") else []),
                ]
            ),
        )
    yield "credit, loss", f"{at('credit.name')}, {at('loss.name')}"
    done = max((int(row["step"]) + 1 for row in rows if row["stage"] == "train"), default=0)
    ended = any(row.get("name") == "end" for row in held_out)
    yield "iterations", f"{done} of {at('run.iterations')}" + ("" if ended else ", the run has not ended")
    if done:
        yield "an iteration", f"{at('batch.tasks')} tasks, {at('batch.copies')} copies of each"
        yield "sampled in training", f"{curve.tokens[-1]:,} tokens"
    if dollars := dollars_spent(rows):
        yield "spent at the service", f"${dollars:,.2f}, by the prices of [learner]"
    if curve.cpu_s and curve.cpu_s[-1] is not None:
        yield "CPU seconds", f"{curve.cpu_s[-1]:,.0f} until the last iteration, evaluations included"
    yield "seed", str(at("run.seed"))


def recipe_difference(config: Mapping[str, Any]) -> list[OptionData] | None:
    """The keys whose value differs from the default that holds for the same environment, model and catalogue entries.

    None if the environment, the model or an entry cannot be loaded.
    """
    bare: dict[str, Any] = {
        name: {"name": config[name]["name"]} for name in ENTRIES if isinstance(config.get(name), Mapping)
    }
    bare["model"] = {key: value for key, value in config.get("model", {}).items() if key in ("path", "new")}
    if isinstance(bare["model"].get("new"), Mapping):
        bare["model"]["new"] = {}
    try:
        defaults = flat(Settings(bare).shown())
    except (ValueError, KeyError, TypeError, ImportError):
        return None
    found = flat(config)
    return [
        OptionData(key=key, value=value, default=defaults.get(key))
        for key, value in found.items()
        if key not in OF_THE_RUN and (key not in defaults or defaults[key] != value)
    ]


def _options(config: Mapping[str, Any]) -> list[OptionData]:
    return [OptionData(key=k, value=v, default=None) for k, v in flat(config).items() if k not in OF_THE_RUN]


def flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value of nested tables."""
    found: dict[str, Any] = {}
    for key, value in tables.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def _versions(run: Path) -> dict[str, str]:
    path = run / "versions.json"
    stored = printable(read_json(path, "versions file")) if path.is_file() else {}
    return {str(k): str(v) for k, v in stored.items()} if isinstance(stored, Mapping) else {}


def _seconds(timings: Sequence[Row]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for row in timings:
        total.update(phase_seconds(row))
    return {phase: float(f"{seconds:.6g}") for phase, seconds in sorted(total.items())}
