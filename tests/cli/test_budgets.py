"""Budgets of an episode from the command line: each ends episodes under a name of its own, which the report tells."""

import json
from pathlib import Path

import pytest

from agentrl.cli import main
from agentrl.model import save_model
from tests.toys.runs import tiny_model

SUMS, WALK = "tests.toys.sums", "tests.toys.walk"


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A script that calls a tool for ever, and a model from scratch that babbles."""
    folder: Path = tmp_path_factory.mktemp("policies")
    (folder / "calls.txt").write_text("add(1, 2)\n")
    save_model(tiny_model(["left right you are here"]), folder / "model")
    return {"script": f"scripted:{folder / 'calls.txt'}", "model": str(folder / "model")}


@pytest.mark.parametrize(
    ("env", "policy", "budget", "ending"),
    [
        (SUMS, "script", ["limits.turns=3"], "turn_limit"),
        (SUMS, "script", ["limits.calls=2"], "call_limit"),
        (SUMS, "script", ["limits.seconds=1e-9"], "time_limit"),
        (WALK, "model", ["limits.turn_tokens=1", "limits.cut_turn=end"], "turn_token_limit"),
        (WALK, "model", ["limits.turn_tokens=4", "limits.episode_tokens=9", "goal=99"], "token_limit"),
    ],
)
def test_each_budget_has_a_status_of_its_own_in_the_report(env, policy, budget, ending, policies, capsys):
    words = ["eval", env, "--policy", policies[policy], "--tasks", "3", *budget]
    assert main([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["endings"] == {ending: 3} and report["env_errors"] == 0
    key, _, value = budget[0].removeprefix("limits.").partition("=")
    assert report["limits"][key] == float(value)
    assert main(words) == 0
    assert f"endings {ending} 3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("limits.cals=3", "unknown key limits.cals: did you mean calls"),
        ("limits.calls=-1", "limits.calls"),
        ("limits.seconds=soon", "limits.seconds"),
    ],
)
def test_a_budget_that_is_none_is_one_sentence(word, sentence, policies, capsys):
    assert main(["eval", SUMS, "--policy", policies["script"], "--tasks", "1", word]) == 2
    err = capsys.readouterr().err
    assert sentence in err and err.count("\n") == 1
