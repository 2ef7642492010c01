"""The same updates by a learner of this process and by one at a service: losses, gradient norms, weights, metrics."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from agentrl.config import resolve
from agentrl.credit import CreditMethod, assign
from agentrl.engines.tinker import ServiceError
from agentrl.graph import DEMO, decisions
from agentrl.model import read_served
from agentrl.tinker import ServedPolicy, ServiceLearner
from agentrl.tinker.datums import datums, gathered, unroll
from agentrl.tinker.sums import keeps_snapshots
from agentrl.trainer import (
    Learner,
    LearnerConfig,
    OptimConfig,
    RegularizerFile,
    Regularizers,
    UpdateConfig,
    annotate,
    clone,
    update,
)
from agentrl.trainer.local_passes import logprobs
from tests.graph.graphs import chains, loaded, partial, tiny_model, trees, windows
from tests.toys.entries import loss
from tests.toys.own_service import Done, OwnService, tokenizer

SHAPES = {"chains": chains(1, 6, 3), "windows": windows(3), "partial": partial(4), "trees": trees(2)}
LR = EPS = 1e3  # plain gradient descent: Adam divides by the size of a gradient, and so hides a wrong factor
PLAIN = OptimConfig(lr=LR, weight_decay=0.0, betas=(0.9, 0.95), grad_clip=0.0)


@pytest.fixture
def sides(monkeypatch):
    """Makes (learner of this process, the same policy at a service)."""
    monkeypatch.setattr("agentrl.tinker.service_learner.EPS", EPS)

    def made(sums="tokens", optim=PLAIN, **options):
        model = tiny_model(1)
        service = OwnService(copy.deepcopy(model), sums)
        local = Learner(loaded(model), optim, **options)
        for group in local.optimisers[0].param_groups:
            group["eps"] = EPS
        config = LearnerConfig(name="tinker", model="own")
        remote = ServiceLearner(service, ServedPolicy("p", "own", 0, sums), tokenizer(), optim, config, **options)
        return local, remote

    return made


def credited(graph, method):
    """The graph with states, rewards and actions, and its credit."""
    rng, n = np.random.default_rng(7), len(graph)
    last = np.array([not (graph.parent == i).any() for i in range(n)])
    graph = graph.with_columns(
        reward=np.where(last, rng.integers(0, 2, n), 0).astype(float),
        terminated=last,
        state=graph.turn.copy(),
        action=rng.integers(0, 3, n),
        next_state=graph.turn + 1,
    )
    credit = assign(resolve(CreditMethod, {"name": "gigpo" if method == "per token" else method}), graph)
    if method == "per token":
        credit = replace(credit, token_advantage=rng.normal(size=len(graph.tokens.ids)) * graph.tokens.sampled)
    return graph, credit


def here(local, graph):
    """[S] the log-probs of the learner of this process."""
    return logprobs(local.network, graph, np.arange(len(graph)), temperature=1.0, max_tokens=4096)


def there(remote, graph):
    """[S] the log-probs of the learner at the service."""
    rows = np.arange(len(graph))
    return remote.passes.read(graph.tokens, rows, temperature=1.0, max_tokens=4096).logprob


def apart(local, remote, graph):
    return np.nanmax(np.abs(here(local, graph) - there(remote, graph)))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_wanted_token_is_sent_once(shape):
    tokens = SHAPES[shape].tokens
    wanted, column = decisions(tokens), np.random.default_rng(0).normal(size=len(tokens.ids))
    on = unroll(tokens, wanted)
    counted = np.concatenate([place[counts] for place, counts in zip(on.places, on.counts, strict=True)])
    assert sorted(counted) == np.flatnonzero(wanted).tolist()
    sent = datums(tokens, on, {"weights": column})
    assert sum(one.columns["weights"].sum() for one in sent) == pytest.approx(column[wanted].sum(), abs=1e-4)
    back = gathered([one.columns["weights"] for one in sent], on, len(column))
    assert np.array_equal(np.isnan(back), ~wanted)
    assert back[wanted] == pytest.approx(column[wanted], abs=1e-6)
    for one, place in zip(sent, on.places, strict=True):
        assert np.array_equal(np.append(one.inputs, one.targets[-1]), tokens.ids[place])
    assert on.sent >= on.distinct


def test_a_chat_that_grows_is_one_sequence_and_a_tree_one_per_leaf():
    chats, tree = SHAPES["chains"], SHAPES["trees"]
    assert len(unroll(chats.tokens, decisions(chats.tokens)).places) == len(np.unique(chats.episode))
    leaves = sum(not (tree.parent == i).any() for i in range(len(tree)))
    assert len(unroll(tree.tokens, decisions(tree.tokens)).places) == leaves


def test_a_path_that_begins_with_an_answer_is_refused_as_here(sides):
    local, remote = sides()
    graph = SHAPES["chains"]
    sampled = graph.tokens.sampled.copy()
    sampled[0] = True
    graph = replace(graph, tokens=replace(graph.tokens, sampled=sampled))
    for read in (here, there):
        with pytest.raises(ValueError, match="begins with a sampled token"):
            read(local if read is here else remote, graph)


@pytest.mark.parametrize("shape", SHAPES)
def test_logprobs_are_equal(sides, shape):
    local, remote = sides()
    assert apart(local, remote, SHAPES[shape]) < 1e-5


CASES = [
    ("chains", "gigpo", "ppo_clip", {"minibatches": 2, "epochs": 2}, "tokens"),
    ("chains", "gigpo", "gspo", {"epochs": 2}, "sequences"),
    ("chains", "gigpo", "gmpo", {"epochs": 2}, "tokens"),
    ("chains", "gigpo", "m2po", {"epochs": 2}, "tokens"),
    ("windows", "gigpo", "dapo", {"minibatches": 2, "aggregation": "seq-mean-token-sum"}, "sequences"),
    ("windows", "salt", "ppo_clip", {"epochs": 2}, "tokens"),
    ("partial", "per token", "reinforce", {"epochs": 2}, "sequences"),
    ("trees", "tree_grpo", "cispo", {"epochs": 2}, "sequences"),
    ("trees", "grpo", "turn_ppo", {"epochs": 2}, "tokens"),
    ("trees", "grpo", "dr_grpo", {"sequence": "episode", "aggregation": "seq-mean-token-mean"}, "tokens"),
    ("trees", "grpo", "gspo", {"epochs": 2}, "tokens"),
    ("chains", "per token", "ppo_clip", {"minibatches": 2, "epochs": 2}, "sequences"),
    ("chains", "gigpo", "ppo_clip", {"epochs": 2, "train_invalid": False, "kl_coef": 0.1}, "tokens"),
]


@pytest.mark.parametrize(("shape", "method", "name", "options", "sums"), CASES)
def test_an_update_is_equal(sides, shape, method, name, options, sums):
    config = UpdateConfig(unit="rollout", **options)
    local, remote = sides(sums, reference=config.kl_coef > 0)
    graph, credit = credited(SHAPES[shape], method)
    assert credit.advantage.any() or credit.token_advantage is not None
    mine, theirs = (annotate(graph, one, config, 1.0).graph for one in (local, remote))
    before = here(local, graph)
    found = [
        update(one, own, credit, config, loss(name), temperature=1.0, seed=3)
        for one, own in ((local, mine), (remote, theirs))
    ]
    assert found[1]["loss"] == pytest.approx(found[0]["loss"], abs=1e-6)
    assert found[1]["grad_norm"] == pytest.approx(found[0]["grad_norm"], rel=1e-4)
    for metric in ("optimizer_steps", "decision_tokens", "dropped_rows", "idle_rows", "lr_scale"):
        assert found[1][metric] == found[0][metric], metric
    moved = np.nanmax(np.abs(here(local, graph) - before))
    assert moved > 1e-3
    assert apart(local, remote, graph) < 1e-4 * moved + 1e-6


@pytest.mark.parametrize("options", [{"kl_coef": 0.2, "kl_form": "k3"}, {"importance": "sequence_mask"}])
@pytest.mark.parametrize("shape", ["windows", "trees"])
def test_an_update_with_demonstrations_and_replayed_rows_of_one_of_two_policies_is_equal(sides, shape, options):
    config = UpdateConfig(unit="rollout", epochs=2, train_invalid=False, **options)
    local, remote = sides("sequences", reference=config.kl_coef > 0)
    graph, credit = credited(SHAPES[shape], "gigpo")
    rng, first = np.random.default_rng(3), graph.rollout == graph.rollout[0]
    graph = graph.with_columns(
        kind=np.where(first, DEMO, graph.kind),
        replayed=graph.rollout == graph.rollout[-1],
        weight=rng.uniform(0.5, 2.0, len(graph)),
        valid=rng.random(len(graph)) > 0.2,
    )
    noise = graph.tokens.logprobs + rng.normal(0, 0.5, len(graph.tokens.ids)) * graph.tokens.sampled
    graph = replace(graph, tokens=replace(graph.tokens, logprobs=noise))  # the engine's differ from the trainer's
    mine = np.isin(graph.rollout, np.unique(graph.rollout)[::2])
    credit = replace(credit, assigned=credit.assigned & mine)
    before, found = here(local, graph), []
    for one in (local, remote):
        own = annotate(graph, one, config, 1.0, mine=mine)
        regularizers = Regularizers([resolve(RegularizerFile, {"name": "imitation", "coef": 0.1})])
        more = {"temperature": 1.0, "seed": 3, "regularizers": regularizers}
        found.append({**own.metrics, **update(one, own.graph, credit, config, loss("ppo_clip"), **more)})
    moved = np.nanmax(np.abs(here(local, graph) - before))
    assert moved > 1e-2 and apart(local, remote, graph) < 1e-4 * moved + 1e-6
    for metric in ("loss", "grad_norm", "decision_tokens", "dropped_rows", "optimizer_steps", "mismatch_max"):
        assert found[1][metric] == pytest.approx(found[0][metric], rel=1e-3, abs=1e-6), metric


def test_cloning_is_equal(sides):
    local, remote = sides()
    graph, config = SHAPES["windows"], UpdateConfig(unit="rollout", minibatches=2, epochs=2)
    found = [clone(one, graph, config, seed=1) for one in (local, remote)]
    assert found[1]["loss"] == pytest.approx(found[0]["loss"], abs=1e-6)
    assert found[1]["probability"] == pytest.approx(found[0]["probability"], abs=1e-6)
    assert apart(local, remote, graph) < 1e-5


def test_the_first_minibatch_needs_no_second_forward_pass(sides):
    _, remote = sides()
    graph, credit = credited(SHAPES["chains"], "gigpo")
    config, service = UpdateConfig(), remote._service
    graph = annotate(graph, remote, config, 1.0).graph
    metrics = update(remote, graph, credit, config, loss("ppo_clip"), temperature=1.0)
    assert [kind for kind, _ in service.calls] == ["forward", "backward"]
    read, backward = (n for _, n in service.calls)
    assert (metrics["trained_tokens"], metrics["backward_tokens"]) == (read + backward, backward)
    again = UpdateConfig(epochs=2)
    graph = annotate(graph, remote, again, 1.0).graph
    update(remote, graph, credit, again, loss("ppo_clip"), temperature=1.0)
    assert [kind for kind, _ in service.calls[2:]] == ["forward", "backward", "forward", "backward"]


def test_log_probs_of_a_batch_that_is_gone_are_not_kept(sides):
    _, remote = sides()
    for _ in range(3):  # as with groups that all have no gradient, so that no step moves the weights
        there(remote, chains(1, 6, 3))
    assert len(remote.passes._known) == 1


def test_a_gradient_norm_that_is_not_told_is_not_logged(sides):
    _, remote = sides()
    remote._service.tells_norm = False
    graph, credit = credited(SHAPES["chains"], "gigpo")
    config = UpdateConfig()
    graph = annotate(graph, remote, config, 1.0).graph
    metrics = update(remote, graph, credit, config, loss("ppo_clip"), temperature=1.0)
    assert metrics["optimizer_steps"] == 1 and "grad_norm" not in metrics


def test_a_reference_model_is_not_asked_about_no_rows(sides):
    _, remote = sides(reference=True)
    remote._service.scores = False
    graph = SHAPES["windows"]
    with remote.reference() as frozen:
        before = len(remote._service.calls)
        found = frozen.read(graph.tokens, np.zeros(0, np.int64), temperature=1.0, max_tokens=4096).logprob
    assert np.isnan(found).all() and len(remote._service.calls) == before


@pytest.mark.parametrize("scores", [True, False])
def test_the_tokens_of_the_reference_model_are_counted_as_they_are_billed(sides, scores):
    _, remote = sides(reference=True)
    remote._service.scores = scores
    graph, credit = credited(SHAPES["chains"], "gigpo")
    config = UpdateConfig(kl_coef=0.1)
    graph = annotate(graph, remote, config, 1.0).graph
    metrics = update(remote, graph, credit, config, loss("ppo_clip"), temperature=1.0)
    passes = metrics["trained_tokens"] - metrics["backward_tokens"]  # of the policy and, without scores, the reference
    sent = unroll(graph.tokens, decisions(graph.tokens)).sent
    assert (passes, metrics["reference_tokens"]) == ((sent, sent) if scores else (2 * sent, 0))


def test_samplers_that_score_no_prompts_name_the_option_of_older_weights(sides):
    _, remote = sides()
    remote._service.scores = False
    with pytest.raises(ServiceError, match=r"set run\.staleness=0"):
        keeps_snapshots(remote._service, "own")


def test_shared_tokens_are_counted(sides):
    _, remote = sides()
    graph, credit = credited(SHAPES["trees"], "grpo")
    config = UpdateConfig()
    metrics = update(remote, annotate(graph, remote, config, 1.0).graph, credit, config, loss("cispo"), temperature=1.0)
    assert metrics["repeated_prefixes"] > 1.0
    assert metrics["packed_tokens"] == metrics["backward_tokens"]


def test_gradient_clipping_and_weight_decay_go_with_the_step(sides):
    optim = OptimConfig(lr=2e-4, weight_decay=0.3, betas=(0.8, 0.9), grad_clip=0.5, warmup=3)
    _, remote = sides(optim=optim)
    graph, credit = credited(SHAPES["chains"], "gigpo")
    config = UpdateConfig()
    update(remote, annotate(graph, remote, config, 1.0).graph, credit, config, loss("ppo_clip"), temperature=1.0)
    (step,) = remote.trainer.steps
    assert step == (2e-4 / 4, 0.8, 0.9, EPS, 0.3, 0.5)


@pytest.mark.parametrize("in_order", [True, False])
def test_a_step_waits_for_its_gradient_unless_the_service_keeps_the_order(sides, in_order):
    _, remote = sides()
    remote._service.in_order, events = in_order, []
    backward, step = remote.trainer.forward_backward, remote.trainer.step

    def send(data):
        answer = backward(data)
        events.append("gradient sent")
        return SimpleNamespace(result=lambda: events.append("gradient awaited") or answer.result())

    remote.trainer.forward_backward = send
    remote.trainer.step = lambda adam: events.append("step sent") or step(adam)
    graph, credit = credited(SHAPES["chains"], "gigpo")
    config = UpdateConfig()
    update(remote, annotate(graph, remote, config, 1.0).graph, credit, config, loss("ppo_clip"), temperature=1.0)
    order = ["step sent", "gradient awaited"] if in_order else ["gradient awaited", "step sent"]
    assert events == ["gradient sent", *order]


def test_no_gradient_sends_nothing(sides):
    local, remote = sides()
    graph, credit = credited(SHAPES["chains"], "gigpo")
    credit = replace(credit, positive=0 * credit.positive, negative=0 * credit.negative)
    config = UpdateConfig()
    found = [
        update(one, annotate(graph, one, config, 1.0).graph, credit, config, loss("ppo_clip"), temperature=1.0)
        for one in (local, remote)
    ]
    assert remote.trainer.steps == [] and found[1]["optimizer_steps"] == found[0]["optimizer_steps"]


def test_a_gradient_that_is_not_finite_is_not_sent(sides, caplog):
    _, remote = sides()
    graph, credit = credited(SHAPES["chains"], "gigpo")
    graph = annotate(graph, remote, UpdateConfig(), 1.0).graph
    credit = replace(credit, positive=np.where(credit.positive > 0, np.inf, 0.0))
    metrics = update(remote, graph, credit, UpdateConfig(), loss("ppo_clip"), temperature=1.0)
    assert metrics["skipped_steps"] == 1 and remote.trainer.steps == []
    assert "not finite" in caplog.text


def test_a_service_whose_passes_differ_is_refused(sides):
    _, remote = sides()
    graph, credit = credited(SHAPES["chains"], "gigpo")
    graph = annotate(graph, remote, UpdateConfig(), 1.0).graph
    with torch.no_grad():  # somebody else trains the same model
        for parameter in remote.trainer.model.parameters():
            parameter.mul_(1.5)
    with pytest.raises(ValueError, match="something else trains this model"):
        update(remote, graph, credit, UpdateConfig(), loss("ppo_clip"), temperature=1.0)


def test_other_temperatures_and_restricted_answers_are_refused(sides):
    _, remote = sides()
    graph = SHAPES["chains"]
    with pytest.raises(ValueError, match=r"sampling.temperature=1"):
        annotate(graph, remote, UpdateConfig(), 0.7)
    annotate(graph, remote, UpdateConfig(), 0.0)  # greedy: the log-probs are those at temperature 1
    with pytest.raises(ValueError, match=r"engine.actions=free"):
        annotate(chains(1, restricted=True), remote, UpdateConfig(), 1.0)


@pytest.mark.parametrize("scores", [True, False])
def test_a_checkpoint_continues_exactly(sides, tmp_path, scores):
    _, remote = sides(reference=True)
    remote._service.scores = scores
    graph, credit = credited(SHAPES["chains"], "gigpo")
    config = UpdateConfig(kl_coef=0.1)

    def improve(one):
        return update(one, annotate(graph, one, config, 1.0).graph, credit, config, loss("ppo_clip"), temperature=1.0)

    improve(remote)
    remote.save(tmp_path / "p", remote.generating)
    state = remote.state_dict()
    config_of = LearnerConfig(name="tinker", model="own")
    again = ServiceLearner(
        remote._service,
        ServedPolicy("p", "own", 0, "tokens"),
        tokenizer(),
        PLAIN,
        config_of,
        reference=True,
        stored=read_served(tmp_path / "p"),
    )
    again.load_state_dict(state)
    assert improve(again) == improve(remote)
    assert np.array_equal(there(again, graph), there(remote, graph), equal_nan=True)


@pytest.mark.parametrize("scores", [True, False])
def test_a_new_stage_has_a_new_optimiser_and_reference(sides, scores):
    local, remote = sides(optim=OptimConfig(lr=1e-3, weight_decay=0.0), reference=True)
    remote._service.scores = scores  # without log-probs of prompts, a second model is the reference
    for group in local.optimisers[0].param_groups:
        group["eps"] = EPS
    graph, config = SHAPES["windows"], UpdateConfig(kl_coef=0.1)
    for one in (local, remote):
        clone(one, graph, config)
        one.restart(OptimConfig(lr=1e-3, weight_decay=0.0), 5)
    assert not remote.trainer.optimiser.state
    reference = [annotate(graph, one, config, 1.0).graph.token_column("ref_logprob") for one in (local, remote)]
    assert np.nanmax(np.abs(reference[0] - reference[1])) < 1e-5
    old = annotate(graph, remote, config, 1.0).graph.token_column("old_logprob")
    assert np.nanmax(np.abs(reference[1] - old)) < 1e-5  # nothing was trained since
    assert (remote.updates, remote.total_updates) == (0, 5)


@pytest.mark.parametrize("scores", [True, False])
def test_the_base_model_can_be_the_reference(sides, scores):
    _, remote = sides(reference=True, initial=True)
    remote._service.scores = scores
    graph, config = SHAPES["windows"], UpdateConfig(kl_coef=0.1)
    before = annotate(graph, remote, config, 1.0).graph.token_column("ref_logprob")
    clone(remote, graph, config)
    remote.restart(PLAIN, 5)
    found = annotate(graph, remote, config, 1.0).graph
    assert np.array_equal(found.token_column("ref_logprob"), before)
    assert not np.array_equal(found.token_column("old_logprob"), before)


def test_a_service_without_room_for_a_reference_says_what_to_set(sides):
    _, remote = sides(reference=True)
    remote._service.scores = False
    remote._service.resume = lambda path, **options: refuse("no room")
    with pytest.raises(ValueError, match=r"no room\. .*set update.kl_coef=0"):
        annotate(SHAPES["chains"], remote, UpdateConfig(kl_coef=0.1), 1.0)


def refuse(why):
    raise ServiceError(why)


def test_a_state_of_another_learner_is_refused(sides):
    local, remote = sides()
    with pytest.raises(ValueError, match=r"learner.name=local"):
        remote.load_state_dict(local.state_dict())


@pytest.mark.parametrize("snapshots", [True, False])
def test_reading_the_reference_moves_no_weight(sides, snapshots):
    _, remote = sides(reference=True)
    remote._service.snapshots = snapshots
    assert keeps_snapshots(remote._service, "own") == snapshots
    graph, credit = credited(SHAPES["chains"], "gigpo")
    config = UpdateConfig(kl_coef=0.1)
    first = annotate(graph, remote, config, 1.0).graph
    update(remote, first, credit, config, loss("ppo_clip"), temperature=1.0)
    before = there(remote, graph)
    second = annotate(graph, remote, config, 1.0).graph
    assert np.array_equal(there(remote, graph), before, equal_nan=True)
    columns = [one.token_column("ref_logprob") for one in (first, second)]
    assert np.nanmax(np.abs(columns[1] - columns[0])) < 1e-5
    assert np.nanmax(np.abs(columns[1] - before)) > 1e-3


def test_samplers_are_snapshots_per_version(sides):
    _, remote = sides()
    first = remote.generating
    assert remote.generating is first  # one snapshot per version
    graph, credit = credited(SHAPES["chains"], "gigpo")
    config = UpdateConfig()
    ids = graph.tokens.ids[:8]
    (before,) = first.sampler.logprobs([ids])
    update(remote, annotate(graph, remote, config, 1.0).graph, credit, config, loss("ppo_clip"), temperature=1.0)
    assert np.array_equal(first.sampler.logprobs([ids])[0], before, equal_nan=True)
    assert not np.array_equal(remote.generating.sampler.logprobs([ids])[0], before, equal_nan=True)


def test_a_step_that_the_service_skips_is_counted(sides):
    _, remote = sides()
    step = remote.trainer.step
    remote.trainer.step = lambda adam: step(adam) and Done({"skipped": 1.0})
    graph, credit = credited(SHAPES["chains"], "gigpo")
    graph = annotate(graph, remote, UpdateConfig(), 1.0).graph
    metrics = update(remote, graph, credit, UpdateConfig(), loss("ppo_clip"), temperature=1.0)
    assert metrics["skipped_steps"] == 1
