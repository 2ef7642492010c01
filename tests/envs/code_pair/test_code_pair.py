"""Two agents repair code: what the tester is given and paid for, what the writer hears, and that both are trained."""

import json
from pathlib import Path

import numpy as np
import pytest

from agentrl.cli import main
from agentrl.config import override, resolve
from agentrl.envs import code_pair, code_test
from agentrl.envs.code_repair.tasks import solvable
from agentrl.files import read_toml
from agentrl.graph import read_graph
from agentrl.gym import check_env
from agentrl.run import Progress
from agentrl.settings import Settings
from agentrl.tool import action as tool_action
from agentrl.train import train
from agentrl.types import AgentReply, Status

RECIPE = Path(__file__).parents[3] / "benchmarks" / "recipes" / "code-pair-cpu.toml"
COMPACT = code_pair.Config(prompt="compact")


@pytest.fixture
def writer():
    env = code_pair.make(code_pair.Config(asks=2))
    env.reset(code_pair.tasks(env.inner.config)[0])
    yield env
    env.close()


def report(passes: bool, finding: str = "") -> AgentReply:
    return AgentReply(tool_action.call("report", passes=passes, finding=finding), Status.DONE, 1.0)


def test_the_tester_gets_the_code_of_now_and_the_tests_of_the_task(writer):
    files = writer.inner.task.params["files"]
    (path,) = (name for name in files if not name.startswith("test_"))
    writer.step(tool_action.call("write_file", path=path, content="changed = 1\n"))
    writer.step(tool_action.call("write_file", path=f"test_{path}", content="def test(): pass\n"))
    (errand,) = writer.step("ask_tester()").info["errands"]
    assert errand.agent == "tester" and errand.task.params["files"] == {**files, path: "changed = 1\n"}
    assert errand.task.params["hidden"] == writer.inner.task.params["hidden"]


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (report(True), "passes"),
        (report(False, "f(1) is 2"), "fails: f(1) is 2"),
        (AgentReply(tool_action.call("run_tests"), Status.TURN_LIMIT), "The tester came to no conclusion."),
        (AgentReply("", Status.DEPTH_LIMIT), "The tester came to no conclusion."),
        (AgentReply("", Status.ENV_ERROR), "The tester failed."),
    ],
)
def test_what_the_tester_said_is_what_the_call_brings(writer, reply, told):
    assert writer.step("ask_tester()").info["errands"]
    result = writer.returned((reply,))
    assert result.observation.text == told and not result.terminated
    assert [m.content for m in result.observation.messages] == [told]


def test_findings_are_part_of_the_state_and_asking_has_an_end(writer):
    keys = []
    for finding in ("a", "b"):
        writer.step("ask_tester()")
        point = writer.returned((report(False, finding),))
        keys.append(point.observation.state_key)
    assert len(set(keys)) == 2
    kept = writer.snapshot()
    refused = writer.step("ask_tester()")
    assert "errands" not in refused.info and "asked 2 times" in refused.observation.text
    assert writer.restore(kept) == point.observation
    both = tool_action.calls([("ask_tester", {}), ("ask_tester", {})])
    other = code_pair.make(code_pair.Config())
    other.reset(code_pair.tasks(code_pair.Config())[0])
    assert len(other.step(both).info["errands"]) == 1
    assert other.returned((report(True),)).observation.text == (
        "ask_tester: passes\nask_tester: error: ValueError: the tester is at work already"
    )


def test_a_report_is_judged_by_what_the_code_does():
    config = code_test.Config(prompt="compact")
    listed = code_test.tasks(config)
    wrong, right = listed[0], listed[1]
    assert wrong.key.endswith("/wrong") and right.key.endswith("/right") and wrong.params["hidden"]
    for task, truth in ((wrong, False), (right, True)):
        env = code_test.make(config)
        for passes in (True, False):
            env.reset(task)
            result = env.step(tool_action.call("report", passes=passes))
            assert result.reward == float(passes == truth) == result.info["signals"]["right"]
            assert result.info["success"] == (passes == truth)
        first = env.reset(task)
        told = env.step(tool_action.call("run_tests")).observation
        assert told.text.strip().endswith(" 0 failed") == truth
        assert len(first.actions) == 3 and len(told.actions) == 2 + (0 if truth else 3)  # three tests, all fail or pass
        env.close()


