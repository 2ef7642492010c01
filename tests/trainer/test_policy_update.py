"""The update around the loss: optimiser, schedule, mini-batches, KL, reference, resume, LoRA, and what is
skipped."""

import logging
import math

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from agentrl.credit import Credit
from agentrl.trainer import Learner, annotate, clone, update
from agentrl.trainer.annotation import mismatch
from agentrl.trainer.local_passes import logprobs
from agentrl.trainer.loss_terms import kl_term
from agentrl.trainer.minibatch import families, split
from agentrl.trainer.sections import LearnerConfig, OptimConfig, UpdateConfig
from tests.graph.graphs import Row, build, chains, gradient, loaded, partial, plain_tokens, tiny_model, trees, windows
from tests.toys.entries import loss

LOSS = loss("ppo_clip")


def weights(learner: Learner) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in learner.model.parameters()])


def train(learner: Learner, graph, config: UpdateConfig, seed: int) -> dict[str, float]:
    """One annotated update with random advantages."""
    graph, _ = annotate(graph, learner, config, 1.0)
    advantage = np.random.default_rng(seed).normal(size=len(graph))
    return update(learner, graph, Credit.of(advantage), config, LOSS, temperature=1.0, seed=seed)


def test_kl_forms_by_hand():
    # pi - ref = ln 2: k1 = abs = ln 2, k2 = (ln 2)^2 / 2, k3 = 1/2 + ln 2 - 1; at -ln 2: k3 = 2 - ln 2 - 1
    up, down = torch.tensor([math.log(2.0)]), torch.tensor([-math.log(2.0)])
    zero = torch.zeros(1)
    assert kl_term(up, zero, "k1").item() == pytest.approx(math.log(2))
    assert kl_term(down, zero, "abs").item() == pytest.approx(math.log(2))
    assert kl_term(down, zero, "k2").item() == pytest.approx(math.log(2) ** 2 / 2)
    assert kl_term(up, zero, "k3").item() == pytest.approx(math.log(2) - 0.5, abs=1e-6)
    assert kl_term(down, zero, "k3").item() == pytest.approx(1 - math.log(2), abs=1e-6)
    assert kl_term(torch.tensor([-30.0]), zero, "k3").item() == 10.0


@pytest.mark.parametrize("form", ["k1", "abs", "k2", "k3"])
def test_the_mean_gradient_of_every_form_by_an_exact_sum(form):
    """Over all tokens, weighted by pi: 0; of sum |pi - ref|; of KL(pi || ref); of KL(ref || pi)."""
    rng = np.random.default_rng(0)
    logits = torch.from_numpy(rng.normal(size=5)).requires_grad_()
    reference = torch.log_softmax(torch.from_numpy(rng.normal(size=5)), 0)
    logprob = torch.log_softmax(logits, 0)
    (logprob.exp().detach() * kl_term(logprob, reference, form)).sum().backward()
    found, logits.grad = logits.grad, None
    logprob = torch.log_softmax(logits, 0)
    p, q = logprob.exp(), reference.exp()
    meant = {
        "k1": 0.0 * p.sum(),
        "abs": (p - q).abs().sum(),
        "k2": (p * (logprob - reference)).sum(),
        "k3": (q * (reference - logprob)).sum(),
    }[form]
    meant.backward()
    torch.testing.assert_close(found, logits.grad)


