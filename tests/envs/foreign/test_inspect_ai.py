"""The genuine package inspect_ai, with the small tasks of `tasksets/ia_sums.py`."""

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
def in_the_folder_of_the_tasks(monkeypatch):
    monkeypatch.chdir(Path(__file__).parent / "tasksets")


def entry(python: str, which: str, /, **options):
    chosen = {"name": "inspect_ai", "python": python, "task": f"ia_sums.py@{which}", "split": "all", **options}
    return resolve("envs", chosen, "env")


def started(found, index: int = 0):
    env = found.hooks.make(found.config)
    return env, env.reset(tasks_of(found)[index])


def test_it_keeps_the_promises_of_an_environment(inspect_ai):
    assert check_env(entry(inspect_ai, "plain"), tasks=1, steps=2) == []


def test_scorers_are_signals(inspect_ai):
    found = entry(inspect_ai, "plain")
    env, seen = started(found, 2)
    assert seen.text == "Say the sum.\n2 + 1 =" and tasks_of(found)[2].key == "ia_sums.py@plain/s2"
    result = env.step("3 it is")
    assert (result.reward, result.terminated, result.info["success"]) == (0.0, True, False)
    assert result.info["signals"] == {"match": 0.0, "includes": 1.0}
    env.reset(tasks_of(found)[2])
    assert env.step("the sum is 3").info["signals"] == {"match": 1.0, "includes": 1.0}


def test_tools_are_called_by_the_package(inspect_ai):
    found = entry(inspect_ai, "tools")
    env, seen = started(found, 1)
    assert [tool["function"]["name"] for tool in seen.tools] == ["add"]
    assert isinstance(found.hooks.prompt(found.config), ToolWords)
    assert env.step(tool_action.call("add", x=1, y=40)).observation.text == "41"
    assert env.step(tool_action.call("nothing")).observation.text.startswith("error: ")
    assert env.step('{"calls": [{"error": "no JSON"}]}').info["status"] == Status.PARSE_ERROR
    assert env.step(tool_action.answer("41")).reward == 1.0


def test_the_splits_share_no_sample(inspect_ai):
    splits = ("train", "test", "all")
    keys = {split: {task.key for task in tasks_of(entry(inspect_ai, "plain", split=split))} for split in splits}
    assert keys["train"] | keys["test"] == keys["all"] and len(keys["all"]) == 10
    assert keys["test"] and not keys["train"] & keys["test"]


def test_a_scorer_that_asks_a_model_is_a_fault(inspect_ai):
    env, _ = started(entry(inspect_ai, "graded"))
    with pytest.raises(EnvFault, match="the task's scorer asks a model"):
        env.step("yes")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"task": ""}, "env.task is empty: name a task of inspect_ai"),
        ({"task": "ia_sums.py@none"}, "env.task = 'ia_sums.py@none' cannot be loaded: Task named 'none' not found"),
        ({"task": "ia_sums.py"}, "env.task = 'ia_sums.py' names 4 tasks: write FILE.py@TASK"),
        ({"task": "ia_sums.py@boxed"}, "needs a sandbox of inspect_ai, and agentrl has none"),
        ({"options": {"cuont": 3}}, "env.options.cuont: the task plain takes count"),
    ],
)
def test_a_mistake_is_one_sentence(inspect_ai, options, sentence):
    with pytest.raises(ValueError) as error:
        tasks_of(entry(inspect_ai, "plain", **options))
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_an_evaluation_from_the_command_line(inspect_ai, tmp_path, capsys):
    (tmp_path / "answers.json").write_text('["3"]')
    words = [f"python={inspect_ai}", "task=ia_sums.py@plain", "--json"]
    assert main(["eval", "inspect_ai", *words, "--policy", f"scripted:{tmp_path / 'answers.json'}"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["episodes"] == 10 and found["signals"] == {"includes": 0.1, "match": 0.1}


def test_the_recipe_trains(inspect_ai, tmp_path):
    model = model_folder(tmp_path / "model", num_hidden_layers=1)
    words = [f"env.python={inspect_ai}", "env.task=ia_sums.py@plain", f"model.path={model}", "model.device=cpu"]
    words += [f"run.folder={tmp_path}", "run.iterations=1", "run.graphs_every=1", "run.threads=1", "batch.tasks=2"]
    words += ["batch.copies=2", "eval.every=0", "eval.tasks=2", "limits.turn_tokens=8", "engine.max_context=512"]
    assert main(["train", "inspect-ai-1.5b", *words]) == 0
    metrics = [json.loads(line) for line in (tmp_path / "inspect-ai-1.5b" / "metrics.jsonl").read_text().splitlines()]
    (trained,) = (one for one in metrics if one["stage"] == "train")
    assert trained["mismatch_max"] < 1e-3 and trained["episodes"] == 4
    (graph,) = (read_graph(file) for file in (tmp_path / "inspect-ai-1.5b" / "graphs").glob("*.safetensors"))
    assert {"signal/match", "signal/includes"} <= set(graph.columns)