def test_a_tester_may_write_tests_and_no_code():
    env = code_test.make(code_test.Config())
    env.reset(code_test.tasks(code_test.Config())[1])
    refused = env.step(tool_action.call("write_test", path="slugify.py", content="x = 1\n"))
    assert "no file of tests" in refused.observation.text
    env.step(tool_action.call("write_test", path="test_more.py", content="def test_it():\n    assert 1 == 2, 'no'\n"))
    told = env.step(tool_action.call("run_tests")).observation.text
    assert "test_more.py: test_it failed: AssertionError: no" in told
    assert env.step(tool_action.call("report", passes=True)).reward == 1.0  # a wrong test makes no code wrong
    env.close()


@pytest.mark.parametrize("prompt", ["chat", pytest.param("compact", marks=pytest.mark.slow)])
def test_promises(prompt):
    assert check_env(resolve("envs", {"name": "code_test", "prompt": prompt}), tasks=1, steps=3) == []
    broken = check_env(resolve("envs", {"name": "code_pair", "prompt": prompt, "asks": 0}), tasks=1, steps=3)
    assert broken == []


def test_compact_tasks_can_be_solved_by_what_is_listed():
    everything, listed = len(code_pair.tasks(code_pair.Config())), code_pair.tasks(COMPACT)
    assert everything == 523 and 450 < len(listed) < everything
    assert all(solvable(listed[i]) for i in range(0, len(listed), 50))


@pytest.mark.parametrize(
    ("words", "least", "most"),
    [
        (("code_pair", "prompt=compact", "level=3", "--policy", "expert"), 1.0, 1.0),
        (("code_pair", "--policy", "expert"), 1.0, 1.0),
        (("code_pair", "prompt=compact", "--policy", "random"), 0.0, 0.4),
        (("code_test", "--policy", "expert"), 1.0, 1.0),
    ],
)
def test_players(words, least, most, capsys):
    assert main(["eval", *words, "--tasks", "4", "--json"]) == 0
    assert least <= json.loads(capsys.readouterr().out)["success_rate"] <= most


def test_a_tester_can_be_asked_in_the_terminal(tmp_path, capsys):
    script = tmp_path / "actions.txt"
    script.write_text("ask_tester()\nsubmit()\n")
    assert main(["play", "code_pair", "--actions", str(script), "--json"]) == 0
    asked, over = map(json.loads, capsys.readouterr().out.splitlines()[1:])
    assert asked["observation"].startswith("fails: test_slugify.py: test_1 failed")
    assert asked["info"]["errands"][0].startswith("tester: ")
    assert over["terminated"] and not over["info"]["success"]


@pytest.mark.parametrize("word", ["nobody", "careless:2", "expert:1", "random:0.5"])
def test_players_that_do_not_exist_are_told(word, capsys):
    assert main(["eval", "code_pair", "--policy", word, "--tasks", "1"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_both_agents_are_paid_and_trained(tmp_path):
    words = [
        "run.iterations=2", "warmup.updates=2", "warmup.episodes=8", "warmup.minibatches=1", "batch.tasks=2",
        "batch.copies=4", "eval.tasks=2", "model.new.hidden=32", "model.new.layers=1", "model.new.intermediate=32",
        "run.graphs_every=1", "update.entropy_coef=0.01", f"run.folder={tmp_path}",
    ]  # fmt: skip
    settings = Settings(override(read_toml(RECIPE), words))
    train(settings, progress=Progress(quiet=True))
    graph = read_graph(sorted((settings.folder / "graphs").glob("*.safetensors"))[0])
    called = graph.caller >= 0
    assert called.any() and not called.all()
    solved, right, form = (np.nan_to_num(graph.column(f"signal/{name}")) for name in ("solved", "right", "format"))
    for row in np.flatnonzero(graph.last):
        if called[row]:
            head = np.flatnonzero((graph.rollout == graph.rollout[row]) & ~called & graph.last)[0]
            expected = form[row] * (0.1 + 0.4 * solved[head] + 0.5 * right[row])
        else:
            expected = form[row] * (0.1 + 0.9 * solved[row])
        assert graph.reward[row] == pytest.approx(expected)
    lines = [json.loads(line) for line in (settings.folder / "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in lines if line["stage"] == "train"]
    assert all(line["policy/optimizer_steps"] and line["tester/optimizer_steps"] for line in trained)