@pytest.mark.parametrize("form", ["k1", "abs", "k2", "k3"])
@pytest.mark.parametrize("apart", [-1000.0, -90.0, -30.0, -1.0, 0.5, 90.0, 1000.0])
def test_the_kl_terms_gradient_is_finite_at_any_log_ratio(form, apart):
    logprob = torch.tensor([apart], requires_grad=True)
    term = kl_term(logprob, torch.zeros(1), form)
    term.sum().backward()
    assert torch.isfinite(term).all() and torch.isfinite(logprob.grad).all()
    if form == "k3":  # d/dx of exp(-x) + x - 1 is 1 - exp(-x), and 0 where the term is at its bound
        expected = 1 - math.exp(-apart) if abs(apart) < 2 else 0.0
        assert logprob.grad.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_resume_is_exact(name):
    """Two updates, state stored and loaded into a new learner, two more: the weights of four in a row, bit
    for bit."""
    optim = OptimConfig(name=name, lr=0.01, muon_lr=0.02, warmup=1, schedule="cosine")
    config = UpdateConfig(kl_coef=0.1, minibatches=2, epochs=2)
    through = Learner(loaded(tiny_model()), optim, reference=True)
    through.restart(optim, 5)
    for seed in range(4):
        train(through, chains(seed), config, seed)
    first = Learner(loaded(tiny_model()), optim, reference=True)
    first.restart(optim, 5)
    for seed in range(2):
        train(first, chains(seed), config, seed)
    other = tiny_model(seed=9)
    other.load_state_dict(first.model.state_dict())
    second = Learner(loaded(other), OptimConfig(), reference=True)
    second.load_state_dict(first.state_dict())
    for seed in range(2, 4):
        train(second, chains(seed), config, seed)
    assert torch.equal(weights(through), weights(second))
    assert not torch.equal(weights(through), weights(first))


def test_a_state_of_another_model_is_refused():
    state = Learner(loaded(tiny_model()), OptimConfig()).state_dict()
    muon = Learner(loaded(tiny_model()), OptimConfig(name="muon")).state_dict()
    state["optimisers"] = muon["optimisers"]
    with pytest.raises(ValueError, match="another model"):
        Learner(loaded(tiny_model()), OptimConfig()).load_state_dict(state)


def test_the_schedule_by_hand():
    # 2 warm-up updates of 6: 1/3, 2/3, then half a cosine over 4: 1, 0.5 + 0.5 cos(pi/4), 0.5, 0.5 - 0.5
    # cos(pi/4)
    learner = Learner(loaded(tiny_model()), OptimConfig(warmup=2, schedule="cosine"))
    learner.restart(learner.optim, 6)
    rates = []
    for learner.updates in range(7):
        rates.append(learner.rate)
    c = 0.5 * math.cos(math.pi / 4)
    np.testing.assert_allclose(rates, [1 / 3, 2 / 3, 1, 0.5 + c, 0.5, 0.5 - c, 0], atol=1e-12)


def test_a_budget_that_ends_the_run_first_ends_the_schedule():
    # 10 updates planned, 2 done (a fifth), but three quarters of the tokens spent: half a cosine at 3/4
    learner = Learner(loaded(tiny_model()), OptimConfig(schedule="cosine"))
    learner.restart(learner.optim, 10)
    learner.updates, learner.spent = 2, 0.75
    assert learner.rate == pytest.approx(0.5 + 0.5 * math.cos(0.75 * math.pi))
    learner.spent = 0.1
    assert learner.rate == pytest.approx(0.5 + 0.5 * math.cos(0.2 * math.pi))


def test_micro_batches_change_no_weight():
    results = []
    for max_tokens in (80, 100_000):
        learner = Learner(loaded(tiny_model()), OptimConfig(lr=0.01))
        metrics = train(learner, windows(3), UpdateConfig(max_tokens=max_tokens), 3)
        results.append((metrics.pop("microbatches"), metrics.pop("packed_tokens"), metrics, weights(learner)))
    assert results[0][0] > results[1][0] == 1
    for name, value in results[0][2].items():
        assert value == pytest.approx(results[1][2][name], abs=1e-6), name
    # AdamW divides by the gradient's own size, so rounding in an entry near 0 is blown up to a share of lr.
    torch.testing.assert_close(results[0][3], results[1][3], atol=1e-4, rtol=1e-4)


