"""Writes docs/results/reliability.md from the reports of the four parts of a campaign, which must be of one commit.

The words are in page.template; the functions of this module return the fields of this template.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.reliability.recipes import CONFIGURATIONS

TEMPLATE = Path(__file__).with_name("page.template")
PARTS = ("kill", "fault", "load", "soak")
KEEPS = {
    "trees": "Tree-GRPO, curriculum sampler, KL in the reward with its reference model",
    "critic": "turn-PPO with a critic of its own, Muon",
    "agents": "M-GRPO, two policies, a regularizer with a history",
    "contexts": "a memory that the model writes",
    "rewards": "dynamic sampling, KL in the reward, two epochs, a budget of tokens",
    "stream": "single-stream values of prompts",
    "workers": "environments in worker processes",
    "service": "weights, optimiser and KL reference at a training server, which is killed too",
}
PLACES = {
    "inline": "this process",
    "threads": "threads",
    "processes": "worker processes",
    "deaths": "worker processes that die of a failure",
}
Report = Mapping[str, Any]


def read(folder: Path) -> dict[str, Report]:
    """The four reports of a folder.

    Raises:
        SystemExit: one is missing, or they are of different commits or of changed files.
    """
    found: dict[str, Report] = {}
    for part in PARTS:
        path = folder / f"campaign-{part}.json"
        if not path.is_file():
            raise SystemExit(f"{path} is missing: python benchmarks/campaign.py {part} --out {path}")
        found[part] = json.loads(path.read_text())
    commits = {part: report.get("commit", "") for part, report in found.items()}
    if len(set(commits.values())) > 1 or not commits["kill"] or commits["kill"].endswith("+"):
        words = ", ".join(f"{part} of {commit or 'none'}" for part, commit in commits.items())
        raise SystemExit(f"the reports are not of one commit ({words}): run the four parts again without changes")
    return found


def page(reports: Mapping[str, Report]) -> str:
    """The page."""
    kill, fault, full, long = (reports[part] for part in PARTS)
    fields = {**head(reports), **kills(kill), **faults(fault), **actions(fault), **load(full), **soak(long)}
    return TEMPLATE.read_text().format(**fields)


def head(reports: Mapping[str, Report]) -> dict[str, str]:
    """What was run, where, and what was lost."""
    lines = [
        f"python benchmarks/campaign.py {part} --minutes {reports[part]['asked_minutes']:g} "
        f"--seed {reports[part]['seed']} --out benchmarks/results/campaign-{part}.json"
        for part in PARTS
    ]
    lost = [f"{part}: {why}" for part in PARTS for why in reports[part]["lost"]]
    verdict = "**Nothing was lost.**" if not lost else "**Lost:**\n\n" + "\n".join(f"- {why}" for why in lost)
    first, took = reports["kill"], ", ".join(f"{part} {reports[part]['minutes']:g}" for part in PARTS)
    return {
        "commands": "\n".join([*lines, "python benchmarks/campaign.py page"]),
        "commit": first["commit"],
        "machine": first["machine"],
        "python": first["python"],
        "took": took,
        "verdict": verdict,
    }


def kills(report: Report) -> dict[str, str]:
    """The section on kills."""
    by, compared = report["kills_by_configuration"], report["runs_compared_by_configuration"]
    rows = ((f"`{name}`", KEEPS[name], by.get(name, 0), compared.get(name, 0)) for name in CONFIGURATIONS)
    signals = ", ".join(f"{name} {count}" for name, count in report["kills_by_signal"].items())
    return {
        "kills_table": table(("configuration", "what it keeps between iterations", "kills", "runs compared"), rows),
        "stages_table": table(("where it was killed", "kills"), report["kills_by_stage"].items()),
        "kills": str(report["kills"]),
        "compared": str(report["runs_compared"]),
        "fresh": str(report["kills_of_fresh_interpreters"]),
        "signals": signals,
        "server_kills": server_kills(report.get("training_server_killed", {})),
    }


def server_kills(ends: Mapping[str, int]) -> str:
    """A sentence on the runs whose training server was killed, by exit code; empty if there was none."""
    if not ends:
        return ""
    words = {
        "75": "{} ended by themselves with code 75, which tells a supervisor to start the command again",
        "2": "{} began while the server was away, and said so (code 2)",
        "0": "{} reached their end all the same",
    }
    told = "; ".join(words.get(code, "{} ended with code " + code).format(count) for code, count in ends.items())
    return f"\nThe training server was killed {sum(ends.values())} times under a run: {told}.\n"


def faults(report: Report) -> dict[str, str]:
    """The section on faults."""
    rows = [
        (
            PLACES[place],
            len(run["faults_by_kind"]),
            run["faults"],
            run["counted"],
            f"{run['retried_episodes']}, {run['given_up_episodes']}, {run['scored_episodes']} of {run['episodes']}",
            run["scored_in_silence"],
            "yes" if run["stopped"] else "no",
        )
        for place, run in report["runs"].items()
    ]
    columns = ("environments run in", "kinds", "failures", "counted in metrics")
    columns += ("episodes: retried, given up, scored", "scored in silence", "stopped at its time")
    return {"faults_table": table(columns, rows), "faults_missing": missing(report["not_begun"])}


def actions(report: Report) -> dict[str, str]:
    """The section on hostile actions."""
    rows = (
        (
            f"`{name}`",
            f"{one['actions']:,}",
            round(one["cpu_us_per_action"]),
            one["slowest_action_cpu_ms"],
            len(one["lost"]),
        )
        for name, one in report["actions"].items()
    )
    columns = ("environment", "actions", "CPU microseconds each", "slowest, CPU ms", "lost")
    return {"actions_table": table(columns, rows), "bound": f"{report['bound_cpu_s']:g}"}


def load(report: Report) -> dict[str, str]:
    """The section on load."""
    rows = (
        (name, f"{row['episodes']:,}", row["cpu_s"], row["cpu_ms_per_episode"], row["memory_mb"], row["kb_per_episode"])
        for name, world in report["worlds"].items()
        for row in world
        if "error" not in row
    )
    large = (
        (name, row["cpu_s"], row["wall_s"], row["memory_mb"])
        for name, row in report["large"].items()
        if "error" not in row
    )
    columns = ("environment", "episodes at once", "CPU s", "CPU ms per episode", "memory, MB", "KB per episode")
    return {
        "load_table": table(columns, rows),
        "large_table": table(("observations, in", "CPU s (without worker processes)", "wall s", "memory, MB"), large),
        "load_missing": missing(report["not_measured"]),
    }


def soak(report: Report) -> dict[str, str]:
    """The section on memory over time."""
    slope, error = report["mb_per_100_iterations"]
    row = (
        report["configuration"],
        f"{report['iterations']:,}",
        report["warm_up_iterations"],
        f"{report['base_mb']} MB",
        f"{report['above_base_mb']} MB",
        f"{slope} MB (standard error {error})",
        *("{} to {}".format(*report[name]) for name in ("descriptors", "threads", "files")),
    )
    columns = (
        "run",
        "iterations",
        "of them warm-up",
        "memory then",
        "above it at the end",
        "growth per 100 iterations",
    )
    return {"soak_table": table((*columns, "descriptors", "threads", "temporary files"), [row])}


def table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table of Markdown."""
    return "\n".join(_lines([*columns], rows))


def _lines(columns: list[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"| {' | '.join('---' for _ in columns)} |"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


def missing(names: Iterable[str]) -> str:
    """A sentence on what the time did not suffice for; empty if there is nothing."""
    listed = ", ".join(names)
    return f"\nThe time did not suffice for: {listed}.\n" if listed else ""
