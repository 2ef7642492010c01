"""CHANGELOG.md: a person reads it, so a release has at most 60 lines, and the newest release is this version."""

import re
from pathlib import Path

from agentrl import __version__

TEXT = (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
MOST_LINES = 60  # per section, with its heading


def sections() -> dict[str, list[str]]:
    """The lines of each section, by the first word of its heading."""
    parts = re.split(r"^(?=## )", TEXT, flags=re.MULTILINE)[1:]
    return {part.split()[1]: part.rstrip().splitlines() for part in parts}


def test_a_release_has_at_most_60_lines():
    assert {name: len(lines) for name, lines in sections().items() if len(lines) > MOST_LINES} == {}


def test_what_is_unreleased_comes_first_and_then_this_version():
    assert list(sections())[:2] == ["Unreleased", __version__]
