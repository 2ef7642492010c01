"""`agentrl diagnose RUN [--iterations A:B] [--json]`: what a run decides in each situation, and with what success.

It reads the run's stored rollouts. The table has one line per situation. A decision is the choice of an action in a
step. The hook `situation` of the environment's file gives each decision the name of a situation; without this hook, the
name is the kind of the action. Columns:
  n/episode   decisions per episode
  episodes    share of episodes with such a decision
  success     success rate of the episodes with such a decision
  others      success rate of the episodes without such a decision
  entropy     nats per decision
  varies      counted are the groups that decided at least twice in one state, with such a decision among these: share
              of the groups that also made a decision of another situation in this state
  if, else    in the states in which a group made decisions of several situations: success rate of the decisions of this
              line, and of the other decisions; a decision succeeds if its episode succeeds
  back        share of decisions that led back to an earlier state of the episode, or left the state unchanged
Below the table are the situations in which the policy has become certain although the episodes still fail often.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentrl.cli._parser import Parser, positive
from agentrl.evaluate import Finding, SituationRow, certain_too_early, pooled, situation_rows
from agentrl.files import read_toml
from agentrl.graph import read_graph
from agentrl.settings import Settings

LAST = 10  # number of stored iterations that are shown without --iterations


def main(words: Sequence[str]) -> int:
    """See the module."""
    parser = Parser("agentrl diagnose", __doc__)
    parser.add_argument("run", type=Path, help="a run's folder, such as runs/NAME")
    parser.add_argument("--iterations", type=span, metavar="A:B", help=f"from A to before B; default: the last {LAST}")
    parser.add_argument(
        "--rows", type=positive, default=25, help="number of situations to print, the most frequent ones; default 25"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, with every situation")
    given = parser.parse_args(words)
    rows, shown = read_rows(given.run, given.iterations)
    table, findings = pooled(row for row in rows if row.iteration in shown), certain_too_early(rows)
    if given.json:
        print(json.dumps(as_json(shown, table, findings), ensure_ascii=False))
    else:
        print(as_text(shown, table, findings, given.rows))
    return 0


def span(text: str) -> range:
    """The iterations from A to before B, from the text A:B; A or B may be left out."""
    first, colon, end = text.partition(":")
    numbers = [side for side in (first, end) if side]
    if not colon or not all(side.isascii() and side.isdecimal() and len(side) < 10 for side in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} is no span of iterations: write A:B, such as 40:60")
    found = range(int(first or 0), int(end or 10**9))
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} holds no iteration: B is not part of the span, so give B above A")
    return found


def read_rows(run: Path, wanted: range | None) -> tuple[list[SituationRow], list[int]]:
    """(the rows of all stored iterations up to the last one to show, the iterations to show).

    Raises:
        ValueError: the folder holds no run or no stored graph, or no stored iteration is in `wanted`.
    """
    recipe = run / "config.toml"
    if not recipe.is_file():
        raise ValueError(f"{run} is no run folder: it has no config.toml")
    files = {int(file.stem): file for file in sorted((run / "graphs").glob("*.safetensors")) if file.stem.isdecimal()}
    if not files:
        raise ValueError(f"{run} has no stored graphs: train with run.graphs_every of 1 or more")
    shown = [*files][-LAST:] if wanted is None else [iteration for iteration in files if iteration in wanted]
    if wanted is not None and not shown:
        raise ValueError(
            f"{run} has no stored graph in --iterations {wanted.start}:{wanted.stop}: "
            f"it has {len(files)}, from iteration {min(files)} to {max(files)}"
        )
    situation = Settings(read_toml(recipe)).env.hooks.situation
    before_end = [iteration for iteration in files if iteration <= max(shown)]
    return [row for i in before_end for row in situation_rows(read_graph(files[i]), i, situation)], shown


def as_json(shown: Sequence[int], table: Sequence[SituationRow], findings: Sequence[Finding]) -> dict[str, Any]:
    """The object that --json prints; an unknown number is null."""
    rows = [{key: None if value != value else value for key, value in asdict(row).items()} for row in table]
    return {"iterations": [min(shown), max(shown)], "situations": rows, "findings": [asdict(one) for one in findings]}


def as_text(shown: Sequence[int], table: Sequence[SituationRow], findings: Sequence[Finding], most: int) -> str:
    """The table and the findings."""
    first = table[0] if table else None
    episodes, won = (first.episodes + first.others, first.won + first.others_won) if first else (0, 0)
    width = max([9, *(len(row.situation) for row in table[:most])])
    lines = [f"iterations {min(shown)} to {max(shown)}: {episodes} episodes, {share(won, episodes)} succeeded"]
    lines.append(f"{'situation':{width}} n/episode episodes success  others entropy  varies      if    else    back")
    for row in table[:most]:
        cells = [
            f"{row.decisions / episodes:9.2f}",
            f"{share(row.episodes, episodes):>8}",
            f"{share(row.won, row.episodes):>7}",
            f"{share(row.others_won, row.others):>7}",
            f"{'-' if math.isnan(row.entropy) else format(row.entropy, '.2f'):>7}",
            f"{share(row.varied, row.groups):>7}",
            f"{share(row.chosen_won, row.chosen):>7}",
            f"{share(row.instead_won, row.instead):>7}",
            f"{share(row.revisits, row.decisions):>7}",
        ]
        lines.append(f"{row.situation:{width}} {' '.join(cells)}")
    if len(table) > most:
        lines.append(f"and {len(table) - most} more situations: --rows {len(table)} prints them")
    return "\n".join([*lines, *(f"{one.severity}: {one.text}" for one in findings)])


def share(part: int, whole: int) -> str:
    """Percent; a dash if there is nothing to divide by."""
    return f"{part / whole:.1%}" if whole else "-"
