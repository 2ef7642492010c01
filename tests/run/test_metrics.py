"""Every reader of metrics.jsonl has the same opinion on damaged lines and on a last line that is not complete."""

import json
from pathlib import Path

import pytest

from agentrl.report import learning_curve
from agentrl.report.read_run import read_rows
from agentrl.run import RunFolder, read_metrics
from agentrl.run.metrics import check_lines
from agentrl.runs import frame, listed_runs
from tests.toys.stored_run import stored_run

DAMAGED = (b"", b"not json", b"[1]", b"null", b"{}", b'{"stage": "train"}', b'{"stage": 3, "step": 1}', bytes(40))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = stored_run(tmp_path / "run", 3)
    (run / "checkpoints" / "000003").mkdir(parents=True)
    row = {"stage": "train", "success": 0.5, "reward": 0.5, "episodes": 4, "constant_groups": 0.0}
    (run / "metrics.jsonl").write_text("".join(json.dumps({**row, "step": step}) + "\n" for step in range(3)))
    return run


def insert(run: Path, line: bytes, at: int) -> None:
    """Put a line before the line `at` of metrics.jsonl, counted from 0."""
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(b"".join([*lines[:at], line + b"\n", *lines[at:]]))


@pytest.mark.parametrize("line", DAMAGED)
def test_a_damaged_line_is_refused_or_skipped_and_never_a_row(line, run):
    before = read_metrics(run / "metrics.jsonl").rows
    insert(run, line, 1)
    folder = RunFolder(run)
    skipped = read_metrics(run / "metrics.jsonl", damaged="skip")
    assert (skipped.rows, skipped.damaged, skipped.intact) == (before, [2], 1)
    for read in (lambda: read_metrics(run / "metrics.jsonl"), lambda: read_rows(run), lambda: learning_curve(folder)):
        with pytest.raises(ValueError, match=r"line 2 of .*metrics\.jsonl is no line of metrics: "):
            read()
    (listed,) = listed_runs(run.parent)
    assert "line 2 of " in listed.broken
    with pytest.raises(ValueError, match="damaged in line 2"):
        check_lines(folder, 2)
    check_lines(folder, 1)
    assert frame(run).step == 3


@pytest.mark.parametrize("rest", [b'{"stage": "tra', b'{"stage": "train", "step": 7}', bytes(40)])
def test_a_last_line_without_its_newline_is_not_read(rest, run):
    rows = read_metrics(run / "metrics.jsonl").rows
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(rest)
    assert read_metrics(run / "metrics.jsonl").rows == read_rows(run) == rows
    assert frame(run).step == 3 and listed_runs(run.parent)[0].broken == ""
    check_lines(RunFolder(run), len(rows))


def test_what_cannot_be_read_is_refused_or_empty(tmp_path):
    assert read_metrics(tmp_path / "absent") == ([], [], 0)
    assert read_metrics(tmp_path, damaged="skip") == ([], [], 0)
    with pytest.raises(ValueError, match="cannot read "):
        read_metrics(tmp_path)
