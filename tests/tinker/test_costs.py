"""What a run costs at a training service: estimated by hand, counted against the service, and ended by a budget."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from agentrl.chat import Chat
from agentrl.config import merge
from agentrl.graph import decisions
from agentrl.model import served_tokenizer
from agentrl.report import run_data
from agentrl.run import Progress, Usage, usage_of
from agentrl.run.checkpoint import RunState
from agentrl.run.forecast import Forecast, RunPlan
from agentrl.run.spending import asked, dollars_spent
from agentrl.runs import frame
from agentrl.settings import Settings
from agentrl.tinker import ServedPolicy, ServiceLearner
from agentrl.tinker.costs import (
    FirstLengths,
    LongestEpisode,
    assumed,
    cost_lines,
    first_lengths,
    longest_episode,
    measured,
    passes,
    repeated,
)
from agentrl.tinker.datums import unroll
from agentrl.train import train
from agentrl.trainer import LearnerConfig, OptimConfig, UpdateConfig, annotate, clone, update
from tests.chat.chats import TEMPLATES, tokenizer
from tests.graph.graphs import chains, tiny_model, trees, windows
from tests.tinker.test_update import credited
from tests.toys.entries import loss
from tests.toys.own_service import OwnService, tokenizer as own_tokenizer
from tests.toys.training_service import training_service

PRICES = {"price_prefill": 1.0, "price_cached": 0.1, "price_sample": 10.0, "price_train": 2.0}
SERVED: Mapping[str, Any] = {
    "env": {"name": "tests.toys.known_walk", "count": 4},
    "eval": {"tasks": 1, "env": {"first": 5}},
    "model": {"path": "toy"},
    "engine": {"name": "tinker", "max_context": 512},
    "learner": {"name": "tinker", **PRICES},
    "run": {"iterations": 2, "deterministic": False},
    "warmup": {"expert": "straight", "updates": 1, "episodes": 4},
    "limits": {"turns": 4, "turn_tokens": 30},
    "batch": {"tasks": 2, "copies": 3},
    "credit": {"name": "grpo"},
}
LENGTHS = FirstLengths(prompt=100, observation=20, counted=True)


def settings(**sections: Any) -> Settings:
    return Settings(merge(SERVED, sections))


def test_a_chat_that_grows_is_read_quadratically_without_a_cache_and_once_with_one():
    # prompts of 100, 150, 200, 250; all but the first continue 130, 180, 230; the last prompt and answer: 280
    found = longest_episode(settings(), LENGTHS)
    assert found == LongestEpisode(4, 30, Usage(prefill=700, cached=540, sampled=120, trained=280))


def test_a_window_is_written_anew_each_turn():
    # prompts of 100, 150, 150, 150, each with its answer of 30 a sequence of its own
    found = longest_episode(settings(context={"name": "last_k", "k": 1}), LENGTHS)
    assert found == LongestEpisode(4, 30, Usage(prefill=550, cached=0, sampled=120, trained=670))


def test_a_long_chat_fits_the_context_by_shorter_answers_and_then_by_fewer_turns():
    long = {"limits": {"turns": 50, "turn_tokens": 400}}
    # 12 turns: 512 - 100 - 11 * 20 = 192 tokens for 12 answers of 16; 13 turns would leave 172 // 13 = 13
    found = longest_episode(settings(**long), LENGTHS)
    assert (found.turns, found.answer, found.usage.sampled) == (12, 16, 192)
    # the last prompt and answer fill the context
    assert found.usage.trained == 100 + 11 * 36 + 16 == 512
    few = longest_episode(settings(limits={"turns": 3, "turn_tokens": 400}), LENGTHS)
    assert (few.turns, few.answer) == (3, (512 - 100 - 2 * 20) // 3)
    capped = longest_episode(settings(limits={"episode_tokens": 40}), LENGTHS)
    assert (capped.turns, capped.answer) == (2, 20)  # 40 // 4 and 40 // 3 are below 16
    short = longest_episode(settings(), LENGTHS._replace(prompt=600))  # which the run leaves out or refuses
    assert (short.turns, short.answer) == (1, 1)


def test_passes_by_hand():
    # backward, forward before the update, later mini-batches
    assert passes(UpdateConfig()) == 1 + 1 + 0
    assert passes(UpdateConfig(epochs=2, minibatches=4)) == 2 + 1 + 7 / 4
    assert passes(UpdateConfig(epochs=2, minibatches=4, old_logprob="engine")) == 2 + 0 + 8 / 4


@pytest.mark.parametrize("old", ["trainer", "engine"])
@pytest.mark.parametrize(("epochs", "minibatches"), [(1, 1), (3, 1), (2, 2)])
def test_passes_are_those_that_a_learner_makes(epochs, minibatches, old):
    graph, credit = credited(chains(2, 4, 3), "per token")  # groups of equal sizes, and no token without a gradient
    config = UpdateConfig(epochs=epochs, minibatches=minibatches, old_logprob=old)
    service = OwnService(tiny_model(1))
    policy = ServedPolicy("p", "own", 0, "tokens")
    learner = ServiceLearner(service, policy, own_tokenizer(), OptimConfig(), LearnerConfig(name="tinker", model="own"))
    annotated, _ = annotate(graph, learner, config, 1.0)
    found = update(learner, annotated, credit, config, loss("reinforce"), temperature=1.0)
    once = unroll(graph.tokens, decisions(graph.tokens)).sent
    assert found["trained_tokens"] == pytest.approx(passes(config) * once)
    cloned = clone(learner, annotated, config)
    assert cloned["trained_tokens"] == pytest.approx(2 * epochs * once)


def test_branches_are_sent_again():
    assert repeated(settings()) == 1.0
    tree = settings(rollout={"name": "tree", "trees": 1, "leaves": 3}, credit={"name": "tree_grpo"})
    assert repeated(tree) == 3 / (1 + 2 / 2)  # two of three paths share half


def test_the_whole_run_by_hand():
    episode = longest_episode(settings(), LENGTHS)
    run = assumed(settings(), episode)
    assert run.iteration == Usage(6 * 700, 6 * 540, 6 * 120, 6 * 280 * 2)
    assert run.update == Usage(0, 0, 0, 4 * 280 * 2)
    # start, clone and end, greedy and sampled, one task each
    assert (run.played, run.evaluations) == (6, Usage(6 * 700, 6 * 540, 6 * 120, 0))
    assert run.whole == Usage(3 * 4200, 3 * 3240, 3 * 720, 2 * 3360 + 2240)
    # 960 new and 3240 cached tokens of prompts, 720 sampled and 3360 trained ones
    assert run.iteration.dollars(settings().tables.learner) == pytest.approx(
        (960 + 0.1 * 3240 + 10 * 720 + 2 * 3360) / 1e6
    )
    kl = assumed(settings(update={"kl_coef": 0.1}), episode)
    assert kl.iteration.prefill - run.iteration.prefill == 6 * 280  # the reference reads every sequence
    capped = assumed(settings(run={"tokens": 1080}, eval={"every": 1, "during": 1}), episode)
    assert capped.iterations == 1.5 and capped.played == 6
    every = assumed(settings(run={"iterations": 5}, eval={"every": 2, "modes": ["greedy"]}), episode)
    assert every.played == 3 + 2  # after 2 and 4 iterations
    half = assumed(settings(batch={"tokens": 360}), episode)
    assert half.iteration == run.iteration.times(0.5)


def row(stage: str, step: int, **values: Any) -> dict[str, Any]:
    return {"stage": stage, "step": step, **values}


ROWS = [
    row("eval", 0, name="start", mode="greedy", episodes=1, tokens=50, prefill_tokens=300, cached_tokens=100),
    row("clone", 0, trained_tokens=999),
    row("train", 0, generated_tokens=100, prefill_tokens=1000, cached_tokens=400, trained_tokens=600),
    row("train", 1, generated_tokens=200, prefill_tokens=3000, cached_tokens=600, trained_tokens=800),
]


def test_measured_counts_replace_the_assumptions():
    assert measured(settings(), ROWS[:2]) is None
    run = measured(settings(run={"iterations": 6}), ROWS)
    assert run is not None and (run.iterations, run.updates, run.played) == (4, 0, 2)
    assert run.iteration == Usage(2000, 500, 150, 700)
    assert run.evaluations == Usage(600, 200, 100, 0)  # greedy and sampled at the end
    spent = measured(settings(run={"iterations": 6, "tokens": 450}), ROWS)
    assert spent is not None and spent.iterations == 1  # 300 of 450 tokens are sampled, 150 per iteration
    ended = measured(settings(), [*ROWS, row("eval", 2, name="end", episodes=1)])
    assert ended is not None and (ended.iterations, ended.played) == (0, 0)


def test_measured_repetitions_are_told():
    rows = [*ROWS[:3], {**ROWS[3], "a/repeated_prefixes": 1.25, "b/repeated_prefixes": 1.75}]
    more = settings(run={"iterations": 9})
    assert "sent again in updates (x1.50)" in cost_lines(more, None, rows)[0]
    assert "again" not in cost_lines(more, None, [*ROWS[:3], {**ROWS[3], "repeated_prefixes": 1.0}])[0]


def test_a_line_of_metrics_counts_every_policy_and_lesson():
    found = usage_of(
        row("train", 0, generated_tokens=5, prefill_tokens=7, reference_tokens=11, cached_tokens=3)
        | {"a/trained_tokens": 100, "b/trained_tokens": 20, "lesson_trained_tokens": 3, "untrained_tokens": 1e9}
    )
    assert found == Usage(prefill=18, cached=3, sampled=5, trained=123)
    assert usage_of(row("eval", 0, tokens=9, generated_tokens=1)).sampled == 9
    assert usage_of(row("clone", 0, tokens=9)).sampled == 0  # an expert has answered


@pytest.mark.parametrize("graph", [chains(2, 4, 3), windows(3), trees(2)], ids=("chains", "windows", "trees"))
def test_prompts_are_counted_as_a_loop_counts_them(graph):
    prefill = cached = 0
    for n in range(len(graph)):
        begin = graph.tokens.offsets[n]
        own = graph.tokens.sampled[begin : graph.tokens.offsets[n + 1]]
        kept = len(graph.tokens.path_index(n)) - len(own)
        cached += kept
        prefill += kept + (int(np.argmax(own)) if own.any() else len(own))
    found = asked(settings(), graph)
    assert found == {"prefill_tokens": prefill, "cached_tokens": cached}
    twice = asked(settings(), graph, sampled=2.0 * graph.tokens.sampled.sum())  # half of the groups were filtered out
    assert twice == {"prefill_tokens": 2 * prefill, "cached_tokens": 2 * cached}
    shown = graph.with_columns(replayed=np.ones(len(graph), bool))
    assert asked(settings(), shown) == {"prefill_tokens": 0, "cached_tokens": 0}
    local = {"learner": {"name": "local"}, "engine": {"name": "hf"}}
    assert asked(Settings({**SERVED, **local}), graph) == {}


def test_lengths_come_from_the_first_task_and_without_a_tokenizer_from_its_bytes():
    chat = Chat(tokenizer(TEMPLATES["default_system"]))
    counted, guessed = first_lengths(settings(), chat), first_lengths(settings(), None)
    assert counted is not None and counted.counted and counted.prompt > counted.observation > 0
    assert guessed is not None and not guessed.counted and guessed.prompt > 0
    lines = cost_lines(settings(), None)
    assert "guessed as 4 bytes per token" in lines[-1] and "not counted: checkpoints" in lines[-1]


def test_dollars_need_all_prices_and_a_budget_says_when_it_ends():
    plain = cost_lines(settings(learner={"price_train": None, "price_cached": None}), None)
    assert "costs in dollars are not computed: set learner.price_train (dollars per million tokens)" in plain
    told = "\n".join(cost_lines(settings(learner={"budget": 1e-9}, run={"iterations": 9}), None))
    assert "learner.budget = 1e-09 ends it after about 0 iterations" in told and "$" in told
    assert "budget" not in "\n".join(cost_lines(settings(learner={"budget": 1e9}), None))
    so_far = cost_lines(
        settings(learner={"budget": 5.0}, run={"iterations": 2}), None, [*ROWS, row("eval", 2, name="end")], 0.01
    )
    assert so_far == ["costs so far: $0.01 of learner.budget = 5"]
    paid = [*ROWS[:-1], {**ROWS[-1], "dollars_spent": 3.0}]  # with iterations that were lost and played again
    assert cost_lines(settings(), None, paid)[-1] == "costs so far: $3.00"
    assert cost_lines(settings(), None, paid, 4.0)[-1] == "costs so far: $4.00"  # their lines are removed


def test_the_state_of_a_run_counts_dollars_and_old_states_have_none():
    tables, state = settings(learner={"budget": 0.02}).tables, RunState()
    assert state.spent(tables) == 0
    paid = state.pay(ROWS[2], tables.learner)
    dollars = (600 + 0.1 * 400 + 10 * 100 + 2 * 600) / 1e6
    assert paid == {"dollars": pytest.approx(dollars), "dollars_spent": pytest.approx(dollars)}
    state.pay(ROWS[2], tables.learner)
    assert state.spent(tables) == pytest.approx(2 * dollars / 0.02)
    assert state.pay(ROWS[2], LearnerConfig()) == {} and state.dollars == pytest.approx(2 * dollars)
    assert dollars_spent([{**ROWS[2], "dollars_spent": 3.0}, {**ROWS[3], "dollars_spent": None}]) == 3.0
    for wrong in (-1.0, float("nan"), float("inf"), True, "5"):
        with pytest.raises(TypeError, match=r"dollars = .* is not a finite number"):
            RunState(dollars=wrong)
    old = {key: value for key, value in dataclasses.asdict(state).items() if key not in ("dollars", "best")}
    assert RunState(**old).dollars == 0


def test_the_forecast_of_time_ends_with_the_budget():
    forecast = Forecast(RunPlan(iterations=100, dollars=10.0))
    forecast.add(row("eval", 0, name="start", dollars=2.0), {})
    for step in (0, 1):
        forecast.add(row("train", step, dollars=1.5), {"rollout_s": 3.0, "update_s": 1.0})
    # 10 - 2 - 3 = 5 dollars are left, 1.5 per iteration of 4 s
    assert forecast.left().training == pytest.approx(5 / 1.5 * 4.0)


KEY = "tml-planted-83hf72k"


def test_a_budget_ends_a_run_with_a_checkpoint_and_a_larger_one_goes_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    small = {
        "eval": {"modes": ["sampled"]},
        "run": {"iterations": 3, "folder": str(tmp_path / "runs"), "name": "a", "graphs_every": 0},
        "warmup": {"updates": 0},
        "limits": {"turns": 2, "turn_tokens": 4},
        "batch": {"tasks": 1, "copies": 2},
        "learner": {"rank": 2},
        "log": {"report": False},
    }
    folder = tmp_path / "runs" / "a"

    def lines() -> list[dict[str, Any]]:
        return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]

    def run(**learner: Any) -> Any:
        with training_service(tmp_path, token=KEY) as service:
            at = {"model": {"path": service.model}, "learner": {"url": service.url, **learner}}
            given = Settings(merge(merge(SERVED, small), at))
            return train(given, resume=folder.exists(), progress=Progress())

    first = run(budget=3e-4)  # above the price of the evaluation before training
    assert first.state.step == 1 and [one["stage"] for one in lines()] == ["eval", "train", "eval"]
    said = capsys.readouterr().err
    assert "the budget of the run is spent after 1 iterations" in said and "costs, estimated: the run (3 iter" in said
    assert "costs, measured: the rest of the run (2 iterations, 1 evaluations)" in said
    lengths = first_lengths(first.settings, Chat(served_tokenizer(first.settings.tables.model)))
    estimate, played = assumed(first.settings, longest_episode(first.settings, lengths)).iteration, usage_of(lines()[1])
    assert estimate.sampled == played.sampled and estimate.prefill == pytest.approx(played.prefill, rel=0.1)
    paid = [one["dollars"] for one in lines()]
    assert min(paid) > 0 and first.state.dollars == pytest.approx(sum(paid)) == pytest.approx(
        lines()[-1]["dollars_spent"]
    )
    assert json.loads((folder / "checkpoints" / "000001" / "progress.json").read_text())["dollars"] > 0
    facts = dict(run_data(folder).about.facts)
    assert facts["spent at the service"] == "$0.00, by the prices of [learner]"
    spent = next(one for one in frame(folder).curves if one.name == "dollars_spent")
    assert spent.value == [lines()[1]["dollars_spent"]]
    with (folder / "metrics.jsonl").open("a") as file:  # an iteration that was paid and lost with its process
        file.write(json.dumps({"stage": "train", "step": 1, "dollars_spent": 0.5}) + "\n")
    second = run(budget=1.0)
    assert second.state.step == 3 and second.state.evaluated[-1] == "end"
    assert lines()[3]["dollars_spent"] == pytest.approx(0.5 + lines()[3]["dollars"])
    assert "of learner.budget = 1" in capsys.readouterr().err
    assert (folder / "checkpoints" / "000003").is_dir()
    holding = [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert not holding and KEY not in said
