"""The commands of docs/evaluation.md run against a stand-in server, with fewer tasks and turns than they name."""

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest

from agentrl.cli import main
from agentrl.engines.openai.endpoint import Endpoint
from agentrl.evaluate.failures import ANSWERS, EPISODES
from tests.evaluate.stand_in import StandIn, answer

pytest.importorskip("openai")
PAGE = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()


def acts(body: dict[str, Any]) -> dict[str, Any]:
    """Chooses the last admissible action that the prompt lists, after a thought."""
    actions = re.findall(r"'([^'\n]+)'", body["messages"][-1]["content"])
    return answer(f"<think>so</think><action>{actions[-1] if actions else 'look'}</action>")


def test_the_commands_run_one_after_another(tmp_path, monkeypatch, capsys):
    server = StandIn(acts)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEAM", "a-team-of-two")
    (recipe,) = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    Path("served.toml").write_text(recipe)
    commands = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S) for line in block.splitlines()]
    assert len(commands) >= 12 and all(command.startswith("agentrl ") for command in commands)
    try:
        for command in commands:
            words = shlex.split(command.replace("openai:MODEL@http://localhost:8000/v1", server.word))[1:]
            words = ["2" if before == "--tasks" else word for before, word in pairwise(["", *words])]
            short = ["limits.turns=3"] if words[0] == "eval" and "--turns" not in words else []
            assert main([*words, *short]) == 0, command
    finally:
        server.close()
    printed = capsys.readouterr().out
    line = re.sub(r"\s+", " ", re.findall(r"```\n(playing .*?)```", PAGE, re.S)[0]).strip()
    assert line.replace("20 tasks", "2 tasks") in printed and "cost 0." in printed
    report = json.loads(Path("three.json").read_text())
    assert report["samples"] == 3 and set(report["per_task"]) == {o["task"] for o in report["outcomes"]}


def test_the_page_names_every_option_and_every_kind_of_failure():
    described = re.findall(r"`(\w+)`", PAGE)
    hidden = {"model", "base_url", "backoff_s", "max_wait_s"}  # named by --policy; and what nobody needs to change
    assert set(Endpoint.model_fields) - hidden <= set(described)
    kinds = set(re.findall(r"`((?:answers|episodes)\.\w+)`", PAGE))
    assert kinds == {*(f"answers.{kind}" for kind in (*ANSWERS, "no_call")), *(f"episodes.{kind}" for kind in EPISODES)}
    assert {"auto", "native", "text"} == set(get_args(Endpoint.model_fields["tool_calls"].annotation))
