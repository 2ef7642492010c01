"""The page of the literature names every entry of the algorithms, and no key that does not exist."""

import re
from pathlib import Path

from agentrl import catalogue
from agentrl.settings import explain

KINDS = ("credit", "loss", "rollout", "context", "reward", "score", "sampler", "guide", "replay", "regularizer")
PAGE = Path("docs/literature.md").read_text()
SHORT = re.findall(r"\b(\w+)\.name=(\w+)", PAGE)
LONG = [(kind, name) for kind, name in re.findall(r"\b(\w+)=\[?\{name=\"(\w+)\"", PAGE)]
KEYS = {("regularizer" if kind == "regularizers" else kind, name) for kind, name in [*SHORT, *LONG]}


def test_every_key_exists():
    assert len(KEYS) > 60
    assert not [key for key in sorted(KEYS) if key[0] not in KINDS or key[1] not in catalogue.names(key[0])]


def options(kind: str, name: str) -> set[str]:
    section = next(section for section, one in explain.CATALOGUE.items() if one == kind)
    return {key.path.rpartition(".")[2] for key in explain.entry_keys(section, name)}


def test_every_option_beside_an_entry_is_one_of_it():
    """`tie="first"` stands in the line of `score.name=agreement`, whose option it is; so do options in tables."""
    checked = 0
    for line in PAGE.splitlines():
        named = [*re.findall(r"\b(\w+)\.name=(\w+)", line), *re.findall(r"\b(\w+)=\[?\{name=\"(\w+)\"", line)]
        if not named:
            continue
        known = {
            option for kind, name in named for option in options({"regularizers": "regularizer"}.get(kind, kind), name)
        }
        given = re.findall(r"[`{ ](\w+)=", " ".join(re.findall(r"`[^`]+`", line)))
        assert {*given} - {"name", "guide"} <= known, line
        checked += len({*given} & known)
    assert checked > 15


def test_every_entry_is_named():
    entries = {(kind, name) for kind in KINDS for name in catalogue.names(kind)}
    assert not sorted(entries - KEYS)


def test_every_line_says_works_or_part():
    rows = [line.split("|")[2].strip() for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line]
    assert set(rows) == {"state", "works", "part"}
