"""A planner and its searchers: what is sent, what comes back, what both are paid for."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from agentrl.cli import main
from agentrl.config import override, resolve
from agentrl.credit import assign, rescore
from agentrl.env import benchmark_of, make_pool, tasks_of
from agentrl.envs.deep_research import Config, DeepResearch, make, prompt, tasks
from agentrl.envs.search_qa.questions import ask
from agentrl.files import read_toml
from agentrl.graph import read_graph
from agentrl.gym import check_env
from agentrl.run import Progress
from agentrl.settings import Settings
from agentrl.train import train
from agentrl.types import AgentReply, Status

TINY = Config(world="tiny", prompt="compact")
RECIPE = Path(__file__).parents[3] / "benchmarks" / "recipes" / "m-grpo-cpu.toml"


def opened() -> DeepResearch:
    env = make(TINY)
    env.reset(tasks(TINY)[0])
    return env


def test_a_delegated_question_is_an_errand_with_its_own_right_answer():
    env = opened()
    path = env.state.task.params["path"]
    question = next(a for a in env.observation().actions if a.startswith("<delegate>") and path[0] in a)
    errands = env.step(question).info["errands"]
    assert [errand.agent for errand in errands] == ["searcher"]
    params = errands[0].task.params
    assert params["question"] in question and params["path"][0] == path[0]
    if params["path"][-1] == path[1]:
        assert path[1] in params["answers"]


def test_what_a_searcher_found_is_told_and_what_failed_is_told_as_such():
    env = opened()
    first = env.observation().actions[0]
    env.step(first)
    name = env.state.task.params["path"][1]
    told = env.returned((AgentReply(f"<answer>{name}</answer>", Status.DONE, 1.0),))
    assert told.observation.text == name and not told.terminated
    assert f"<answer>{name}</answer>" in told.observation.actions  # what was heard may be the answer
    second = next(a for a in told.observation.actions if a.startswith("<delegate>"))
    assert second != first  # nothing is asked twice
    env.step(second)
    lost = env.returned((AgentReply("", Status.ENV_ERROR),))
    assert lost.observation.text == "The searcher failed." and lost.info["failed"] == 1


def test_signals_by_hand():
    env = opened()
    answer = env.state.task.params["answers"][0]
    env.step("neither")
    over = env.step(f"<answer>{answer}</answer>")
    # right, but one turn was without a tag
    assert over.terminated and over.info["signals"] == {"format": 0.0, "em": 1.0, "f1": 1.0}
    env.reset(tasks(TINY)[0])
    wrong = env.step("<answer>Nobody Here</answer>")
    assert wrong.info["signals"] == {"format": 1.0, "em": 0.0, "f1": 0.0} and not wrong.info["success"]


def test_after_the_last_question_only_answers_are_left():
    config = Config(world="tiny", prompt="compact", max_turns=1)
    env = make(config)
    env.reset(tasks(config)[0])
    env.step(env.observation().actions[0])
    told = env.returned((AgentReply("", Status.DONE),))
    assert all(a.startswith("<answer>") for a in told.observation.actions)
    over = env.step(f"<delegate>{ask(('birthplace',), 'Somebody Else')}</delegate>")
    assert over.terminated and over.info["signals"]["format"] == 0.0


def test_words_and_actions_go_together():
    for name in ("compact", "tags"):
        words = prompt(Config(world="tiny", prompt=name))
        env = opened()
        for action in env.observation().actions[:20]:
            assert words.parse(words.answer(action), env.observation()).action == action
        assert not words.parse("I do not know", env.observation()).valid


def test_splits_ask_about_different_things():
    heads = {
        split: {t.params["path"][0] for t in tasks(Config(world="tiny", split=split))} for split in ("train", "test")
    }
    assert heads["train"] and heads["test"] and not heads["train"] & heads["test"]


def test_the_planner_keeps_the_promises_of_an_environment_where_it_does_not_delegate():
    entry = resolve("envs", {"name": "deep_research", "world": "tiny", "max_turns": 1})
    assert benchmark_of(entry) == "deep-gen tiny-0, train"
    broken = [line for line in check_env(entry, tasks=1, steps=1) if "errand" not in line.lower()]
    assert broken == []


@pytest.mark.parametrize(("policy", "least", "most"), [("expert", 1.0, 1.0), ("random", 0.0, 0.3)])
def test_players(policy, least, most, capsys):
    words = ["eval", "deep_research", "world=tiny", "prompt=compact", "--policy", policy, "--tasks", "20", "--json"]
    assert main(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert least <= report["success_rate"] <= most and report["episodes"] == 20


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A short run of the recipe."""
    words = [
        "run.iterations=2", "warmup.updates=2", "warmup.episodes=8", "batch.tasks=3", "batch.copies=4", "eval.tasks=4",
        "model.new.hidden=32", "model.new.layers=1", "model.new.intermediate=32", "run.graphs_every=1",
        "update.entropy_coef=0.01",
        f"run.folder={tmp_path_factory.mktemp('runs')}",
    ]  # fmt: skip
    settings = Settings(override(read_toml(RECIPE), words))
    train(settings, progress=Progress(quiet=True))
    return settings.folder


def test_both_agents_are_paid_as_published_and_trained(run):
    graph = read_graph(sorted((run / "graphs").glob("*.safetensors"))[0])
    called = graph.caller >= 0
    assert called.any()
    last = graph.last
    for row in np.flatnonzero(last):
        valid, em = graph.column("signal/format")[row], graph.column("signal/em")[row]
        if called[row]:
            head = np.flatnonzero((graph.rollout == graph.rollout[row]) & ~called & last)[0]
            main_em = np.nan_to_num(graph.column("signal/em")[head])
            expected = 0.1 + 0.4 * main_em + 0.5 * em if valid > 0 else 0.0
        else:
            expected = 0.1 + 0.9 * em if valid > 0 else 0.0
        assert graph.reward[row] == pytest.approx(np.nan_to_num(expected))
    settings = Settings(read_toml(run / "config.toml"))
    assert rescore(graph, settings.reward).reward == pytest.approx(graph.reward)
    credit = assign(settings.credit, graph)
    kept = credit.parts["kept"]
    rollouts = np.unique(graph.rollout[called])
    for rollout in rollouts:
        mine = called & (graph.rollout == rollout) & graph.first
        assert kept[mine].sum() == 3  # aligned
    np.testing.assert_array_equal(graph.column("credit_weight"), kept)  # and stored
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in lines if line["stage"] == "train"]
    assert all(line["policy/optimizer_steps"] and line["searcher/optimizer_steps"] for line in trained)


def test_a_planner_whose_searcher_is_lost_is_told_and_scored():
    from agentrl.env.pool import InlinePool
    from agentrl.rollout import ExpertActor, PlayerFactory, play

    settings = Settings(override(read_toml(RECIPE), ["limits.retries=0", "limits.fault_share=1.0"]))

    class Lost:
        def reset(self, task):
            raise ConnectionError("no searcher here")

        def close(self):
            pass

    pools = {"main": make_pool(settings.env), "searcher": InlinePool(Lost)}
    crew = PlayerFactory(settings.agents, pools, admissible=False, seed=0)
    actors = {name: ExpertActor("expert", agent.prompt) for name, agent in settings.agents.items()}
    (record,) = asyncio.run(play(crew.player(actors), tasks_of(settings.env)[:1]))
    assert record.ending == Status.DONE and record.steps[1].observation.text == "The searcher failed."
    assert all(chain.ending == Status.ENV_ERROR for chain in record.called)
    assert not record.success
