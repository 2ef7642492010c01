"""Columns that the annotate stage fills for credit: the gold answer's likelihood, a prompt's tracked value."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from agentrl import catalogue
from agentrl.algorithms.credit.single_stream import Tracker
from agentrl.credit import CreditMethod, GoldAnswer, PromptValues, assign
from agentrl.graph import Filler, extract
from agentrl.rollout import RolloutMethod
from agentrl.run import checkpoint
from agentrl.settings.fits import check_columns, filled_columns
from agentrl.trainer import Learner, annotate
from agentrl.trainer.annotation import LearnerReader
from agentrl.trainer.sections import CriticConfig, OptimConfig, UpdateConfig
from agentrl.types import Status
from tests.graph.graphs import Row, build, loaded, tiny_model, trees, windows
from tests.toys.entries import credit_method


class Ids(LearnerReader):
    """A reader whose texts are ids."""

    def encode(self, text: str) -> np.ndarray:
        return np.array([int(word) for word in text.split()], np.int64)


def answered(graph, **gold: str):
    """The graph with the gold answers of some groups."""
    return replace(graph, names={**graph.names, "gold": tuple(gold.get(name, "") for name in graph.names["group"])})


def stream_values() -> PromptValues:
    """What a run with credit.name=single_stream keeps."""
    return PromptValues(Tracker())


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
    columns = GoldAnswer().columns(answered(two_prompts(), a="5 1 4", b="2"), Ids(learner, 1.0, 1000))
    # a: before any turn the model has read 1 2 3, after turn 0 also 4 5 (its answer) and 2 (what it was told)
    assert columns.steps["gold_logprob_start"][0] == pytest.approx(plain_mean(model, [1, 2, 3], [5, 1, 4]), abs=1e-5)
    assert columns.steps["gold_logprob"][0] == pytest.approx(plain_mean(model, [1, 2, 3, 4, 5, 2], [5, 1, 4]), abs=1e-5)
    assert columns.steps["gold_logprob_start"][2] == pytest.approx(plain_mean(model, [8, 9], [2]), abs=1e-5)
    assert np.isnan(columns.steps["gold_logprob"][[1, 2]]).all() and np.isnan(columns.steps["gold_logprob_start"][1])


def test_token_entropies_are_those_of_the_plain_forward_pass():
    model = tiny_model()
    learner, graph = Learner(loaded(model), OptimConfig()), two_prompts(restricted=True)
    assert not annotate(graph, learner, UpdateConfig(), 0.7).graph.has_token_column("token_entropy")
    tokens = annotate(graph, learner, UpdateConfig(), 0.7, entropies=True).graph.tokens

    def entropy(context: list[int], allowed: list[int] | None = None) -> float:
        logits = model(input_ids=torch.tensor([context]), use_cache=False).logits[0, -1].detach().double() / 0.7
        p = torch.softmax(logits if allowed is None else logits[allowed], -1)
        return float(-(p * p.log()).sum())

    # sampled: 4 and 5 after 1 2 3; 6 of {6, 7} after 1 2 3 4 5 2; 7 after 8 9
    expected = [entropy([1, 2, 3]), entropy([1, 2, 3, 4]), entropy([1, 2, 3, 4, 5, 2], [6, 7]), entropy([8, 9])]
    assert tokens.columns["token_entropy"][tokens.sampled] == pytest.approx(expected, abs=1e-5)
    assert expected[2] <= np.log(2) and np.isnan(tokens.columns["token_entropy"][~tokens.sampled]).all()


def test_gold_logprobs_of_prompts_written_anew_each_turn():
    model = tiny_model()
    graph = replace(windows(2, episodes=2), names={"group": ("a",)})
    columns = GoldAnswer().columns(answered(graph, a="3 3"), Ids(Learner(loaded(model), OptimConfig()), 1.0, 1000))
    for row in np.flatnonzero(graph.parent >= 0):
        start, stop = graph.tokens.offsets[row], graph.tokens.offsets[row + 1]
        prompt = graph.tokens.ids[start:stop][~graph.tokens.sampled[start:stop]].tolist()
        expected = plain_mean(model, prompt, [3, 3])
        assert columns.steps["gold_logprob"][graph.parent[row]] == pytest.approx(expected, abs=1e-5)


def test_gold_logprob_of_a_branched_turn_is_the_mean_over_the_turns_that_continue_it():
    model = tiny_model()
    graph = build(
        [
            Row([1, 2], [3]),
            Row([4], [6], 0, None, 0, episode=0, turn=1),
            Row([5], [6], 0, None, 0, episode=1, turn=1),  # the environment answered differently
        ]
    )
    reader = Ids(Learner(loaded(model), OptimConfig()), 1.0, 1000)
    columns = GoldAnswer().columns(answered(replace(graph, names={"group": ("a",)}), a="7"), reader)
    expected = np.mean([plain_mean(model, [1, 2, 3, told], [7]) for told in (4, 5)])
    assert columns.steps["gold_logprob"][0] == pytest.approx(expected, abs=1e-5)
    assert np.isnan(columns.steps["gold_logprob"][1:]).all()


def test_tasks_without_a_known_answer_have_no_gold_logprob():
    reader = Ids(Learner(loaded(tiny_model()), OptimConfig()), 1.0, 1000)
    columns = GoldAnswer().columns(answered(two_prompts(), b="2"), reader)
    assert np.isnan(columns.steps["gold_logprob_start"][0]) and not np.isnan(columns.steps["gold_logprob_start"][2])
    nothing = GoldAnswer().columns(two_prompts(), reader)
    assert all(np.isnan(x).all() for x in nothing.steps.values()) and not nothing.tokens


def test_information_gain_trains_from_them(monkeypatch):
    monkeypatch.setattr(LearnerReader, "encode", Ids.encode)
    learner = Learner(loaded(tiny_model()), OptimConfig())
    graph = annotate(answered(two_prompts(), a="5", b="2"), learner, UpdateConfig(), 1.0, [GoldAnswer()]).graph
    credit = assign(credit_method("info_gain"), graph)
    start, after = graph.column("gold_logprob_start")[0], graph.column("gold_logprob")[0]
    assert credit.parts["turn_reward"] == pytest.approx([np.exp(after) - np.exp(start), 1.0, 0.0])


def test_the_tracker_is_read_before_and_updated_after():
    learner = Learner(loaded(tiny_model()), OptimConfig())
    stream = stream_values()
    first = annotate(two_prompts(), learner, UpdateConfig(), 1.0, [stream]).graph
    # never seen: 0.5 each; then rho = 2^0 cut to 0.96: a = (0.48 + 1, 0.48), b = (0.48, 0.48 + 1); 1.48 / 1.96
    assert first.column("value")[[0, 2]] == pytest.approx([0.5, 0.5])
    assert np.isnan(first.column("value")[1])
    second = annotate(two_prompts(), learner, UpdateConfig(), 1.0, [stream]).graph
    assert second.column("value")[[0, 2]] == pytest.approx([1.48 / 1.96, 0.48 / 1.96])
    assert second.column("policy_kl")[[0, 2]] == pytest.approx([0.0, 0.0], abs=1e-9)
    credit = assign(credit_method("single_stream", whiten=False), second)
    assert credit.advantage == pytest.approx([0.48 / 1.96, 0.48 / 1.96, -0.48 / 1.96])


@pytest.mark.parametrize("restricted", [False, True])
def test_how_far_the_policy_moved_is_measured_on_the_prompts_last_answer(restricted):
    learner = Learner(loaded(tiny_model()), OptimConfig())
    stream = stream_values()
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


def test_an_episode_of_a_program_changes_the_value_of_its_prompt_once():
    """The called chain continues the context of the main chain and has the outcome of the episode."""
    called = {"caller": 0, "agent": 1, "terminated": True, "reward": 1.0}
    graph = build(
        [
            Row([1, 2, 3], [4, 5], columns={"terminated": True, "reward": 1.0}),
            Row([2], [6], context=0, episode=1, rollout=0, columns=called),
        ]
    )
    graph = replace(graph, names={"group": ("a",), "agent": ("main", "main/called")})
    graph = graph.with_columns(caller=np.array([-1, 0]))
    learner, stream = Learner(loaded(tiny_model()), OptimConfig()), stream_values()
    annotate(graph, learner, UpdateConfig(), 1.0, [stream])
    alone = stream_values()
    annotate(extract(graph, np.array([0])), learner, UpdateConfig(), 1.0, [alone])
    assert stream.tracker.state_dict() == alone.tracker.state_dict() and [*stream.answers] == ["a"]
    again = annotate(graph, learner, UpdateConfig(), 1.0, [stream]).graph
    assert again.column("policy_kl") == pytest.approx([0.0, np.nan], abs=1e-6, nan_ok=True)


def test_rollouts_that_the_environment_ended_change_nothing():
    learner = Learner(loaded(tiny_model()), OptimConfig())
    stream = stream_values()
    graph = two_prompts()
    broken = graph.with_columns(ending=np.array([0, Status.ENV_ERROR, Status.DONE], np.int8))
    annotate(broken, learner, UpdateConfig(), 1.0, [stream])
    assert stream.tracker.value("a") == 0.5 and stream.tracker.value("b") < 0.5


def test_a_stream_goes_on_from_a_checkpoint_exactly(tmp_path):
    learner = Learner(loaded(tiny_model()), OptimConfig())
    through, stored = stream_values(), stream_values()
    for stream in (through, stored):
        annotate(two_prompts(True), learner, UpdateConfig(), 1.0, [stream])
    torch.save(checkpoint._packed(stored.state_dict()), tmp_path / "state.pt")
    resumed = stream_values()
    resumed.load_state_dict(checkpoint._unpacked(torch.load(tmp_path / "state.pt", weights_only=True)))
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
        annotate(graph, learner, UpdateConfig(), 1.0, [stream_values()])


def test_methods_say_what_they_lack_before_anything_is_played():
    gain, stream = (catalogue.load(CreditMethod, name) for name in ("info_gain", "single_stream"))
    chain = catalogue.load(RolloutMethod, "chain")
    knows: dict[str, Filler] = {"gold_answer": GoldAnswer()}
    check_columns(gain, filled_columns(CriticConfig(), chain, knows))
    check_columns(stream, filled_columns(CriticConfig(), chain, {"credit/single_stream": stream_values()}))
    with pytest.raises(ValueError, match="gold"):
        check_columns(gain, filled_columns(CriticConfig(), chain, {}))


def test_a_called_agents_prompt_has_a_value_of_its_own():
    # the episode of prompt b becomes a searcher's, called for prompt a: two estimates, 0.5 each before, then apart
    graph = two_prompts()
    columns = {**graph.columns, "group": np.zeros(3, np.int64), "agent": np.array([0, 0, 1])}
    called = replace(graph, columns=columns | {"caller": np.array([-1, -1, 0])})
    called = replace(called, names={"group": ("a",), "agent": ("main", "searcher")})
    learner, stream = Learner(loaded(tiny_model()), OptimConfig()), stream_values()
    annotate(called, learner, UpdateConfig(), 1.0, [stream])
    assert stream.tracker.value("a") == pytest.approx(1.48 / 1.96)
    assert stream.tracker.value("searcher called for a") == pytest.approx(0.48 / 1.96)
