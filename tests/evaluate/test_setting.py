"""Evaluations play held-out tasks, in words for language models, unless the user says otherwise; a line says it."""

import json
from pathlib import Path

import pytest

from agentrl.cli import main
from agentrl.env import prompt_of
from agentrl.evaluate import evaluated_entry, header


def chosen(name: str, base: dict | None = None, told: dict | None = None, *, served: bool = False):
    return evaluated_entry(name, base or {}, told or {}, language_model=served).config


@pytest.mark.parametrize(
    ("name", "meant", "option"),
    [
        ("alfworld-gen", "alfworld", ("source", "generated")),
        ("webshop-gen", "webshop", ("data", "")),
        ("search-gen", "search_qa", ("data", "")),
    ],
)
def test_the_generated_worlds_are_names(name, meant, option, capsys):
    found = evaluated_entry(name, {}, {}, language_model=False)
    assert type(found.config) is type(evaluated_entry(meant, {}, {}, language_model=False).config)
    assert getattr(found.config, option[0]) == option[1]
    assert main(["envs"]) == 0
    assert any(line.split()[0] == name for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("alfworld", "valid_unseen"),
        ("webshop", "test"),
        ("search_qa", "test"),
        ("sokoban", "test"),
        ("notes", "test"),
        ("textworld", "test"),
        ("gymnasium_text", "test"),
        ("deep_research", "test"),
        ("calculator", "test"),
        ("code_math", "test"),
        ("code_repair", "test"),
        ("code_repo", "test"),
        ("tests.toys.sums", "all"),  # rows of the user's own, which no recipe has split
    ],
)
def test_every_environment_with_splits_plays_the_held_out_one(name, split):
    options = {"id": "FrozenLake-v1"} if name == "gymnasium_text" else {}
    assert chosen(name, options).split == split
    assert chosen(name, {**options, "split": "train"}).split == ("test" if split == "all" else split)
    assert chosen(name, options, {"split": "train"}).split == "train"


def test_what_a_run_says_of_its_evaluation_holds():
    assert chosen("alfworld", {"split": "train"}, {"split": "valid_seen"}).split == "valid_seen"
    assert chosen("alfworld", {"split": "valid_seen"}).split == "valid_seen"


def test_a_file_of_the_users_own_is_played_whole(tmp_path):
    (tmp_path / "mine.jsonl").write_text('{"story": "1 and 1", "target": 2}\n')
    assert chosen("calculator", told={"rows": str(tmp_path / "mine.jsonl")}).split == "all"


def test_webshop_tells_a_served_model_what_to_do():
    assert chosen("webshop", served=True).prompt == "verl_agent" and chosen("webshop").prompt == "plain"
    assert chosen("webshop", told={"prompt": "compact"}, served=True).prompt == "compact"
    assert chosen("webshop", told={"preset": "gem"}, served=True).prompt == "gem"
    assert chosen("webshop", told={"preset": "original"}, served=True).prompt == "verl_agent"
    assert chosen("alfworld", served=True).prompt == "verl_agent"


@pytest.mark.parametrize(
    ("name", "told", "policy", "options", "line"),
    [
        (
            "alfworld", {}, {"temperature": None, "max_tokens": 512}, {},
            "playing alfworld-gen: split valid_unseen (held out); generated games, level small; for the published "
            "games: source=data; 7 tasks, each once; prompt verl_agent; free answers; sampling: the server's own "
            "temperature, at most 512 tokens per turn",
        ),
        (
            "alfworld", {"split": "train"}, {"sampling": {"temperature": 0.0, "top_p": 1.0}}, {"masked": True},
            "playing alfworld-gen: split train (training tasks); generated games, level small; for the published "
            "games: source=data; 7 tasks, each once; prompt verl_agent; answers masked to the admissible actions; "
            "sampling: greedy",
        ),
        (
            "tests.toys.sums", {}, {"temperature": 0.5, "top_p": 0.9}, {"samples": 3},
            "playing tests.toys.sums: split all (training tasks included; split=test for the held-out ones); "
            "7 tasks, 3 samples of each; tools and calls as text (hermes); free answers; sampling: temperature 0.5, "
            "top_p 0.9",
        ),
        ("tests.toys.walk", {}, {}, {"speaks": False}, "playing tests.toys.walk: no splits; 7 tasks, each once"),
    ],
)  # fmt: skip
def test_the_line_says_what_is_played(name, told, policy, options, line):
    entry = evaluated_entry(name, {}, told, language_model=False)
    given = {"samples": 1, **options}
    assert header(entry, prompt_of(entry), policy, tasks=7, **given) == line


def test_the_command_plays_them_and_prints_the_line_first(capsys):
    assert main(["eval", "notes", "--policy", "expert", "--tasks", "2"]) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    assert first == "playing notes-gen: split test (held out); 2 tasks, each once"
    assert main(["eval", "notes", "--policy", "expert", "--tasks", "2", "--split", "train", "--json"]) == 0
    assert "split train (training tasks)" in json.loads(capsys.readouterr().out)["played"]


def test_a_panel_of_training_tasks_is_found(tmp_path, capsys):
    panel: Path = tmp_path / "panel.txt"
    for split in ("train", "test"):
        assert main(["eval", "calculator", "--policy", "expert", "--tasks", "2", "--out", str(tmp_path / "r.json"),
                     "--split", split, "--force"]) == 0  # fmt: skip
        keys = [outcome["task"] for outcome in json.loads((tmp_path / "r.json").read_text())["outcomes"]]
        panel.write_text("\n".join(keys))
        capsys.readouterr()
        assert main(["eval", "calculator", "--policy", "expert", "--panel", str(panel)]) == 0
        assert f"panel {panel}" in capsys.readouterr().out
    first = ["eval", "calculator", "--policy", "expert", "--panel", str(panel), "--tasks", "1", "--json"]
    assert main(first) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 1


def test_a_finished_report_is_written_over_with_force_alone(tmp_path, capsys):
    out = tmp_path / "r.json"
    words = ["eval", "calculator", "--policy", "expert", "--tasks", "1", "--out", str(out)]
    assert main(words) == 0
    before = out.read_bytes()
    assert main([*words, "--seed", "1"]) == 2
    assert f"{out} exists: name another file, or add --resume" in capsys.readouterr().err
    assert out.read_bytes() == before
    assert main([*words, "--resume"]) == 0
    assert main([*words, "--seed", "1", "--force"]) == 0
    assert json.loads(out.read_text())["seed"] == 1