def test_a_gradient_that_is_not_finite_changes_nothing_and_is_told(caplog):
    graph = chains(0)
    graph = graph.with_token_columns(old_logprob=np.zeros(len(graph.tokens.ids)))
    learner = Learner(loaded(tiny_model()), OptimConfig(lr=0.1))
    before = weights(learner)
    advantage = np.ones(len(graph))
    advantage[0] = np.inf
    with caplog.at_level(logging.ERROR):
        metrics = update(learner, graph, Credit.of(advantage), UpdateConfig(), LOSS, temperature=1.0)
    assert metrics["skipped_steps"] == 1 and metrics["optimizer_steps"] == 1
    assert "skipped" in caplog.text
    assert torch.equal(before, weights(learner))


def test_good_answers_become_likely_and_bad_ones_unlikely():
    graph = build([Row([1, 2], [3, 4, 5]), Row([1, 2], [6, 7, 8], episode=1)])
    learner = Learner(loaded(tiny_model()), OptimConfig(lr=0.01))
    config = UpdateConfig()
    before = logprobs(learner.network, graph, np.arange(2), temperature=1.0, max_tokens=100)
    for seed in range(10):
        annotated, _ = annotate(graph, learner, config, 1.0)
        credit = Credit.of(np.array([1.0, -1.0]))
        update(learner, annotated, credit, config, LOSS, temperature=1.0, seed=seed)
    after = logprobs(learner.network, graph, np.arange(2), temperature=1.0, max_tokens=100)
    assert after[2:5].sum() > before[2:5].sum() + 1
    assert after[7:10].sum() < before[7:10].sum() - 1


def test_cloning_learns_by_heart():
    graph = build([Row([1, 2], [3, 4, 5]), Row([2, 1], [6, 7, 8], episode=1)])
    learner = Learner(loaded(tiny_model()), OptimConfig(name="muon", lr=0.02, muon_lr=0.05))
    for seed in range(60):
        metrics = clone(learner, graph, UpdateConfig(), minibatches=1, seed=seed)
    assert metrics["loss"] < 0.05 and metrics["probability"] > 0.95


def test_rows_without_credit_and_invalid_rows_are_left_out():
    graph = chains(1, episodes=3)
    graph = graph.with_columns(valid=np.arange(len(graph)) != 0)
    graph = graph.with_token_columns(old_logprob=np.zeros(len(graph.tokens.ids)))
    assigned = np.arange(len(graph)) != len(graph) - 1
    credit = Credit.of(np.ones(len(graph)), assigned=assigned)
    kept = {}
    for train_invalid in (True, False):
        learner = Learner(loaded(tiny_model()), OptimConfig())
        config = UpdateConfig(train_invalid=train_invalid)
        metrics = update(learner, graph, credit, config, LOSS, temperature=1.0)
        kept[train_invalid] = metrics
    answers = [int(graph.tokens.sampled[a:b].sum()) for a, b in zip(*_bounds(graph), strict=True)]
    assert kept[True]["dropped_rows"] == 1 and kept[False]["dropped_rows"] == 2
    assert kept[True]["decision_tokens"] == sum(answers[:-1])
    assert kept[False]["decision_tokens"] == sum(answers[1:-1])


def _bounds(graph):
    return graph.tokens.offsets[:-1], graph.tokens.offsets[1:]


def test_nothing_to_train_is_no_step():
    graph = chains(1).with_token_columns(old_logprob=np.zeros(len(chains(1).tokens.ids)))
    credit = Credit.of(np.ones(len(graph)), assigned=np.zeros(len(graph), bool))
    learner = Learner(loaded(tiny_model()), OptimConfig(lr=1.0))
    before = weights(learner)
    metrics = update(learner, graph, credit, UpdateConfig(), LOSS, temperature=1.0)
    assert metrics["optimizer_steps"] == 0 and metrics["dropped_rows"] == len(graph)
    assert torch.equal(before, weights(learner))


@pytest.mark.parametrize("unit", ["group", "rollout"])
def test_mini_batches_are_whole_units_and_cover_every_row_once(unit):
    graph = trees(2, roots=6, size=5)
    graph = graph.with_columns(group=graph.rollout // 2)
    rows = np.flatnonzero(np.random.default_rng(0).random(len(graph)) < 0.8)
    parts = split(graph, rows, 3, unit, np.random.default_rng(1))
    assert len(parts) == 3
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), rows)
    key = graph.group if unit == "group" else graph.rollout
    owners = [set(key[part]) for part in parts]
    assert sum(map(len, owners)) == len(set().union(*owners))
    assert len(split(graph, rows, 100, unit, np.random.default_rng(1))) == len(np.unique(key[rows]))


