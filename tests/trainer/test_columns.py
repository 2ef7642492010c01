"""Columns that the annotate stage fills for credit: the gold answer's likelihood, a prompt's tracked value."""

import importlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from agentrl.credit import assign
from agentrl.settings import requirements as needs
from agentrl.trainer import Gold, Learner, Stream, annotate
from agentrl.trainer.sections import CriticConfig, OptimConfig, UpdateConfig
from agentrl.types import Status
from tests.graph.graphs import Row, build, loaded, tiny_model, trees, windows

single_stream = importlib.import_module("agentrl.algorithms.credit.single_stream")
info_gain = importlib.import_module("agentrl.algorithms.credit.info_gain")


def two_prompts(restricted: bool = False):
    """Prompt a: an episode of two turns; prompt b: one turn; scores 1 and 0."""
    sets = [[6, 7]] if restricted else None
    graph = build(
        [
            Row([1, 2, 3], [4, 5]),
            Row([2], [6], 0, None, 0, turn=1, allowed=sets, columns={"terminated": True, "reward": 1.0}),
            Row([8, 9], [7], episode=1, group=1, columns={"terminated": True}),
        ]
    )
    return replace(graph, names={"group": ("a", "b")})


def plain_mean(model, context: list[int], answer: list[int]) -> float:
    """Mean log-prob of an answer after a text, by the plain forward pass of transformers."""
    logits = model(input_ids=torch.tensor([context + answer]), use_cache=False).logits[0].detach()
    logprobs = torch.log_softmax(logits, -1)
    return float(np.mean([float(logprobs[len(context) - 1 + i, token]) for i, token in enumerate(answer)]))


def test_gold_logprobs_are_those_of_the_answer_where_the_model_would_answer_next():
    model = tiny_model()
    learner = Learner(loaded(model), OptimConfig())
    gold = Gold({"a": np.array([5, 1, 4]), "b": np.array([2])})
    columns = gold.columns(two_prompts(), learner, 1000)
    # a: before any turn the model has read 1 2 3, after turn 0 also 4 5 (its answer) and 2 (what it was told)
    assert columns.steps["gold_logprob_start"][0] == pytest.approx(plain_mean(model, [1, 2, 3], [5, 1, 4]), abs=1e-5)
    assert columns.steps["gold_logprob"][0] == pytest.approx(plain_mean(model, [1, 2, 3, 4, 5, 2], [5, 1, 4]), abs=1e-5)
    assert columns.steps["gold_logprob_start"][2] == pytest.approx(plain_mean(model, [8, 9], [2]), abs=1e-5)
    assert np.isnan(columns.steps["gold_logprob"][[1, 2]]).all() and np.isnan(columns.steps["gold_logprob_start"][1])


def test_gold_logprobs_of_prompts_written_anew_each_turn():
    model = tiny_model()
    graph = replace(windows(2, episodes=2), names={"group": ("a",)})
    columns = Gold({"a": np.array([3, 3])}).columns(graph, Learner(loaded(model), OptimConfig()), 1000)
    for row in np.flatnonzero(graph.parent >= 0):
        start, stop = graph.tokens.offsets[row], graph.tokens.offsets[row + 1]
        prompt = graph.tokens.ids[start:stop][~graph.tokens.sampled[start:stop]].tolist()
        expected = plain_mean(model, prompt, [3, 3])
        assert columns.steps["gold_logprob"][graph.parent[row]] == pytest.approx(expected, abs=1e-5)


def test_tasks_without_a_known_answer_have_no_gold_logprob():
    columns = Gold({"b": np.array([2])}).columns(two_prompts(), Learner(loaded(tiny_model()), OptimConfig()), 1000)
    assert np.isnan(columns.steps["gold_logprob_start"][0]) and not np.isnan(columns.steps["gold_logprob_start"][2])
    nothing = Gold({}).columns(two_prompts(), Learner(loaded(tiny_model()), OptimConfig()), 1000)
    assert all(np.isnan(x).all() for x in nothing.steps.values()) and not nothing.tokens


def test_information_gain_trains_from_them():
    learner = Learner(loaded(tiny_model()), OptimConfig())
    gold = Gold({"a": np.array([5]), "b": np.array([2])})
    graph = annotate(two_prompts(), learner, UpdateConfig(), 1.0, [gold]).graph
    credit = assign(info_gain, graph, info_gain.Config())
    start, after = graph.column("gold_logprob_start")[0], graph.column("gold_logprob")[0]
    assert credit.parts["turn_reward"] == pytest.approx([np.exp(after) - np.exp(start), 1.0, 0.0])


