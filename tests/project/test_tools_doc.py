"""The blocks of docs/tools.md run as they stand."""

import importlib
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from agentrl.cli import main
from agentrl.config import resolve
from agentrl.env import Limits, tasks_of
from agentrl.gym import check_env
from agentrl.tool import format_names, tool_spec

PAGE = (Path(__file__).parents[2] / "docs" / "tools.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, marker: str) -> ModuleType:
    """The block that holds `marker`, as an importable module of a package."""
    (block,) = [b for b in BLOCKS if marker in b]
    package = tmp_path / "tools_page"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / f"{name}.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    for known in [m for m in sys.modules if m.startswith("tools_page")]:
        del sys.modules[known]
    return importlib.import_module(f"tools_page.{name}")


def test_the_environment_in_fifteen_lines(tmp_path, monkeypatch, capsys):
    letters = module(tmp_path, monkeypatch, "letters", "class Letters")
    (block,) = [b for b in BLOCKS if "class Letters" in b]
    assert len([line for line in block.splitlines() if line.strip()]) <= 15
    entry = resolve("envs", {"name": "tools_page.letters"})
    assert check_env(entry) == []
    assert main(["eval", "tools_page.letters", "--policy", "random"]) == 0
    assert "on 5 tasks, each once" in capsys.readouterr().out
    actions = tmp_path / "actions.txt"
    actions.write_text('count("strawberry", "r")\n3\n')
    words = ["play", "tools_page.letters", "--task", "tools_page.letters/2", "--actions", str(actions), "--json"]
    assert main(words) == 0
    start, called, done = map(json.loads, capsys.readouterr().out.splitlines())
    assert start["observation"].startswith("How many times does r occur in strawberry")
    assert called["observation"] == "3" and (done["reward"], done["terminated"]) == (1.0, True)
    assert letters.prompt(letters.Config()).schemas[0]["function"]["name"] == "count"


def test_functions_and_rows(tmp_path, monkeypatch):
    module(tmp_path, monkeypatch, "units", "to_metres")
    entry = resolve("envs", {"name": "tools_page.units", "tools": {"calculator": {"digits": 3}}})
    assert check_env(entry) == []
    env = entry.hooks.make(entry.config)
    assert env.reset(tasks_of(entry)[9]).text == "How many metres are 10 feet?"
    assert env.step("to_metres(10.0)").observation.text == "3.048"
    assert env.step('calculator("1/3")').observation.text == "0.333"
    last = env.step("3.048")
    assert last.info["signals"] == {"right": 1.0, "number": 1.0} and last.reward == pytest.approx(1.1)


def test_the_tool(tmp_path, monkeypatch):
    reverse = module(tmp_path, monkeypatch, "reverse", "class Reverse")
    tool = reverse.make(reverse.Config(most=3))
    assert tool("abc") == "cba" and tool_spec(tool).schema["function"]["name"] == "reverse"
    with pytest.raises(ValueError, match="the limit is 3"):
        tool("abcd")


def test_every_format_and_limit_is_named():
    rows = re.findall(r"^\| `(\w+)`", PAGE, re.M)
    assert set(format_names()) == set(rows) & set(format_names())
    limits = set(re.findall(r"`limits\.(\w+)", PAGE))
    assert len(limits) >= 7 and limits <= set(Limits.model_fields)