def test_rollouts_of_one_tree_are_one_family():
    # Rollout 1 branches off rollout 0; 2 is called by 1; 3 shares the tree of 4; 5 is alone; 6 continues 5's
    # tokens.
    rows = [
        Row([1], [2], episode=0),
        Row([3], [4], 0, None, 0, 1, turn=1),
        Row([5], [6], episode=2, columns={"caller": 1}),
        Row([1], [2], episode=3, columns={"tree": 50}),
        Row([1], [2], episode=4, columns={"tree": 50}),
        Row([7], [8], episode=5),
        Row([7], [8], 5, 1, -1, 6),
    ]
    family = families(build(rows))
    assert len({*family[:3]}) == 1 and family[3] == family[4] and family[5] == family[6]
    assert len({*family}) == 3


def test_annotation_is_the_plain_forward_pass():
    for make in (chains, trees, windows, partial):
        graph = make(7)
        learner = Learner(loaded(tiny_model()), OptimConfig())
        annotated, _ = annotate(graph, learner, UpdateConfig(max_tokens=180), 0.9)
        old = annotated.tokens.columns["old_logprob"]
        for row in range(len(graph)):
            for s, logprob, _ in plain_tokens(learner.model, graph, row, 0.9):
                assert old[s] == pytest.approx(logprob.item(), abs=1e-6)


def test_the_gate_and_its_correction_by_hand():
    # Trainer e^-1 where the engine said e^-1.5: ratio e^0.5 = 1.65; where it said e^-3: e^2, capped at 2.
    graph = build([Row([1], [2, 3])])
    learner = Learner(loaded(tiny_model()), OptimConfig())
    exact, _ = annotate(graph, learner, UpdateConfig(), 1.0)
    old = exact.tokens.columns["old_logprob"]
    tokens = graph.tokens
    off = type(tokens)(**{**tokens.__dict__, "logprobs": old - np.array([0.0, 0.5, 2.0])})
    annotated, metrics = annotate(type(graph)(columns=graph.columns, tokens=off), learner, UpdateConfig(), 1.0)
    np.testing.assert_allclose(annotated.tokens.columns["importance"], [1.0, math.exp(0.5), 2.0])
    assert metrics["mismatch_max"] == pytest.approx(2.0) and metrics["mismatch_mean"] == pytest.approx(1.25)
    assert metrics["importance_truncated"] == 0.5
    near = type(tokens)(**{**tokens.__dict__, "logprobs": old + 1e-6})
    annotated, metrics = annotate(type(graph)(columns=graph.columns, tokens=near), learner, UpdateConfig(), 1.0)
    assert (annotated.tokens.columns["importance"] == 1).all() and metrics["mismatch_max"] == pytest.approx(1e-6)
    assert mismatch(np.zeros(0), np.zeros(0)) == {"mismatch_max": 0.0, "mismatch_mean": 0.0}


def test_importance_scales_the_policy_gradient_alone():
    graph = build([Row([1], [2, 3])])
    results = []
    for importance in (1.0, 0.5):
        learner = Learner(loaded(tiny_model()), OptimConfig(lr=0.0))
        exact, _ = annotate(graph, learner, UpdateConfig(), 1.0)
        exact = exact.with_token_columns(importance=np.full(3, importance))
        metrics = update(
            learner,
            exact,
            Credit.of(np.ones(1)),
            UpdateConfig(entropy_coef=0.1),
            LOSS,
            temperature=1.0,
        )
        results.append(metrics)
    # loss = -importance * 1 - 0.1 * entropy
    assert results[0]["loss"] == pytest.approx(-1 - 0.1 * results[0]["entropy"])
    assert results[1]["loss"] == pytest.approx(-0.5 - 0.1 * results[1]["entropy"])


