"""docs/faults.md and the tests marked `fault` say the same: each row names tests that exist, each test has a row."""

import ast
import re
from pathlib import Path

from agentrl.types import Status

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
NAME = re.compile(r"`([\w/]+\.py)::(\w+)`")


def rows() -> list[list[str]]:
    """The cells of each row of the table, without its head and the lines that name a group."""
    lines = [line for line in (ROOT / "docs" / "faults.md").read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return [row for row in cells if any(row[1:])]


def marked() -> set[tuple[str, str]]:
    """File and name of every test function that is marked `fault`."""
    found = set()
    texts = {path: path.read_text() for path in TESTS.rglob("test_*.py")}
    for path, text in texts.items():
        for node in ast.parse(text).body if "mark.fault" in text else ():
            if isinstance(node, ast.FunctionDef) and any(
                ast.unparse(one) == "pytest.mark.fault" for one in node.decorator_list
            ):
                assert node.name.startswith("test_"), f"{path}: {node.name} is no test"
                found.add((path.relative_to(TESTS).as_posix(), node.name))
    return found


def test_every_row_is_complete_and_names_tests():
    others = {"as played", "goes on", "no run", "not stored", "scored", "the run stops"}
    statuses = {status.name.lower() for status in Status} | others
    for row in rows():
        assert len(row) == 6 and all(row), row
        assert any(word in row[1] for word in statuses), f"{row[1]} is no status of an episode"
        assert NAME.findall(row[5]), f"the row {row[0]!r} names no test"


def test_the_table_and_the_marked_tests_are_the_same():
    named = [pair for row in rows() for pair in NAME.findall(row[5])]
    assert len(set(named)) == len(named), "a test stands in two rows"
    assert set(named) == marked()
