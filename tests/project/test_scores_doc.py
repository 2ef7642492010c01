"""docs/scores.md: its entries, metrics and keys exist, its own score runs, its recipes resolve."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from agentrl import catalogue
from agentrl.algorithms.score import length_rules
from agentrl.preflight import ATTACKS
from agentrl.scoring import resolve_scores
from agentrl.scoring.sections import ScoringConfig
from tests.contracts.every import NEEDED
from tests.scoring.stages import chain, signals_of, turn

PAGE = (Path(__file__).parents[2] / "docs" / "scores.md").read_text()


def test_the_table_has_every_entry_with_its_signals():
    listed = dict(re.findall(r"^\| `(\w+)` \| ([^|]*)\|", PAGE, re.M))
    assert set(listed) == set(catalogue.names("score"))
    for name, cell in listed.items():
        whole = {"rules": length_rules.RULES} if name == "length_rules" else {}
        options = {**NEEDED.get(("score", name), {}), **whole}
        (entry,) = resolve_scores({"name": name, **options})
        assert {*entry.hooks.signals(entry.config)} == {*re.findall(r"`(\w+)`", cell)}


def test_the_tables_are_sections_of_a_recipe():
    for block in re.findall(r"```toml\n(.*?)```", PAGE, re.S):
        tables = tomllib.loads(block)
        resolve_scores(tables.get("score", []))
        ScoringConfig(**tables.get("scoring", {}))
    assert f"{len(ATTACKS)} answers that are empty" in PAGE


def test_the_score_of_your_own_runs(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    (tmp_path / "compiles_of_the_page.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = signals_of({"name": "compiles_of_the_page"}, chain(turn("x = 1")), chain(turn("x = = 1")))
    sys.modules.pop("compiles_of_the_page")
    assert found == [{"compiles": 1.0}, {"compiles": 0.0}]


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", PAGE))))
def test_links_lead_somewhere(link):
    assert (Path(__file__).parents[2] / "docs" / link).is_file()
