"""Prints the table of `agentrl check RECIPE.toml --reward`."""

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from agentrl.run import RewardCheck, check_reward
from agentrl.settings import Settings


def main(arguments: Namespace) -> int:
    """Print the share of attacks that fool each signal and the reward.

    The exit code is 1 if the share for the reward is above `--allow`, or if the reward never tells a right answer from
    a wrong one; else 0.

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
    """The table, with a line per family of attacks and a column per signal and for the reward.

    The line `all` is the share over all families. The line `right paid` is the share of tasks on which the right and
    the wrong answer have different values in the column. Below the table are the worst attack of each family, the use
    of judges, and notes.
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
            "the reward gives right and wrong answers the same on every task, so it teaches nothing, and a low share "
            "in its column does not show that it is safe"
        )
    asked = [f"judges gave {found.paid[0]} answers of {found.paid[1]} tokens"] if found.paid[0] else []
    head = f"share of attacks that each column is fooled by, on {found.tasks} tasks ({found.right} with a right answer)"
    return [head, *table, *worst, *asked, *(f"note: {note}" for note in found.notes)]
