"""Rows of generated tasks: part by part, made when they are read."""

import pytest

from agentrl.tool_env import PartRows


def test_rows_come_part_by_part_from_the_first_number():
    made = []
    rows = PartRows(lambda part, number: made.append(number) or {"key": f"{part}/{number}"}, ("train", "test"), 5, 2)
    assert len(rows) == 4 and made == []
    assert [row["key"] for row in rows] == ["train/5", "train/6", "test/5", "test/6"]
    assert rows[-1]["key"] == "test/6" and [row["key"] for row in rows[1:3]] == ["train/6", "test/5"]
    with pytest.raises(IndexError):
        rows[4]
