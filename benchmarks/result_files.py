"""The files of a benchmark's result: OUT.json with the numbers, OUT.md with the table for readers."""

import json
from pathlib import Path
from typing import Any


def write(out: Path, found: Any, text: str) -> None:
    """Write both files and print the table.

    Args:
        out: path without suffix; its folder is made.
        found: the numbers, as JSON holds them.
        text: the table.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    out.with_suffix(".md").write_text(text)
    print(text)
