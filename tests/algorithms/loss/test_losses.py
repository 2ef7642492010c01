"""The policy losses: hand cases, laws, and the shared-step form."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from agentrl import catalogue
from agentrl.algorithms.loss import _surrogate
from tests.algorithms.loss.tokens import batch, gradient, per_token

LOSSES = catalogue.names("loss")
LOG_RATIOS = [math.log(u) for u in (0.5, 0.9, 1.1, 1.5, 4.0)]


def test_the_presets_of_the_issue_are_there():
    assert {
        "ppo_clip", "dapo", "dr_grpo", "gspo", "gmpo", "cispo", "dispo", "sapo_soft", "spo_simple", "luspo",
        "pspo", "gpg", "turn_ppo", "tree_turn_ratio", "reinforce",
    } <= set(LOSSES)  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_presets_name_their_source_and_refuse_unknown_options(name):
    module = catalogue.load("loss", name)
    assert "Source:" in module.about
    with pytest.raises(ValidationError):
        module.config(no_such_option=1)


def test_ppo_by_hand():
    # u = 0.5, 0.9, 1.1, 1.5, 4 clipped to 0.8 .. 1.2. A = 1: -min(u, clip u). A = -1: max(u, clip u), at most
    # 3
    up = per_token("ppo_clip", batch(LOG_RATIOS, [0] * 5, [1] * 5))
    np.testing.assert_allclose(up.detach(), [-0.5, -0.9, -1.1, -1.2, -1.2])
    down = per_token("ppo_clip", batch(LOG_RATIOS, [0] * 5, [-1] * 5))
    np.testing.assert_allclose(down.detach(), [0.8, 0.9, 1.1, 1.5, 3.0])
    assert per_token("ppo_clip", batch(LOG_RATIOS, [0] * 5, [-1] * 5), dual_clip=None)[-1].item() == pytest.approx(4)


def test_dapo_reaches_higher():
    np.testing.assert_allclose(per_token("dapo", batch([math.log(2)], [0], [1])).detach(), [-1.28])


def test_gspo_by_hand():
    # two tokens with log-ratios 0.1 and 0.3: s = e^0.2 on both, unclipped with a wide range
    loss = per_token("gspo", batch([0.1, 0.3], [0, 0], [2, 2]), clip_high=1)
    np.testing.assert_allclose(loss.detach(), [-2 * math.exp(0.2)] * 2)
    # clipped by the default range
    np.testing.assert_allclose(per_token("gspo", batch([0.1, 0.3], [0, 0], [2, 2])).detach(), [-2 * 1.0004] * 2)


def test_turn_ppo_by_hand():
    # turn 0: two tokens, rho = e^(0.1 + 0.05), unclipped; turn 1: one token e^0.5 = 1.65, clipped to 1.2.
    # each token carries 1/n of its turn: the sum is -e^0.15 - 1.2
    loss = per_token("turn_ppo", batch([0.1, 0.05, 0.5], [0] * 3, [1] * 3, step=[0, 0, 1]))
    np.testing.assert_allclose(loss.detach(), [-math.exp(0.15) / 2] * 2 + [-1.2])


def test_gmpo_by_hand():
    # A = 1: log-ratios 0.1 and 1.0 clipped from above at 0.4: -exp(0.25); A = -1: -1.0 clipped at -0.4:
    # exp((0.1 - 0.4)/2)
    np.testing.assert_allclose(per_token("gmpo", batch([0.1, 1.0], [0, 0], [1, 1])).detach(), [-math.exp(0.25)] * 2)
    np.testing.assert_allclose(per_token("gmpo", batch([0.1, -1.0], [0, 0], [-1, -1])).detach(), [math.exp(-0.15)] * 2)
    # the other side is free: A = 1 at -1.0, A = -1 at 1.0
    free = per_token("gmpo", batch([0.1, -1.0], [0, 0], [1, 1]))
    np.testing.assert_allclose(free.detach(), [-math.exp(-0.45)] * 2)
    free = per_token("gmpo", batch([0.1, 1.0], [0, 0], [-1, -1]))
    np.testing.assert_allclose(free.detach(), [math.exp(0.55)] * 2)


def test_cispo_and_dispo_weights():
    # gradient of -A sg(w) log pi is -A w. CISPO: w at most 2. DISPO: own bounds at negative advantage: 0.5 ..
    # 1.2
    ratios = [math.log(0.2), 0.0, math.log(3.0)]
    np.testing.assert_allclose(gradient("cispo", batch(ratios, [0] * 3, [1] * 3)), [-0.2, -1, -2])
    np.testing.assert_allclose(gradient("cispo", batch(ratios, [0] * 3, [-1] * 3)), [0.2, 1, 2])
    np.testing.assert_allclose(gradient("dispo", batch(ratios, [0] * 3, [-1] * 3)), [0.5, 1, 1.2])


def test_simple_policy_optimisation_turns_back_at_its_bound():
    # objective u - (u - 1)^2 / 0.4 has its maximum at u = 1.2: slope 0 there, and it pulls back beyond
    for u, slope in ((1.2, 0.0), (1.4, 1.4 * (0.4 / 0.2 - 1)), (1.0, -1.0)):
        np.testing.assert_allclose(gradient("spo_simple", batch([math.log(u)], [0], [1])), [slope], atol=1e-12)


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"pspo"}))
def test_at_ratio_one_the_gradient_is_minus_advantage(name):
    advantage = np.array([1.5, 1.5, -0.7, -0.7, -0.7])
    step = [0, 0, 1, 1, 1]
    slope = gradient(name, batch([-1.0] * 5, [-1.0] * 5, advantage, step=step, path=step))
    np.testing.assert_allclose(slope, -advantage)


def test_pspo_damps_the_gradient_and_is_unclipped_ppo_at_zero():
    inputs = batch(LOG_RATIOS, [0] * 5, [1, -1, 1, -1, 1])
    free = per_token("reinforce", inputs, corrected=True)
    torch.testing.assert_close(per_token("pspo", inputs, smoothing=0), free)
    np.testing.assert_allclose(
        gradient("pspo", inputs, smoothing=0.25), 0.75 * gradient("reinforce", inputs, corrected=True)
    )


def test_gspo_on_one_token_is_ppo():
    inputs = batch(LOG_RATIOS, [0] * 5, [1, -1, 1, -1, 1], step=range(5), path=range(5))
    for form in ("sequence", "token"):
        for sequence in ("step", "episode"):
            gspo = per_token("gspo", inputs, clip_low=0.2, clip_high=0.2, form=form, sequence=sequence)
            torch.testing.assert_close(gspo, per_token("ppo_clip", inputs, dual_clip=None))


def test_gspos_two_forms_have_one_value_and_one_gradient():
    inputs = batch([0.1, 0.02, -0.3], [0] * 3, [1.3] * 3)
    options = {"clip_low": 0.5, "clip_high": 0.5}
    torch.testing.assert_close(
        per_token("gspo", inputs, form="token", **options),
        per_token("gspo", inputs, form="sequence", **options),
    )
    np.testing.assert_allclose(
        gradient("gspo", inputs, form="token", **options),
        gradient("gspo", inputs, form="sequence", **options),
    )


@pytest.mark.parametrize("sign", [1, -1])
def test_sapo_has_ppos_slope_at_one_and_fades_beyond(sign):
    near = gradient("sapo_soft", batch([0.0], [0.0], [sign]))
    np.testing.assert_allclose(near, gradient("ppo_clip", batch([0.0], [0.0], [sign])))
    # slope of 4/tau sigmoid(tau (u - 1)) with respect to log u: 4 u s (1 - s)
    tau, u = (1.0 if sign > 0 else 1.05), 5.0
    s = 1 / (1 + math.exp(-tau * (u - 1)))
    far = gradient("sapo_soft", batch([math.log(u)], [0.0], [sign]))
    np.testing.assert_allclose(far, [-sign * 4 * u * s * (1 - s)])


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_shared_step_equals_its_duplicated_rows(name, data):
    size = data.draw(st.integers(1, 4))
    number = st.floats(-1.5, 1.5)
    logprob = data.draw(st.lists(st.floats(-3, -0.1), min_size=size, max_size=size))
    old = [x - d for x, d in zip(logprob, data.draw(st.lists(number, min_size=size, max_size=size)), strict=True)]
    paths = data.draw(st.lists(number, min_size=1, max_size=4))  # advantage of each path through the step
    rows = [per_token(name, batch(logprob, old, [a] * size)) for a in paths]
    mass = [sum(max(a, 0) for a in paths)] * size, [sum(max(-a, 0) for a in paths)] * size
    shared = per_token(name, batch(logprob, old, positive=mass[0], negative=mass[1]))
    np.testing.assert_allclose(shared.detach(), sum(row.detach() for row in rows), atol=1e-9)
    slopes = [gradient(name, batch(logprob, old, [a] * size)) for a in paths]
    np.testing.assert_allclose(
        gradient(name, batch(logprob, old, positive=mass[0], negative=mass[1])), sum(slopes), atol=1e-9
    )


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"cispo", "dispo"}))  # theirs is not their value's
def test_gradients_equal_finite_differences(name):
    old, step = [-1.0, -0.5, -2.0], [0, 0, 1]
    new = np.array([-0.95, -0.47, -2.1])
    options = {"clip_low": 0.2, "clip_high": 0.2} if name in ("gspo", "luspo") else {}
    slope = gradient(name, batch(new, old, [1.0, 1.0, -0.5], step=step, path=step), **options)
    assert slope.all()
    for k in range(3):
        h = np.zeros(3)
        h[k] = 1e-6
        ends = []
        for sign in (1, -1):
            inputs = batch(new + sign * h, old, [1.0, 1.0, -0.5], step=step, path=step)
            ends.append(per_token(name, inputs, **options).sum().item())
        assert slope[k] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_micro_batches_sum_to_the_whole(name):
    rng = np.random.default_rng(0)
    step = np.repeat(np.arange(6), 3)
    new, old = rng.normal(-1, 0.2, (2, 18))
    advantage, weight = rng.normal(size=6)[step], rng.random(18)
    whole = gradient(name, batch(new, old, advantage, step=step, path=step), weight)
    pieces = []
    for part in np.split(np.arange(18), [3, 9]):  # cut between steps
        inputs = batch(new[part], old[part], advantage[part], step=step[part], path=step[part])
        pieces.append(gradient(name, inputs, weight[part]))
    np.testing.assert_allclose(np.concatenate(pieces), whole, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_order_of_tokens_changes_nothing(name):
    rng = np.random.default_rng(1)
    step = np.repeat(np.arange(3), 4)
    new, old = rng.normal(-1, 0.1, (2, 12))
    advantage = rng.normal(size=3)[step]
    order = rng.permutation(12)
    straight = per_token(name, batch(new, old, advantage, step=step, path=step)).detach()
    mixed = per_token(name, batch(new[order], old[order], advantage[order], step=step[order], path=step[order]))
    np.testing.assert_allclose(mixed.detach(), straight[order], atol=1e-12)


def test_segments_share_a_ratio_inside_a_step():
    config = _surrogate.Surrogate(granularity="segment", segment_tokens=2, gate="none")
    # step 0: tokens 0, 1 | 2; step 1: 3, 4
    inputs = batch([0.1, 0.3, 0.5, 0.2, 0.4], [0] * 5, [1] * 5, step=[0, 0, 0, 1, 1])
    expected = [-math.exp(x) for x in (0.2, 0.2, 0.5, 0.3, 0.3)]
    np.testing.assert_allclose(_surrogate.surrogate(inputs, config).per_token.detach(), expected)


def test_metrics_of_clipping():
    module = catalogue.load("loss", "ppo_clip")
    inputs = batch(LOG_RATIOS, [0] * 5, [1, 1, 1, 1, -1])
    metrics = module.loss(inputs, module.config()).metrics
    # at A > 0 only u = 1.5 is beyond its bound; u = 0.5 is not clipped there, and neither is 4 at A < 0
    assert metrics["clip_fraction"].tolist() == [0, 0, 0, 1, 0]
    np.testing.assert_allclose(metrics["ratio"], [0.5, 0.9, 1.1, 1.5, 4.0])
    # k3: u - 1 - log u, at u = 0.5: -0.5 + 0.693147
    np.testing.assert_allclose(metrics["approx_kl"][0], 0.193147, atol=1e-6)
    assert not any(x.requires_grad for x in metrics.values())


def test_the_clip_fraction_of_a_clipped_logarithm_and_of_no_clip():
    """GMPO clips log u to at most 0.4 at A > 0, and to at least -0.4 at A < 0: of these, 0.41 and -0.41."""
    inputs = batch([0.39, 0.41, -0.41, -0.39, -0.41], [0] * 5, [1, 1, 1, -1, -1], step=[0, 1, 2, 3, 4])
    module = catalogue.load("loss", "gmpo")
    assert module.loss(inputs, module.config()).metrics["clip_fraction"].tolist() == [0, 1, 0, 0, 1]
    module = catalogue.load("loss", "reinforce")
    far = batch(LOG_RATIOS, [0] * 5, [1, 1, 1, 1, -1])
    assert module.loss(far, module.config()).metrics["clip_fraction"].tolist() == [0] * 5
