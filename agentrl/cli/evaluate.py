"""`agentrl eval ENV --policy P [options] [key=value ...]`: how often a policy succeeds on a panel, once per task.

P is a run folder (runs/NAME), a model folder, random, one of the environment's experts (expert, oracle, ...),
openai:MODEL[@BASE_URL], or scripted:FILE (the same actions in every episode: one per line or a JSON list; the last
action is repeated). The panel is --panel FILE, --games DIR, or the first --tasks N. key=value are options of the
environment; limits.KEY=value are limits per episode (turn_tokens, episode_tokens, calls, seconds, ...).
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
from agentrl.env import ENDLESS, EnvironmentFile, panel_tasks, pool_within, read_panel, tasks_of
from agentrl.secret import scrubbed_values
from agentrl.types import Task

BUDGET = "limits."  # words with this prefix are limits; all other words are options of the environment


def main(words: Sequence[str]) -> int:
    """See the module."""
    arguments = parse(words)
    if arguments.out is not None:
        check_out(arguments.out)
    from agentrl.run import Contestant

    contestant = Contestant.of(arguments.policy, arguments.env, env_options(arguments))
    entry = environment(arguments, contestant.env_options)
    tasks = panel(arguments, entry)
    from agentrl.evaluate import evaluate
    from agentrl.rollout import TooManyFaults
    from agentrl.run import Loop, Progress

    limits = contestant.limits(budgets(arguments))
    pool = pool_within(entry, limits)
    try:
        with Progress(quiet=arguments.json) as progress, Loop() as loop:
            player = contestant.player(
                entry, pool, seed=arguments.seed, temperature=arguments.temperature, limits=limits
            )
            bar = progress.bar(f"{arguments.policy} on {entry.name}", len(tasks))
            report = loop.run(
                evaluate(player, entry, tasks, contestant.describe(), on_episode=lambda record: bar.step())
            )
    except TooManyFaults as error:
        raise ValueError(str(error)) from error
    finally:
        pool.close()
        contestant.close()
    facts = {**report.summary(), "seed": arguments.seed, "limits": limits.model_dump(exclude_none=True)}
    summary: dict[str, Any] = scrubbed_values(facts)
    print(json.dumps(summary) if arguments.json else table(summary), flush=True)
    if arguments.out is not None:
        from dataclasses import asdict

        from agentrl.files import write_atomically

        with_episodes = {**summary, "outcomes": scrubbed_values([asdict(o) for o in report.outcomes])}
        write_atomically(arguments.out, json.dumps(with_episodes, indent=1).encode())
    return 0


def check_out(path: Path) -> None:
    """Raises ValueError if the report cannot be written to `path`; checked before the first episode."""
    if path.is_dir():
        raise ValueError(f"--out {path} is a folder: name a file in it")
    folder = next(parent for parent in path.absolute().parents if parent.exists() or parent.is_symlink())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        why = os.strerror(errno.EACCES if folder.is_dir() else errno.ENOTDIR)
        raise ValueError(f"cannot write {path}: {why}; choose another folder")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The parsed command line."""
    parser = Parser("agentrl eval", __doc__)
    parser.add_argument("env")
    parser.add_argument("options", nargs="*", metavar="key=value")
    parser.add_argument("--policy", required=True)
    parser.add_argument("--split")
    parser.add_argument("--panel", type=Path, help="a file of task keys, one per line")
    parser.add_argument("--games", help="a folder: play every game under it once")
    parser.add_argument("--tasks", type=positive, help="the first N tasks (default: all, or 200 of an endless list)")
    parser.add_argument("--temperature", type=temperature, help="0 is greedy; default: the run's own")
    parser.add_argument("--turns", type=positive, help="most steps per episode (default: the run's own, else 50)")
    parser.add_argument("--seed", type=seed, default=0)
    parser.add_argument("--out", type=Path, help="write the report with every episode here, for `agentrl compare`")
    parser.add_argument("--json", action="store_true")
    return parser.parse_intermixed_args(words)


def budgets(arguments: argparse.Namespace) -> dict[str, Any]:
    """The limits on the command line, by name."""
    tables = override({}, [option for option in arguments.options if option.startswith(BUDGET)])
    limits: dict[str, Any] = tables.get("limits", {})
    return limits if arguments.turns is None else {**limits, "turns": arguments.turns}


def environment(arguments: argparse.Namespace, base: dict[str, Any]) -> Entry[EnvironmentFile]:
    """The environment, with the run's options `base` and the command's options, which override them."""
    return resolve(EnvironmentFile, merge({"name": arguments.env, **base}, env_options(arguments)), "env")


def env_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The environment's options on the command line, by name."""
    words = [option for option in arguments.options if not option.startswith(BUDGET)]
    options = override({}, [option.removeprefix("env.") for option in words])
    for key in ("split", "games"):
        if getattr(arguments, key) is not None:
            options[key] = getattr(arguments, key)
    return options


def panel(arguments: argparse.Namespace, entry: Entry[EnvironmentFile]) -> list[Task]:
    """The tasks to play."""
    if arguments.panel is not None:
        return panel_tasks(entry, read_panel(arguments.panel))
    tasks = tasks_of(entry)
    count = arguments.tasks or (len(tasks) if len(tasks) <= ENDLESS else 200)
    return [tasks[i] for i in range(min(len(tasks), count))]


def table(summary: dict[str, Any]) -> str:
    """The report as text."""
    low, high = summary["interval"]
    policy = ", ".join(f"{k}={v}" for k, v in {**summary["policy"], **summary["facts"]}.items())
    lines = [
        f"{summary['benchmark']}, panel {summary['panel']}: {policy}",
        f"success {summary['success_rate']:.1%} [{low:.1%}, {high:.1%}] on {summary['episodes']} tasks, each once",
    ]
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
        f"invalid actions {summary['invalid_share']:.1%}, truncated {summary['truncated_share']:.1%}, "
        f"environment errors {summary['env_errors']}",
        f"tokens {summary['tokens']}, seconds {summary['seconds']:.1f}, endings "
        + ", ".join(f"{k} {v}" for k, v in summary["endings"].items()),
    ]
    if summary["usage"]:
        lines.append("usage " + ", ".join(f"{k} {v:g}" for k, v in summary["usage"].items()))
    return "\n".join(lines)
