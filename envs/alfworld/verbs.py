"""The verbs of `agentrl envs alfworld`."""

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from agentrl.cli import Parser, positive, seed
from agentrl.envs.alfworld.data import ARCHIVES, DOWNLOAD, FETCH, PUBLISHED, RELEASE, data_root, list_split
from agentrl.envs.alfworld.experts import EXPERTS
from agentrl.envs.alfworld.export import write_games
from agentrl.envs.alfworld.generate import Keys
from agentrl.envs.alfworld.levels import LEVELS


def about(words: Sequence[str]) -> int:
    """What games there are to play here, and how to get the rest.

    Args:
        words: `data=DIR` looks there instead of in $ALFWORLD_DATA.
    """
    parser = Parser("agentrl envs alfworld", "what games there are, how to get the rest")
    parser.add_argument("data", nargs="?", default="", help="data=DIR; default: $ALFWORLD_DATA")
    data = str(parser.parse_args(list(words)).data).removeprefix("data=")
    print("generated games (alfworld-gen), nothing to download: level=")
    for level in LEVELS.values():
        print(f"  {level.name:8} {level.about}")
    print(f"published games: source=data, or data=DIR ({_where(data)})")
    for line in _published(data):
        print(f"  {line}")
    for line in _how_to_get_them():
        print(f"  {line}")
    reference = "installed" if find_spec("textworld") else "pip install 'agentrl-stepgraph[textworld]'"
    print(f"engines: native (default), textworld for reference ({reference})")
    print(f"experts: {', '.join(EXPERTS)}")
    print("write generated games as files: agentrl envs alfworld write --help")
    return 0


def _where(data: str) -> str:
    return data or os.environ.get("ALFWORLD_DATA") or "$ALFWORLD_DATA is not set"


def _published(data: str) -> list[str]:
    try:
        data_root(data)
    except ValueError as error:
        return [str(error)]
    lines = []
    for split in PUBLISHED:
        try:
            lines += list_split(data, split).report().splitlines()
        except ValueError as error:
            lines.append(str(error))
    return lines


def _how_to_get_them() -> list[str]:
    """Two ways to fill a data folder, and what it then holds."""
    return [
        f"to get or repair them: {DOWNLOAD}",
        "or on another machine with a network, without installing anything (then copy DIR here):",
        *(f"  {line}" for line in FETCH),
        *(f"  {archive.facts()}" for archive in ARCHIVES),
        f"DIR then holds {RELEASE}/SPLIT/TASK/TRIAL/{{traj_data.json,game.tw-pddl}}; after the official filters "
        + ", ".join(f"{split} has {count} games" for split, count in PUBLISHED.items()),
    ]


def write(words: Sequence[str]) -> int:
    """Write generated games in the official layout, which ALFWorld's own loader reads."""
    parser = Parser("agentrl envs alfworld write", write.__doc__)
    parser.add_argument("folder", type=Path, help="data root; the games go to FOLDER/SPLIT")
    parser.add_argument("--split", default="train", choices=list(PUBLISHED))
    parser.add_argument("--level", default="full", choices=list(LEVELS))
    parser.add_argument("--count", type=positive, default=100)
    parser.add_argument("--seed", type=seed, default=0)
    given = parser.parse_args(list(words))
    keys = islice(Keys(given.level, given.split, seed=given.seed), given.count)
    files = write_games(given.folder, keys)
    print(f"{len(files)} games of level {given.level} in {given.folder / given.split}", file=sys.stderr)
    return 0