def test_engine_log_probs_may_serve_as_the_old_ones():
    graph = chains(2)
    learner = Learner(loaded(tiny_model()), OptimConfig())
    annotated, metrics = annotate(graph, learner, UpdateConfig(old_logprob="engine"), 1.0)
    assert annotated.tokens.columns["old_logprob"] is graph.tokens.logprobs and metrics == {}


def test_the_reference_stays_while_the_policy_moves():
    learner = Learner(loaded(tiny_model()), OptimConfig(lr=0.01), reference=True)
    config = UpdateConfig(kl_coef=0.01)
    first = train(learner, chains(0), config, 0)
    second = train(learner, chains(0), config, 1)
    assert first["kl_ref"] == pytest.approx(0.0, abs=1e-9)
    assert second["kl_ref"] > 1e-4
    learner.restart(learner.optim, 0)
    assert train(learner, chains(0), config, 2)["kl_ref"] == pytest.approx(0.0, abs=1e-9)


def test_kl_without_a_reference_says_what_to_do():
    learner = Learner(loaded(tiny_model()), OptimConfig())
    with pytest.raises(ValueError, match="reference=True"):
        annotate(chains(0), learner, UpdateConfig(kl_coef=0.1), 1.0)


def with_adapter(dropout=0.0):
    """A model with a LoRA adapter that already does something."""
    model = tiny_model()
    lora = LoraConfig(r=2, lora_alpha=4, lora_dropout=dropout, target_modules=["q_proj", "v_proj", "up_proj"])
    adapted = get_peft_model(model, lora)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return adapted.double()


