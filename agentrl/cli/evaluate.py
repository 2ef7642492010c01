"""`agentrl eval ENV --policy P [options] [key=value ...]`: how often a policy succeeds, each task of a panel once.

P is a run folder (runs/NAME), a model folder, random, one of the environment's experts (expert, oracle, ...),
openai:MODEL[@BASE_URL], or scripted:FILE (the same actions in every episode: one a line, or a JSON list; the last one
goes on). The panel is --panel FILE, --games DIR, or the first --tasks N. key=value are options of the
environment; limits.KEY=value are budgets of an episode (turn_tokens, episode_tokens, calls, seconds, ...).
"""

import argparse
import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl.cli._parser import Parser, positive, seed, temperature
from agentrl.config import Entry, merge, override, resolve
from agentrl.env import ENDLESS, EnvironmentFile, make_pool, panel_tasks, read_panel, tasks_of
from agentrl.secret import scrubbed_values
from agentrl.types import Task

BUDGET = "limits."  # how a word begins that is no option of the environment


def main(words: Sequence[str]) -> int:
    """See the module."""
    given = parse(words)
    if given.out is not None:
        check_out(given.out)
    from agentrl.run import Contestant

    contestant = Contestant.of(given.policy, given.env, env_options(given))
    entry = environment(given, contestant.env_options)
    tasks = panel(given, entry)
    from agentrl.evaluate import evaluate
    from agentrl.rollout import TooManyFaults
    from agentrl.run import Loop, Progress

    limits = contestant.limits(budgets(given))
    pool = make_pool(
        entry, timeout_s=limits.call_seconds, start_s=limits.start_seconds, output_chars=limits.output_chars
    )
    try:
        with Progress(quiet=given.json) as progress, Loop() as loop:
            player = contestant.player(entry, pool, seed=given.seed, temperature=given.temperature, limits=limits)
            bar = progress.bar(f"{given.policy} on {entry.name}", len(tasks))
            report = loop.run(
                evaluate(player, entry, tasks, contestant.describe(), on_episode=lambda record: bar.step())
            )
    except TooManyFaults as error:
        raise ValueError(str(error)) from error
    finally:
        pool.close()
        contestant.close()
    facts = {**report.summary(), "seed": given.seed, "limits": limits.model_dump(exclude_none=True)}
    summary: dict[str, Any] = scrubbed_values(facts)
    print(json.dumps(summary) if given.json else table(summary), flush=True)
    if given.out is not None:
        from dataclasses import asdict

        from agentrl.files import write_atomically

        whole = {**summary, "outcomes": scrubbed_values([asdict(o) for o in report.outcomes])}
        write_atomically(given.out, json.dumps(whole, indent=1).encode())
    return 0


def check_out(path: Path) -> None:
    """Raises ValueError if the report could not be written there: told before anything is played."""
    if path.is_dir():
        raise ValueError(f"--out {path} is a folder: name a file in it")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        why = os.strerror(errno.EACCES if folder.is_dir() else errno.ENOTDIR)
        raise ValueError(f"cannot write {path}: {why}; choose another folder")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command's words."""
    parser = Parser("agentrl eval", __doc__)
    parser.add_argument("env")
    parser.add_argument("options", nargs="*", metavar="key=value")
    parser.add_argument("--policy", required=True)
    parser.add_argument("--split")
    parser.add_argument("--panel", type=Path, help="a file of task keys, one a line")
    parser.add_argument("--games", help="a folder: every game under it, once")
    parser.add_argument("--tasks", type=positive, help="the first N tasks (default: all, or 200 of an endless list)")
    parser.add_argument("--temperature", type=temperature, help="0 is greedy; default: the run's own")
    parser.add_argument("--turns", type=positive, help="steps an episode may take (default: the run's own, else 50)")
    parser.add_argument("--seed", type=seed, default=0)
    parser.add_argument("--out", type=Path, help="write the report with every episode here, for `agentrl compare`")
    parser.add_argument("--json", action="store_true")
    return parser.parse_intermixed_args(words)


def budgets(given: argparse.Namespace) -> dict[str, Any]:
    """The limits of the command."""
    words = override({}, [option for option in given.options if option.startswith(BUDGET)])
    found: dict[str, Any] = words.get("limits", {})
    return found if given.turns is None else {**found, "turns": given.turns}


def environment(given: argparse.Namespace, base: dict[str, Any]) -> Entry[EnvironmentFile]:
    """The environment under the run's options, then the command's."""
    return resolve(EnvironmentFile, merge({"name": given.env, **base}, env_options(given)), "env")


def env_options(given: argparse.Namespace) -> dict[str, Any]:
    """The command's options of the environment."""
    own = [option for option in given.options if not option.startswith(BUDGET)]
    options = override({}, [option.removeprefix("env.") for option in own])
    for key in ("split", "games"):
        if getattr(given, key) is not None:
            options[key] = getattr(given, key)
    return options


def panel(given: argparse.Namespace, entry: Entry[EnvironmentFile]) -> list[Task]:
    """The tasks to play."""
    if given.panel is not None:
        return panel_tasks(entry, read_panel(given.panel))
    tasks = tasks_of(entry)
    count = given.tasks or (len(tasks) if len(tasks) <= ENDLESS else 200)
    return [tasks[i] for i in range(min(len(tasks), count))]


def table(summary: dict[str, Any]) -> str:
    """The report for the eye."""
    low, high = summary["interval"]
    policy = ", ".join(f"{k}={v}" for k, v in {**summary["policy"], **summary["facts"]}.items())
    lines = [
        f"{summary['benchmark']}, panel {summary['panel']}: {policy}",
        f"success {summary['success_rate']:.1%} [{low:.1%}, {high:.1%}] on {summary['episodes']} tasks, each once",
    ]
    for name, one in summary["per_type"].items():
        a, b = one["interval"]
        lines.append(f"  {name:36} {one['success_rate']:6.1%} [{a:.1%}, {b:.1%}]  of {one['episodes']}")
    if summary["measures"]:
        lines.append("means " + ", ".join(f"{name} {value:.3f}" for name, value in summary["measures"].items()))
    if summary["signals"]:
        lines.append("signals " + ", ".join(f"{name} {value:.3f}" for name, value in summary["signals"].items()))
    if summary["mean_calls"]:
        failed = f"steps with a failed one {summary['tool_error_share']:.1%}"
        lines.append(f"tool calls {summary['mean_calls']:.1f}, {failed}")
    lines += [
        f"steps {summary['mean_steps']:.1f} (successes {summary['mean_steps_success']:.1f}), "
        f"invalid actions {summary['invalid_share']:.1%}, truncated {summary['truncated_share']:.1%}, "
        f"environment errors {summary['env_errors']}",
        f"tokens {summary['tokens']}, seconds {summary['seconds']:.1f}, endings "
        + ", ".join(f"{k} {v}" for k, v in summary["endings"].items()),
    ]
    if summary["usage"]:
        lines.append("usage " + ", ".join(f"{k} {v:g}" for k, v in summary["usage"].items()))
    return "\n".join(lines)
