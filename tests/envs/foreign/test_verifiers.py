"""The genuine package verifiers 0.4, with small tasksets in `tasksets/`."""

import json
from pathlib import Path

import pytest

from agentrl.cli import main
from agentrl.config import resolve
from agentrl.env import tasks_of
from agentrl.graph import read_graph
from agentrl.gym import check_env
from agentrl.tool import action as tool_action
from agentrl.tool_env import ToolWords
from agentrl.types import EnvFault, Status
from tests.toys.language_model import model_folder

pytestmark = [pytest.mark.slow, pytest.mark.foreign, pytest.mark.timeout(1200)]  # processes on a busy machine


@pytest.fixture(autouse=True)
def in_the_folder_of_the_tasksets(monkeypatch):
    monkeypatch.chdir(Path(__file__).parent / "tasksets")


def entry(python: str, taskset: str, **options):
    return resolve("envs", {"name": "verifiers", "python": python, "taskset": taskset, **options}, "env")


def started(found, index: int = 0):
    env = found.hooks.make(found.config)
    return env, env.reset(tasks_of(found)[index])


def test_it_keeps_the_promises_of_an_environment(verifiers):
    assert check_env(entry(verifiers, "vf_guess", count=30), tasks=1, steps=4) == []


def test_rewards_and_metrics_are_signals(verifiers):
    found = entry(verifiers, "vf_sums", split="all", solved=2.5)
    env, seen = started(found, 11)
    assert seen.text == "Say the sum.\n11 + 1 ="
    result = env.step("12")
    assert (result.reward, result.terminated, result.info["success"]) == (2.5, True, True)
    assert result.info["signals"] == {"correct": 1.0, "short": 1.0, "letters": 2.0}
    env.reset(tasks_of(found)[11])
    wrong = env.step("thirteen")
    assert (wrong.reward, wrong.info["success"], wrong.info["signals"]["letters"]) == (0.0, False, 8.0)


def test_the_splits_share_no_task(verifiers):
    keys = {split: {task.key for task in tasks_of(entry(verifiers, "vf_sums", split=split))} for split in SPLITS}
    assert keys["train"] | keys["test"] == keys["all"] and len(keys["all"]) == 40
    assert not keys["train"] & keys["test"] and len(keys["test"]) in range(3, 15)


SPLITS = ("train", "test", "all")


def test_the_environments_user_answers_and_nothing_leaks_between_episodes(verifiers):
    found = entry(verifiers, "vf_guess", count=8, split="all")
    for _ in range(2):  # its module counts the guesses of a process
        env, seen = started(found, 7)
        assert seen.text == "Guess a number from 0 to 9."
        assert [env.step(word).observation.text for word in ("5", "9")] == ["1: higher", "2: lower"]
        result = env.step("7")
        assert (result.reward, result.terminated, result.info["signals"]) == (1.0, True, {"found": 1.0})


def test_tools_are_called_in_the_packages_own_server(verifiers):
    found = entry(verifiers, "vf_tools", split="all")
    env, seen = started(found, 1)
    (tool,) = seen.tools
    name = tool["function"]["name"]
    assert isinstance(found.hooks.prompt(found.config), ToolWords)
    assert env.step(tool_action.call(name, number=11)).observation.text == "22"
    assert env.step(tool_action.call("nothing")).observation.text == "error: unknown tool 'nothing'"
    assert env.step('{"calls": [{"error": "no JSON"}]}').info["status"] == Status.PARSE_ERROR
    assert env.step(tool_action.answer("22")).reward == 1.0


def test_an_exception_of_the_environment_is_a_fault_of_its_episode(verifiers):
    env, _ = started(entry(verifiers, "vf_guess", count=8, split="all"))
    with pytest.raises(EnvFault, match=r"verifiers: .*GuessEnv.run\(\): RuntimeError: no such number"):
        env.step("crash")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"taskset": ""}, "env.taskset is empty: name an installed taskset of verifiers"),
        ({"taskset": "vf_none"}, "env.taskset = 'vf_none': taskset 'vf_none' not found"),
        ({"taskset": "vf_pair"}, "env.taskset = 'vf_pair' has the agents left, right: choose one with one agent"),
        (
            {"taskset": "vf_sums", "options": {"cuont": 3}},
            "env.options of vf_sums: taskset.cuont: Extra inputs",
        ),
    ],
)
def test_a_mistake_is_one_sentence(verifiers, options, sentence):
    with pytest.raises(ValueError) as error:
        tasks_of(entry(verifiers, **options))
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_an_evaluation_from_the_command_line(verifiers, tmp_path, capsys):
    (tmp_path / "answers.json").write_text('["3"]')
    words = [f"python={verifiers}", "taskset=vf_sums", "count=40", "--tasks", "5", "--json"]
    assert main(["eval", "verifiers", *words, "--policy", f"scripted:{tmp_path / 'answers.json'}"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["episodes"] == 5 and found["mean_reward"] == 0.5
    assert found["signals"] == {"correct": 0.0, "letters": 1.0, "short": 1.0}


def test_the_recipe_trains(verifiers, tmp_path):
    model = model_folder(tmp_path / "model", num_hidden_layers=1)
    words = [
        f"env.python={verifiers}",
        "env.taskset=vf_sums",
        f"model.path={model}",
        "model.device=cpu",
        "env.count=40",
    ]
    words += [f"run.folder={tmp_path}", "run.iterations=1", "run.graphs_every=1", "run.threads=1", "batch.tasks=2"]
    words += ["batch.copies=2", "eval.every=0", "eval.tasks=2", "limits.turn_tokens=8", "engine.max_context=512"]
    assert main(["train", "verifiers-1.5b", *words]) == 0
    metrics = [json.loads(line) for line in (tmp_path / "verifiers-1.5b" / "metrics.jsonl").read_text().splitlines()]
    (trained,) = (one for one in metrics if one["stage"] == "train")
    assert trained["mismatch_max"] < 1e-3 and trained["episodes"] == 4
    (graph,) = (read_graph(file) for file in (tmp_path / "verifiers-1.5b" / "graphs").glob("*.safetensors"))
    assert {"signal/correct", "signal/short", "signal/letters"} <= set(graph.columns)
