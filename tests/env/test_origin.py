"""Where in the user's code an exception was raised."""

import json
from pathlib import Path

import pytest

from agentrl.cli import main
from agentrl.user_code import raised_at

FAULTY = '''\
"""A tool environment whose reward fails on odd tasks."""

import json

from agentrl.tool_env import environment


class Half:
    def reset(self, number: int) -> str:
        self.number = number
        return "say something"

    def look(self) -> str:
        """Look."""
        return "nothing"

    def reward(self, answer: str) -> float:
        return float(self._parsed()[1])

    def _parsed(self):
        return json.loads("[0, 1]" if self.number % 2 == 0 else "no json")


Config, make, tasks, prompt = environment(Half, rows=[{"number": i} for i in range(8)])
'''
PLACE = "(halffaulty.py:21, in _parsed)"  # where the user called the library that raised


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "halffaulty.py").write_text(FAULTY)
    monkeypatch.syspath_prepend(tmp_path)
    return "halffaulty"


def test_eval_and_its_report_name_the_place(faulty, tmp_path, capsys):
    out = tmp_path / "report.json"
    assert main(["eval", faulty, "--policy", "random", "limits.fault_share=1", "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert f"fault, 4 times: JSONDecodeError: Expecting value: line 1 column 1 (char 0) {PLACE}" in told
    report = json.loads(out.read_text())
    assert [text.endswith(PLACE) for text in report["faults"]] == [True]
    assert sum(outcome["fault"].endswith(PLACE) for outcome in report["outcomes"]) == 4


def test_check_names_the_place(faulty, capsys):
    assert main(["check", faulty]) == 1
    told = capsys.readouterr().err.splitlines()
    assert told and all(PLACE in line for line in told)


def test_an_exception_of_the_core_alone_has_no_place():
    try:
        json.loads("no json")
    except ValueError as error:
        assert raised_at(error).startswith(" (test_origin.py:")
    assert raised_at(ValueError("never raised")) == ""
