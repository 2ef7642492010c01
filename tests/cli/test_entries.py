"""Files of a user's own that are no entries, or broken ones, and what the commands say of them."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from agentrl import catalogue
from agentrl.cli import main

HALF = "from pydantic import BaseModel\n\n\nclass Config(BaseModel):\n    pass\n"
STEP = '{"group": "g", "episode": "e", "turn": 0, "reward": 1.0}\n'


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package `mine` with a module that has a Config and nothing else; a file of steps."""
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "half.py").write_text(HALF)
    (tmp_path / "steps.jsonl").write_text(STEP)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "mine"]:  # an earlier test's
        monkeypatch.delitem(sys.modules, name)
    return tmp_path / "steps.jsonl"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("eval", "mine.half", "--policy", "random"),
            "'mine.half' is no environment: its file has no make and no tasks",
        ),
        (("play", "mine.half"), "no environment"),
        (("check", "mine.half"), "no environment"),
        (("envs", "mine.half"), "no environment"),
        (("eval", "os.path", "--policy", "random"), "has no Config and no make and no tasks"),
        (("credit", "mine.half"), "'mine.half' is no credit method: its file has no credit"),
        (("credit", "--compare", "grpo,mine.half"), "no credit method"),
    ],
)
def test_a_module_that_is_no_entry_is_told_what_it_lacks(words, sentence, steps, capsys):
    assert main([*words, *(["--steps", str(steps)] if words[0] == "credit" else [])]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and sentence in err


def installed(monkeypatch: pytest.MonkeyPatch, **modules: str) -> None:
    """As if a package had added the entry `theirs` to a catalogue."""

    def points(kind: str) -> list[EntryPoint]:
        return [EntryPoint("theirs", modules[kind], f"agentrl.{kind}")] if kind in modules else []

    monkeypatch.setattr(catalogue, "points", points)
    monkeypatch.setattr(catalogue, "names", catalogue.names.__wrapped__)


def test_a_method_without_a_paper_is_listed_too(steps, monkeypatch, capsys):
    (steps.parent / "mine" / "half.py").write_text(HALF + "\n\ndef credit(graph, config):\n    pass\n")
    installed(monkeypatch, credit="mine.half")
    assert main(["credit", "--list"]) == 0
    assert "theirs" in [line.strip() for line in capsys.readouterr().out.splitlines()]


def test_a_broken_file_does_not_hide_the_other_environments(steps, monkeypatch, capsys):
    (steps.parent / "mine" / "broken.py").write_text("1 / 0\n")
    installed(monkeypatch, envs="mine.broken")
    assert main(["envs"]) == 0
    out = capsys.readouterr().out
    assert (
        "ALFWorld: household" in out and "cannot be imported: ZeroDivisionError: division by zero (broken.py:1)" in out
    )


LETTERS = """
from agentrl.tool_env import environment


class Letters:
    def reset(self, seed: int) -> str:
        return "Say a."

    def spell(self, word: str) -> str:
        return " ".join(word)

    def reward(self, answer: str) -> float:
        return float(answer == "a")


Config, make, tasks, prompt = environment(Letters, rows=[{"seed": 1}, {"seed": 2}])
"""


@pytest.mark.parametrize("name", ["my_letters", "my_folder.letters"])
def test_a_file_in_the_working_folder_is_named_as_a_module(name, tmp_path):
    file = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
    file.parent.mkdir(exist_ok=True)
    file.write_text(LETTERS)
    program = Path(sys.executable).with_name("agentrl")  # as installed: it does not know the working folder by itself
    words = [str(program), "eval", name, "--policy", "random"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "on 2 tasks, each once" in done.stdout, done.stderr


def test_a_misspelt_file_of_the_working_folder_is_answered_with_its_name(tmp_path, monkeypatch, capsys):
    (tmp_path / "reward_to_go.py").write_text(HALF)
    (tmp_path / "steps.jsonl").write_text(STEP)
    monkeypatch.chdir(tmp_path)
    assert main(["credit", "reward_to_goo", "--steps", "steps.jsonl"]) == 2
    assert "did you mean reward_to_go?" in capsys.readouterr().err
