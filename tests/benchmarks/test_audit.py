"""docs/results/audit.md quotes what benchmarks/results/audit.json holds."""

import json
from pathlib import Path

from benchmarks import audit

ROOT = Path(__file__).parents[2]


def test_the_tables_of_the_page_are_those_of_the_results():
    page = (ROOT / "docs" / "results" / "audit.md").read_text()
    assert audit.written(page, json.loads(audit.RESULTS.read_text())) == page


def test_findings_of_variants_stand_in_one_row():
    law, two = {"law": "tasks", "fault": "environment"}, "tasks are alike, such as"
    rows = {
        f"Nim-v0{x}": {"laws": {"tasks": "broken"}, "versions": {}, "findings": [], "payment": None}
        for x in ("", "-large")
    }
    for number, (name, row) in enumerate(rows.items()):
        row["findings"] = [{**law, "text": f"{number + 2} {two} {name}/{number}"}]
    rows["Chess-v0"] = {"refused": "Chess-v0: no"}
    text = audit.tables({"textarena": rows})
    assert "| tasks | `Nim-v0`, `Nim-v0-large` | 2 tasks are alike, such as Nim-v0/0 | environment |" in text
    assert "| textarena  | 3 | 2 | 0 | 2 | 1 |" in text and "| `Chess-v0` | Chess-v0: no |" in text