def test_lora_trains_the_adapter_and_refers_to_the_model_below():
    graph = trees(3)
    learner = Learner(loaded(with_adapter()), OptimConfig(lr=0.01), reference=True, initial=True)
    assert learner.network.sharing == "tree"
    below = tiny_model()
    config = UpdateConfig(kl_coef=0.1, max_tokens=150)
    annotated, _ = annotate(graph, learner, config, 1.0)
    reference = annotated.tokens.columns["ref_logprob"]
    for row in range(len(graph)):
        for s, logprob, _ in plain_tokens(below, graph, row):
            assert reference[s] == pytest.approx(logprob.item(), abs=1e-6)
    assert np.abs(reference - annotated.tokens.columns["old_logprob"]).max() > 0.1
    frozen = [p for n, p in learner.model.named_parameters() if "lora_" not in n]
    before = [p.clone() for p in frozen]
    adapter = [p.clone() for p in learner.trained]
    credit = Credit.of(np.ones(len(graph)))
    update(learner, annotated, credit, config, LOSS, temperature=1.0)
    assert all(torch.equal(a, b) for a, b in zip(before, frozen, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(adapter, learner.trained, strict=True))


def test_the_reference_of_an_adapter_is_the_policy_at_the_start_of_rl():
    """As without an adapter: the KL term is 0 before the first update, and `restart` renews the reference."""
    learner = Learner(loaded(with_adapter()), OptimConfig(lr=0.01), reference=True)
    config = UpdateConfig(kl_coef=0.01)
    before = logprobs(learner.network, chains(0), np.arange(len(chains(0))), temperature=1.0, max_tokens=10_000)
    assert train(learner, chains(0), config, 0)["kl_ref"] == pytest.approx(0.0, abs=1e-9)
    moved = weights(learner)
    annotated, _ = annotate(chains(0), learner, config, 1.0)
    assert torch.equal(weights(learner), moved)  # the policy has its own weights again
    np.testing.assert_array_equal(annotated.token_column("ref_logprob")[~np.isnan(before)], before[~np.isnan(before)])
    assert np.abs(annotated.token_column("ref_logprob") - annotated.token_column("old_logprob")).max() > 1e-3
    learner.restart(learner.optim, 0)
    assert train(learner, chains(0), config, 2)["kl_ref"] == pytest.approx(0.0, abs=1e-9)


def test_an_initial_reference_outlives_the_warm_up():
    """`initial`: the model before the warm-up, here a whole model; an adapter's is the model below (above)."""
    learner = Learner(loaded(tiny_model()), OptimConfig(lr=0.02), reference=True, initial=True)
    clone(learner, chains(0), UpdateConfig())
    learner.restart(learner.optim, 0)
    graph, _ = annotate(chains(0), learner, UpdateConfig(kl_coef=0.1), 1.0)
    for row in range(len(graph)):
        for s, logprob, _ in plain_tokens(tiny_model(), graph, row):
            assert graph.token_column("ref_logprob")[s] == pytest.approx(logprob.item(), abs=1e-6)
    assert np.abs(graph.token_column("ref_logprob") - graph.token_column("old_logprob")).max() > 1e-2


@pytest.mark.parametrize("make", [with_adapter, tiny_model])
@pytest.mark.parametrize("initial", [False, True])
def test_a_resumed_learner_has_the_same_reference(make, initial):
    def log_ratio(learner: Learner) -> np.ndarray:
        graph, _ = annotate(chains(5), learner, UpdateConfig(kl_coef=0.1), 1.0)
        return graph.token_column("ref_logprob")

    first = Learner(loaded(make()), OptimConfig(lr=0.02), reference=True, initial=initial)
    train(first, chains(0), UpdateConfig(kl_coef=0.1), 0)
    other = make()
    other.load_state_dict(first.model.state_dict())
    second = Learner(loaded(other), OptimConfig(), reference=True, initial=initial)
    second.load_state_dict(first.state_dict())
    np.testing.assert_array_equal(log_ratio(first), log_ratio(second))


def test_a_state_without_the_adapter_of_the_reference_goes_on_as_before():
    """Versions up to 0.2.0 stored none: the reference was the model below the adapter, and stays it."""
    learner = Learner(loaded(with_adapter()), OptimConfig(), reference=True)
    old = {**learner.state_dict(), "reference": None}
    learner.load_state_dict(old)
    graph, _ = annotate(chains(0), learner, UpdateConfig(kl_coef=0.1), 1.0)
    below, _ = annotate(
        chains(0),
        Learner(loaded(with_adapter()), OptimConfig(), reference=True, initial=True),
        UpdateConfig(kl_coef=0.1),
        1.0,
    )
    np.testing.assert_array_equal(graph.token_column("ref_logprob"), below.token_column("ref_logprob"))


def test_dropout_depends_on_the_update_and_on_nothing_drawn_before():
    """As a run that was killed and resumed in another process."""
    losses = []
    for before, seed in ((1, 5), (2, 5), (2, 6)):
        learner = Learner(
            loaded(with_adapter(dropout=0.5)), OptimConfig(lr=0.01), config=LearnerConfig(keep_dropout=True)
        )
        torch.manual_seed(before)
        losses.append(clone(learner, chains(3), UpdateConfig(), seed=seed)["loss"])
        assert torch.initial_seed() == before  # and the caller's noise is its own
    assert losses[0] == losses[1] != losses[2]


def test_lora_gradient_is_the_plain_one():
    graph = trees(4)
    packed = Learner(loaded(with_adapter()), OptimConfig())
    packed.step = lambda: (0.0, False)
    clone(packed, graph, UpdateConfig(max_tokens=150))
    plain = with_adapter()
    terms = [x for row in range(len(graph)) for _, x, _ in plain_tokens(plain, graph, row)]
    (-torch.stack(terms).mean()).backward()
    torch.testing.assert_close(gradient(packed.model), gradient(plain), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_gives_the_same_gradient(reentrant):
    """The layers run a second time in the backward pass and must then still attend over the tree."""
    found = []
    for checkpointing in (False, True):
        model = tiny_model()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            model.enable_input_require_grads()
        learner = Learner(loaded(model), OptimConfig())
        learner.step = lambda: (0.0, False)
        clone(learner, trees(1), UpdateConfig())
        found.append(gradient(model))
    torch.testing.assert_close(found[0], found[1])
