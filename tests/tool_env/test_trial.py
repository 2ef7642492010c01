"""What `agentrl check` notes of environments that keep their promises and cannot be learned from."""

import json

import pytest

from agentrl.cli import main
from agentrl.config import Entry
from agentrl.env import EnvironmentFile
from agentrl.tool import ToolError
from agentrl.tool_env import environment, trial_notes


def notes(owner, **more):
    hooks = environment(owner, rows=[{"seed": i} for i in range(8)], module=__name__, **more)
    file = EnvironmentFile(module=__name__, name="shop", config=hooks.Config, make=hooks.make, tasks=hooks.tasks)
    return trial_notes(Entry("shop", file, hooks.Config()))


class Shop:
    """It keeps all promises."""

    def reset(self, seed: int) -> str:
        return f"day {seed}"

    def look(self) -> str:
        """Look."""
        return "shelves"

    def find(self, name: str) -> str:
        """Find.

        Args:
            name: of the thing
        """
        raise ValueError(f"there is no {name}")

    def buy(self, count: int) -> str:
        """Buy.

        Args:
            count: how many
        """
        raise ToolError("the shop is closed")

    def reward(self, answer: str) -> float:
        return float(answer == "day")


class Unpaid(Shop):
    reward = None  # type: ignore[assignment]

    def success(self, answer: str) -> bool:
        return answer == "day"


class Broken(Shop):
    def look(self) -> str:
        """Look."""
        return self.shelves  # type: ignore[attr-defined, no-any-return]


class Shut(Shop):
    def look(self) -> str:
        """Look."""
        raise ValueError("it is dark")


def test_wrong_values_by_chance_are_no_fault_of_a_tool():
    assert notes(Shop) == []


def test_an_environment_without_a_reward():
    (note,) = notes(Unpaid)
    assert note.startswith("Unpaid has no reward, so every episode earns 0") and "reward(self, answer)" in note
    assert notes(Unpaid, reward=lambda answer: 1.0) == []


@pytest.mark.parametrize(
    ("owner", "error"),
    [(Broken, "AttributeError: 'Broken' object has no attribute 'shelves'"), (Shut, "ValueError: it is dark")],
)
def test_a_tool_that_always_raises(owner, error):
    (note,) = notes(owner)
    assert note.startswith("the tool 'look' raised in all of its ") and error in note


def test_check_prints_notes_and_all_holds(tmp_path, monkeypatch, capsys):
    (tmp_path / "unpaid.py").write_text(
        '"""Unpaid."""\nfrom agentrl.tool_env import environment\n\n'
        "def look() -> str:\n    '''Look.'''\n    raise RuntimeError('dark')\n\n"
        "Config, make, tasks, prompt = environment(tools=[look], rows=[{'prompt': 'a'}], module=__name__)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["check", "unpaid"]) == 0
    out, err = capsys.readouterr()
    assert out == "unpaid: all holds; it has no snapshots, so branches carry out its actions again\n"
    first, second = err.splitlines()
    assert first.startswith("note: unpaid has no reward") and "'RuntimeError: dark'" in second
    assert main(["check", "unpaid", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["notes"]) == 2
