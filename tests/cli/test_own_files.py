"""A user's own file that raises, at import or in a hook: one sentence with the file and the line, at every verb."""

import sys
from pathlib import Path

import pytest

from agentrl.cli import main

ENV = """\
from pydantic import BaseModel

from agentrl.types import Observation, StepResult, Task


class Config(BaseModel, frozen=True, extra="forbid"):
    split: str = "train"


class Env:
    def reset(self, task):
        return Observation(text="say left")

    def step(self, action):
        return StepResult(Observation(text="over"), 1.0, True, False, {"success": True})

    def close(self):
        pass


def make(config):
    return Env()


def tasks(config):
    return [Task(key=f"{config.split}/{i}", env="mine") for i in range(4)]
"""
FIELD = '    split: str = "train"\n'
AT_IMPORT = {
    "raises": ("x = 1\nraise RuntimeError('boom')\n", "RuntimeError: boom (mine.py:2)"),
    "value": ("int('x')\n", "ValueError: invalid literal for int() with base 10: 'x' (mine.py:1)"),
    "syntax": ("x = 1\ndef f(:\n    pass\n", "SyntaxError: invalid syntax (mine.py:2)"),
    "indent": ("def f():\nreturn 1\n", "(mine.py:2)"),
    "package": ("import os\n\nimport no_such_module\n", "No module named 'no_such_module' (mine.py:3)"),
    "name": ("from json import nothing\n", "(mine.py:1)"),
    "exit": ("import sys\nsys.exit()\n", "SystemExit: it ends Python with exit code 0 (mine.py:2)"),
    "exit words": ("raise SystemExit('no data')\n", "SystemExit: it ends Python with no data (mine.py:1)"),
    "recursion": ("def f():\n    return f()\n\n\nf()\n", "RecursionError: maximum recursion depth exceeded"),
    "null": ("x = 1\n\0\n", "null bytes"),
    "nested": ("import other\n", "ZeroDivisionError: division by zero (other.py:2)"),
    "config": (ENV.replace(FIELD, "    split: nothing\n"), "name 'nothing' is not defined (mine.py:7, in Config)"),
    "no model": (ENV.replace("(BaseModel, frozen=True, extra=\"forbid\")", ""), "must be a class, the pydantic model"),
    "half a model": (ENV.replace(FIELD, '    split: "Nothing" = 1\n'), "`Config` is not fully defined"),
}  # fmt: skip
IN_HOOKS = {
    "tasks": (ENV.replace("    return [", "    {}['rows']\n    return ["), "KeyError: 'rows' (mine.py:26, in tasks)"),
    "value": (ENV.replace("    return [", "    int('x')\n    return ["), "base 10: 'x' (mine.py:26, in tasks)"),
    "exit": (ENV.replace("    return [", "    raise SystemExit(0)\n    return ["), "(mine.py:26, in tasks)"),
    "no list": (ENV.replace("    return [", "    return None\n    return ["), "its tasks(config) returned NoneType"),
    "options": (
        ENV.replace(FIELD, f"{FIELD}\n    def model_post_init(self, context):\n        1 / 0\n"),
        "ZeroDivisionError: division by zero (mine.py:10, in model_post_init)",
    ),
}
RECIPE = (
    '[env]\nname = "mine"\n[eval.env]\nsplit = "test"\n[model.new]\n[warmup]\nupdates = 0\n[credit]\nname = "grpo"\n'
)
VERBS = (
    "check mine", "check mine.py", "envs mine", "eval mine --policy random", "play mine", "serve mcp mine",
    "check rows.jsonl --env mine", "train recipe.toml --dry-run", "train recipe.toml", "doctor recipe.toml",
    "check recipe.toml --reward", "credit mine --steps steps.jsonl", "credit --compare grpo,mine --steps steps.jsonl",
    "train grpo-sokoban-cpu loss.name=mine --dry-run", "train grpo-sokoban-cpu sampler.name=mine.py --dry-run",
    "train grpo-sokoban-cpu guide.name=mine --dry-run",
    "train grpo-sokoban-cpu agents.main.agent=mine:solve --dry-run",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "recipe.toml").write_text(RECIPE)
    (tmp_path / "steps.jsonl").write_text('{"group": "g", "episode": "e", "turn": 0, "reward": 1.0}\n')
    (tmp_path / "rows.jsonl").write_text('{"question": "a", "answer": "b"}\n')
    (tmp_path / "other.py").write_text("x = 0\ny = 1 / x\n")
    return tmp_path


def told(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The sentence of a command that ends with exit code 2."""
    sys.modules.pop("mine", None)
    capsys.readouterr()
    assert main(words.split()) == 2
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert sentence.startswith("agentrl") and "Traceback" not in sentence
    return sentence


@pytest.mark.parametrize("fault", AT_IMPORT)
def test_a_file_that_cannot_be_imported_is_named_with_its_line(fault, folder, capsys):
    text, expected = AT_IMPORT[fault]
    (folder / "mine.py").write_text(text)
    assert expected in told("eval mine --policy random", capsys)


@pytest.mark.parametrize("words", VERBS)
def test_every_verb_says_so(words, folder, capsys):
    (folder / "mine.py").write_text(AT_IMPORT["raises"][0])
    assert "cannot be imported: RuntimeError: boom (mine.py:2)" in told(words, capsys)


@pytest.mark.parametrize("fault", IN_HOOKS)
def test_a_hook_that_raises_is_named_with_its_line(fault, folder, capsys):
    text, expected = IN_HOOKS[fault]
    (folder / "mine.py").write_text(text)
    for words in ("eval mine --policy random", "doctor recipe.toml", "play mine"):
        assert expected in told(words, capsys)


def test_a_make_that_raises_is_named_before_and_in_the_attacks_on_rewards(folder, capsys):
    (folder / "mine.py").write_text(ENV.replace("    return Env()", "    return Env().nothing"))
    for words in ("check mine", "play mine", "doctor recipe.toml", "check recipe.toml --reward"):
        assert "'nothing' (mine.py:22, in make)" in told(words, capsys)


def test_the_traceback_is_shown_on_demand(folder, monkeypatch):
    (folder / "mine.py").write_text(AT_IMPORT["raises"][0])
    sys.modules.pop("mine", None)
    monkeypatch.setenv("AGENTRL_TRACEBACK", "1")
    with pytest.raises(RuntimeError, match="boom"):
        main(["eval", "mine", "--policy", "random"])


def test_an_error_of_the_program_itself_is_no_sentence(monkeypatch):
    from agentrl.cli import recipes

    monkeypatch.setattr(recipes, "Parser", int)
    with pytest.raises(TypeError):
        main(["recipes"])
