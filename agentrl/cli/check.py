"""`agentrl check ENV [key=value ...] [--tasks N] [--json] [--games DIR --walks N]`: does ENV keep its promises?
`agentrl check RECIPE.toml --reward [key=value ...] [--tasks N] [--allow SHARE]`: are worthless answers rewarded?
`agentrl check --hooks [KIND] [--json]`: list the hooks of a file of the catalogue KIND, or of each catalogue.

The first form checks the promises of an environment: seeds, determinism, snapshots, pickling and parsing. It also runs
Gymnasium's checker. Notes name things that break no promise and may still be mistakes: an environment without a reward,
a tool that always raises, a column that divides rows into train and test. With --games, an environment with a reference
engine (ALFWorld) is compared with that engine on N walks in each game under DIR.

With --reward, attacks (empty, repeated, copied, injected and degenerate answers) play the recipe's first tasks. An
attack fools a signal or the reward if its value is closer to the value of a right answer than to that of a wrong one.
The table has the share of attacks that fool each signal and the reward. The exit code is 1 if more than SHARE of the
attacks fool the reward, or if the reward gives right and wrong answers the same value on every task.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from agentrl import catalogue
from agentrl.cli import _hooks
from agentrl.cli._parser import Parser, positive, seed, share
from agentrl.config import Entry, override, resolve
from agentrl.env import ENDLESS, EnvironmentFile
from agentrl.tool_env import RowTasks, trial_notes


def main(words: Sequence[str]) -> int:
    """See the module; exit code 1 if a check fails."""
    parser = Parser("agentrl check", __doc__)
    parser.add_argument("env", nargs="?")
    parser.add_argument("options", nargs="*", metavar="key=value")
    parser.add_argument("--tasks", type=positive, default=4, help="number of tasks to try; default 4")
    parser.add_argument("--games", type=Path)
    parser.add_argument("--walks", type=positive, default=1)
    parser.add_argument("--seed", type=seed, default=0)
    parser.add_argument("--reward", action="store_true", help="attack the scores and rewards of a recipe")
    parser.add_argument(
        "--allow", type=share, default=0.0, metavar="SHARE", help="share of attacks that may fool the reward"
    )
    parser.add_argument("--hooks", nargs="?", const="", metavar="KIND", help="list the hooks of a catalogue's files")
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON object: env, tasks, holds, findings, branches, notes; other keys with --hooks and --reward",
    )
    arguments = parser.parse_intermixed_args(words)
    if arguments.hooks is not None:
        if arguments.env is not None:
            raise ValueError(f"--hooks lists hooks and checks no environment: leave out --hooks or {arguments.env}")
        print(_hooks.listing(arguments.hooks, json=arguments.json))
        return 0
    if arguments.reward:
        from agentrl.cli import _check_reward

        return _check_reward.main(arguments)
    if arguments.env is None:
        parser.error("the following arguments are required: env")
    if arguments.games is not None:
        check = catalogue.load(EnvironmentFile, arguments.env).check
        if check is None:
            raise ValueError(f"{arguments.env} has no reference engine to compare with: leave --games out")
        return check(arguments.games, arguments.walks, arguments.seed)
    from agentrl.gym import branches_by, check_env

    options = [option.removeprefix("env.") for option in arguments.options]
    entry = resolve(EnvironmentFile, override({"name": arguments.env}, options), "env")
    findings = check_env(entry, tasks=arguments.tasks)
    played, of = _played(entry, arguments.tasks)
    branches = None if findings else branches_by(entry)
    notes = _notes(entry, broken=bool(findings), tasks=arguments.tasks)
    if arguments.json:
        found = {"env": entry.name, "tasks": played, "holds": not findings, "findings": findings}
        print(json.dumps({**found, "branches": branches, "notes": notes}))
        return 1 if findings else 0
    for line in [*findings, *(f"note: {note}" for note in notes)]:
        print(line, file=sys.stderr)
    replayed = "; it has no snapshots, so branches carry out its actions again" if branches == "replay" else ""
    verdict = f"{len(findings)} findings on {of}" if findings else f"all holds on {of}{replayed}"
    print(f"{arguments.env}: {verdict}")
    return 1 if findings else 0


def _played(entry: Entry[EnvironmentFile], asked: int) -> tuple[int, str]:
    """(number of tasks to try; this number and the number of all tasks, in words).

    0 and "no task" if the environment cannot list its tasks.
    """
    try:
        count = len(entry.hooks.tasks(entry.config))
    except Exception:  # noqa: BLE001  a finding of check_env names this error
        return 0, "no task"
    tried = min(asked, count)
    return tried, f"{tried} of {count:,} tasks" if count <= ENDLESS else f"{tried} tasks of an endless list"


def _notes(entry: Entry[EnvironmentFile], *, broken: bool, tasks: int) -> list[str]:
    """Notes on things that break no promise. If a promise is `broken`, only a note on a possible cause of this."""
    if broken:
        from agentrl.run import leak_note

        return list(filter(None, [leak_note(entry)]))
    found = entry.hooks.tasks(entry.config)
    divided = [str(found.division)] if isinstance(found, RowTasks) and found.division is not None else []
    return [*divided, *trial_notes(entry, tasks)]
