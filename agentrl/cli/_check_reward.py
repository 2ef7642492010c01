"""Prints the table of `agentrl check RECIPE.toml --reward`."""

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from agentrl.preflight import RewardCheck, check_reward
from agentrl.settings import Settings


def main(arguments: Namespace) -> int:
    """Print the share of attacks that fool each signal and the reward.

    The exit code is 1 if the share for the reward is above `--allow`, or if the reward gives right and wrong answers
    the same value on every task; else 0.

    Raises:
        ValueError: no recipe is named, or it has a mistake.
    """
    if arguments.env is None or not arguments.env.endswith(".toml"):
        raise ValueError("--reward attacks the rewards of a recipe: write agentrl check RECIPE.toml --reward")
    settings = Settings.load(Path(arguments.env), arguments.options)
    found = check_reward(settings, arguments.tasks)
    share = found.share("reward")
    holds = share <= arguments.allow and found.separates.get("reward", 1.0) > 0
    if arguments.json:
        print(json.dumps({"recipe": arguments.env, "holds": holds, "share": share, **asdict(found)}))
    else:
        print("\n".join(lines(found)))
    return int(not holds)


def lines(found: RewardCheck) -> Sequence[str]:
    """The table as text: one line per family of attacks, one column per signal, and one column for the reward.

    The line `all` has the share over all families. The line `right paid` has the share of tasks on which the right and
    the wrong answer have different values in the column. Below the table are the attack of each family that fools the
    reward most often, the number of answers of judges, and notes.
    """
    families = list(dict.fromkeys(row.family for row in found.rows))
    columns = list(dict.fromkeys(row.column for row in found.rows))
    by = {(row.family, row.column): row for row in found.rows}
    cells = [["", *columns]]
    for family in families:
        own = [by[family, column] for column in columns]
        cells.append([family, *(f"{row.fooled / row.tried:.0%}" if row.tried else "-" for row in own)])
    apart = [found.separates.get(column) for column in columns]
    cells.append(["all", *(f"{found.share(column):.0%}" for column in columns)])
    cells.append(["right paid", *("-" if x is None else f"{x:.0%}" for x in apart)])
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    table = ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in cells]
    paid = [row for row in found.rows if row.column == "reward" and row.worst]
    worst = [f"{row.family}: {row.worst!r} is paid like a right answer" for row in paid]
    if found.separates.get("reward") == 0:
        worst.append(
            "the reward gives right and wrong answers the same on every task, so it teaches nothing; a low share in "
            "its column is then no sign that the reward is safe"
        )
    asked = [f"judges gave {found.paid[0]} answers of {found.paid[1]} tokens"] if found.paid[0] else []
    head = f"share of attacks that fool each column, on {found.tasks} tasks ({found.right} with a right answer)"
    return [head, *table, *worst, *asked, *(f"note: {note}" for note in found.notes)]