def test_the_tracker_is_read_before_and_updated_after():
    learner = Learner(loaded(tiny_model()), OptimConfig())
    stream = Stream(single_stream, 1.0)
    first = annotate(two_prompts(), learner, UpdateConfig(), 1.0, [stream]).graph
    # never seen: 0.5 each; then rho = 2^0 cut to 0.96: a = (0.48 + 1, 0.48), b = (0.48, 0.48 + 1); 1.48 / 1.96
    assert first.column("value")[[0, 2]] == pytest.approx([0.5, 0.5])
    assert np.isnan(first.column("value")[1])
    second = annotate(two_prompts(), learner, UpdateConfig(), 1.0, [stream]).graph
    assert second.column("value")[[0, 2]] == pytest.approx([1.48 / 1.96, 0.48 / 1.96])
    assert second.column("policy_kl")[[0, 2]] == pytest.approx([0.0, 0.0], abs=1e-9)
    credit = assign(single_stream, second, single_stream.Config(whiten=False))
    assert credit.advantage == pytest.approx([0.48 / 1.96, 0.48 / 1.96, -0.48 / 1.96])


@pytest.mark.parametrize("restricted", [False, True])
def test_how_far_the_policy_moved_is_measured_on_the_prompts_last_answer(restricted):
    learner = Learner(loaded(tiny_model()), OptimConfig())
    stream = Stream(single_stream, 1.0)
    before = annotate(two_prompts(restricted), learner, UpdateConfig(), 1.0, [stream]).graph
    with torch.no_grad():
        for parameter in learner.model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    after = annotate(two_prompts(restricted), learner, UpdateConfig(), 1.0, [stream]).graph
    apart = np.abs(after.token_column("old_logprob") - before.token_column("old_logprob"))
    sampled = before.tokens.sampled
    row = np.repeat(np.arange(3), np.diff(before.tokens.offsets))
    assert after.column("policy_kl")[0] == pytest.approx(apart[sampled & (row < 2)].mean())
    assert after.column("policy_kl")[2] == pytest.approx(apart[sampled & (row == 2)].mean())
    assert after.column("policy_kl")[0] > 1e-3


def test_rollouts_that_the_environment_ended_change_nothing():
    learner = Learner(loaded(tiny_model()), OptimConfig())
    stream = Stream(single_stream, 1.0)
    graph = two_prompts()
    broken = graph.with_columns(ending=np.array([0, Status.ENV_ERROR, Status.DONE], np.int8))
    annotate(broken, learner, UpdateConfig(), 1.0, [stream])
    assert stream.tracker.value("a") == 0.5 and stream.tracker.value("b") < 0.5


def test_a_stream_goes_on_from_a_checkpoint_exactly(tmp_path):
    learner = Learner(loaded(tiny_model()), OptimConfig())
    through, stored = Stream(single_stream, 1.0), Stream(single_stream, 1.0)
    for stream in (through, stored):
        annotate(two_prompts(True), learner, UpdateConfig(), 1.0, [stream])
    torch.save(stored.state_dict(), tmp_path / "stream.pt")
    resumed = Stream(single_stream, 1.0)
    resumed.load_state_dict(torch.load(tmp_path / "stream.pt", weights_only=True))
    with torch.no_grad():
        next(learner.model.parameters()).mul_(1.1)
    found = [annotate(two_prompts(True), learner, UpdateConfig(), 1.0, [s]).graph for s in (through, resumed)]
    for name in ("value", "policy_kl"):
        np.testing.assert_array_equal(found[0].column(name), found[1].column(name))
    assert through.tracker.state_dict() == resumed.tracker.state_dict()


def test_a_stream_refuses_steps_that_branch():
    learner = Learner(loaded(tiny_model()), OptimConfig())
    graph = replace(trees(1), names={"group": ("a", "b")})
    with pytest.raises(ValueError, match="branch"):
        annotate(graph, learner, UpdateConfig(), 1.0, [Stream(single_stream, 1.0)])


def test_methods_say_what_they_lack_before_anything_is_played():
    knows = SimpleNamespace(gold=lambda task: "x")
    needs.check_columns(info_gain, CriticConfig(), knows)
    needs.check_columns(single_stream, CriticConfig())
    with pytest.raises(ValueError, match="gold"):
        needs.check_columns(info_gain, CriticConfig(), SimpleNamespace())
