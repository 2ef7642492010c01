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


def test_a_reward_that_is_none_is_one_finding(tmp_path, monkeypatch, capsys):
    (tmp_path / "nothing_paid.py").write_text(
        '"""Nothing."""\nfrom agentrl.tool_env import environment\n\n'
        "def look() -> str:\n    '''Look.'''\n    return 'x'\n\n"
        "def none(answer: str) -> float:\n    return None\n\n"
        "Config, make, tasks, prompt = environment(\n"
        "    tools=[look], reward=none, rows=[{'prompt': str(i)} for i in range(9)], module=__name__\n)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["check", "nothing_paid", "--tasks", "3"]) == 1
    out, err = capsys.readouterr()
    assert out == "nothing_paid: 1 findings on 3 of 9 tasks\n"
    # three tasks with one exception of a walk and nine of other actions, and Gymnasium's checker: 31
    assert err.splitlines()[0] == (
        "task nothing_paid/0: raised ValueError: the reward 'none' is None, which is no finite number "
        "(and 30 more with this exception)"
    )


def test_check_prints_notes_and_all_holds(tmp_path, monkeypatch, capsys):
    (tmp_path / "unpaid.py").write_text(
        '"""Unpaid."""\nfrom agentrl.tool_env import environment\n\n'
        "def look() -> str:\n    '''Look.'''\n    raise RuntimeError('dark')\n\n"
        "Config, make, tasks, prompt = environment(tools=[look], rows=[{'prompt': 'a'}], module=__name__)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["check", "unpaid"]) == 0
    out, err = capsys.readouterr()
    assert out == "unpaid: all holds on 1 of 1 tasks; it has no snapshots, so branches carry out its actions again\n"
    first, second = err.splitlines()
    assert (
        first.startswith("note: unpaid has no reward")
        and "'RuntimeError: dark' (unpaid.py:6, in look): mend it" in second
    )
    assert main(["check", "unpaid", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["notes"]) == 2
