"""Tasks of a user's git repositories."""

import json
import subprocess
import sys

import pytest

from agentrl.cli import main
from agentrl.envs import code_repo
from agentrl.envs.code_repo import Config
from agentrl.envs.code_repo.prepare import read, shown
from agentrl.tool import action as tool_action

CODE = (
    "def span(values):\n    return max(values) - min(values)\n\n\ndef late(hour):\n    return hour >= 22 or hour < 6\n"
)
TESTS = (
    "import unittest\n\nfrom times import late, span\n\n\nclass Times(unittest.TestCase):\n"
    "    def test_span(self):\n        self.assertEqual(span([3, 9, 4]), 6)\n\n"
    "    def test_late(self):\n        self.assertTrue(late(23) and late(2) and late(22))\n\n"
    "    def test_not_late(self):\n        self.assertFalse(late(6) or late(12))\n\n"
    "    def test_equal(self):\n        self.assertEqual(span([2]), 0)\n"
)


def repository(folder, **files):
    folder.mkdir()
    for name, text in {"times.py": CODE, "test_times.py": TESTS, **files}.items():
        (folder / name).write_text(text)
    (folder / "picture.png").write_bytes(b"\x89PNG\xff\x00")
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def test_a_repository_becomes_tasks_that_the_expert_solves(tmp_path, capsys):
    repository(tmp_path / "clock")
    out = tmp_path / "tasks.jsonl"
    words = ["envs", "code_repo", "prepare", str(tmp_path / "clock"), "--out", str(out), "--count", "3"]
    assert main(words) == 0
    assert "clock: 1 files of tests, 3 tasks" in capsys.readouterr().out
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    first = out.read_bytes()
    assert main(words) == 0 and out.read_bytes() == first  # the same seed, the same bytes
    for row in rows:
        ((path, old, new),) = row["fixes"]
        assert row["files"][path].replace(old, new, 1) == CODE and "picture.png" not in row["files"]
        assert (
            row["hidden"]["files"] == {"test_times.py": TESTS} and row["files"]["test_times.py"].count("def test") == 2
        )
    config = Config(rows=str(out))
    (task, *_) = code_repo.tasks(config)
    env = code_repo.make(config)
    seen, expert = env.reset(task), code_repo.expert(env, "expert", 0)
    expert.reset(task)
    fixed, tested, ended = (env.step(expert.act(seen).action) for _ in range(3))
    assert fixed.observation.text.startswith("wrote times.py") and tested.observation.text.endswith("OK")
    assert ended.reward == 1.0 and ended.info["signals"]["similarity"] == 1.0 and "times.py" in ended.info["result"]
    env.reset(task)
    assert env.step(tool_action.call("submit")).reward == 0.0
    env.close()


def test_half_of_the_tests_are_hidden_and_the_rest_still_runs():
    visible = shown(TESTS, "test_times.py", 0)
    compile(visible, "test_times.py", "exec")
    assert visible.count("def test") == 2 and shown(TESTS, "test_times.py", 0) == visible
    assert len({shown(TESTS, "test_times.py", seed) for seed in range(8)}) > 1
    alone = "import x\n\n@x.mark\ndef test_a():\n    pass\n"
    assert shown(alone, "t.py", 0) == alone
    both = alone + "\n\n@x.mark\ndef test_b():\n    pass\n"
    assert shown(both, "t.py", 0).count("@x.mark") == 1


@pytest.mark.parametrize(
    "prepared, options, sentence",
    [
        ("none", [], "no such folder"),
        ("plain", [], "is no git repository"),
        ("empty", [], "git has no commit to read"),
        ("untested", [], "has no tests"),
        ("failing", [], "the tests do not pass in the sandbox"),
        ("good", ["--command", "true"], "it does not run it"),
        ("good", ["--count", "0"], "a --count of 1 or more"),
        ("good", ["--packages", "no-such-package"], "not installed"),
    ],
)
def test_what_makes_no_tasks_is_told_in_one_sentence(prepared, options, sentence, tmp_path, capsys):
    folder = tmp_path / prepared
    if prepared in ("plain", "empty"):
        folder.mkdir()
    if prepared == "empty":
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    if prepared == "good":
        repository(folder)
    if prepared == "untested":
        repository(folder, **{"test_times.py": "x = 1\n"})
    if prepared == "failing":
        repository(folder, **{"times.py": CODE.replace("max", "min")})
    out = tmp_path / "out.jsonl"
    assert main(["envs", "code_repo", "prepare", str(folder), "--out", str(out), *options]) == 2
    assert sentence in capsys.readouterr().err and not out.exists() and sys.exc_info() == (None, None, None)


def test_a_machine_without_git_is_told_to_install_it(tmp_path, monkeypatch):
    (tmp_path / "one" / ".git").mkdir(parents=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="there is no program git: install git"):
        read(tmp_path / "one")
