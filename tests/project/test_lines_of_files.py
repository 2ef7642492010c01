"""A line of a user's file ends at a newline alone: names may hold U+2028, U+0085 and what else `splitlines` cuts at.

The other readers of lines (corpora, rows, steps.jsonl) read bytes or lines of an open file; see `agentrl.files`.
"""

import json

import pytest

from agentrl.env.panels import read_panel
from agentrl.envs import textworld
from agentrl.envs.alfworld.data import list_games, read_game
from agentrl.envs.sokoban.files import read_levels
from agentrl.tool_env import read_rows
from agentrl.tools.search.corpus import Corpus
from tests.envs.alfworld.small import kitchen, save

ODD = "a\u2028b\x85c\x0bd\x0ce\x1cf"
DEEP = "[" * 100_000


def test_panels(tmp_path):
    (tmp_path / "panel.txt").write_text(f"{ODD}\r\nplain # a remark\n", "utf-8", newline="")
    assert read_panel(tmp_path / "panel.txt") == [ODD, "plain"]


def test_manifests_and_lists_of_games(tmp_path):
    save(tmp_path / ODD / "trial", kitchen())
    (tmp_path / "manifest.txt").write_text(f"{ODD}/trial\n", "utf-8")
    assert [file.key for file in list_games(str(tmp_path / "manifest.txt")).files] == [f"{ODD}/trial"]
    (tmp_path / f"{ODD}.z8").write_bytes(b"story")
    (tmp_path / "list.txt").write_text(f"{ODD}.z8\n", "utf-8")
    assert textworld.game_files(tmp_path / "list.txt") == [tmp_path / f"{ODD}.z8"]


def test_levels_name_the_line(tmp_path):
    (tmp_path / "levels.txt").write_text("; a\u2028b\n#####\n#@$.#\n#####\n\n#x#\n", "utf-8")
    with pytest.raises(ValueError, match="line 6: 'x'"):
        read_levels(tmp_path / "levels.txt")


def test_rows_and_corpora(tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"id": "1", "contents": ODD}, ensure_ascii=False) + "\n", "utf-8")
    assert read_rows(tmp_path / "rows.jsonl")[0]["contents"] == ODD
    assert Corpus.scan(tmp_path / "rows.jsonl")[0].contents == ODD


@pytest.mark.parametrize(
    ("name", "read"), [("panel.json", read_panel), ("game.tw-pddl", read_game), ("corpus.jsonl", Corpus.scan)]
)
def test_values_that_nest_too_deeply_are_refused_in_one_sentence(tmp_path, name, read):
    (tmp_path / name).write_text(DEEP)
    with pytest.raises(ValueError, match=name) as refused:
        read(tmp_path / name)
    assert "\n" not in str(refused.value)
