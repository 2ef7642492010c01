"""Who is evaluated: what a word names, and what a run or a model folder brings with it."""

import json
from pathlib import Path

import pytest
import tomli_w

from agentrl.cli import main
from agentrl.model import save_model
from agentrl.programs import EvaluatedPolicy
from tests.rollout.playing import WALK
from tests.toys.runs import tiny_model

RUN = {"env": {"name": "alfworld"}, "model": {"new": {"layers": 1, "hidden": 16}}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with a configuration and nothing else."""
    (tmp_path / "config.toml").write_text(tomli_w.dumps(RUN))
    return tmp_path


def test_a_run_of_a_version_with_fewer_options_gets_their_defaults(run):
    contestant = EvaluatedPolicy.of(str(run), "alfworld")
    assert contestant.tables["engine"] == {"name": "hf", "max_slots": 256, "max_context": 1024, "actions": "free"}
    assert contestant.env_options["split"] == "train"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[env]\n", "model is missing"),
        ("[env]\nnam = 1\n[model]\npath = 'x'", "unknown key env.nam: did you mean name?"),
        ("[env", "is not TOML"),
        ("[env]\nname = 'alfworld'\n[model]\npath = 'x'", "has no checkpoint yet"),
    ],
)
def test_a_folder_that_is_no_whole_run_is_one_sentence(text, sentence, tmp_path, capsys):
    (tmp_path / "config.toml").write_text(text)
    assert main(["eval", "alfworld", "--policy", str(tmp_path), "--tasks", "1"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and sentence in err


def test_a_script_is_played_in_every_episode(tmp_path, capsys):
    """The goal is two places to the right of the start: going there and back never reaches it."""
    (tmp_path / "right.txt").write_text("right\n")
    (tmp_path / "there.json").write_text('["right", "left"]')
    words = ["eval", WALK, "--tasks", "4", "goal=2", "--json", "--policy"]
    assert main([*words, f"scripted:{tmp_path / 'right.txt'}"]) == 0
    steady = json.loads(capsys.readouterr().out)
    assert steady["success_rate"] == 1.0
    assert main([*words, f"scripted:{tmp_path / 'there.json'}", "--turns", "5"]) == 0
    assert json.loads(capsys.readouterr().out)["success_rate"] < 1.0
    (tmp_path / "empty.txt").write_text("")
    for name, sentence in (("empty.txt", "at least one answer"), ("nope", "no such actions file")):
        assert main([*words, f"scripted:{tmp_path / name}"]) == 2
        assert sentence in capsys.readouterr().err


def test_a_model_folder_is_played_within_its_own_positions(tmp_path, capsys):
    save_model(tiny_model(["You are in the middle of a room."]), tmp_path / "model")
    words = ["eval", "alfworld", "--policy", str(tmp_path / "model"), "--tasks", "1", "--turns", "1", "prompt=compact"]
    assert main([*words, "--json"]) == 0
    assert '"max_context": 512' in capsys.readouterr().out
