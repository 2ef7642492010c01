"""The regularizer of a teacher: its value by hand, and its gradient against exact sums over all tokens."""

import pytest
import torch

from agentrl.config import resolve
from agentrl.loss import LossInputs
from agentrl.trainer import Moment
from agentrl.trainer.regularizer import RegularizerFile


def term(logprob, teacher, *, update=0, updates=5, old=None, succeeded=None, **options):
    """The term of tokens with these log-probs, in an update of a stage."""
    found = resolve(RegularizerFile, {"name": "teacher", **options})
    none = torch.zeros(len(logprob), dtype=logprob.dtype)
    inputs = LossInputs(
        logprob=logprob, old_logprob=logprob.detach() if old is None else old, ref_logprob=None, entropy=None,
        positive=none, negative=none, weight=none + 1, step=none.long(), path=none.long(),
        columns={"teacher_logprob": teacher, "succeeded": none if succeeded is None else succeeded},
    )  # fmt: skip
    return found.hooks.make(found.config).begin(Moment(none.long().numpy(), update, updates))(inputs)


def test_by_hand():
    # log pi = -1, teacher -3: x = 2; k2 = 2, k3 = e^-2 + 2 - 1 = 1.1353; ratio: e^(-1 - -1.5) (-1.5 + 3) = 2.4731
    logprob, teacher = torch.tensor([-1.0, -1.0], dtype=torch.float64), torch.tensor([-3.0, float("nan")]).double()
    old = torch.tensor([-1.5, -1.5], dtype=torch.float64)
    for form, value in (("k2", 2.0), ("k3", 1.1353353), ("ratio", 2.4730819)):
        output = term(logprob, teacher, form=form, coef=0.5, old=old)
        torch.testing.assert_close(output.per_token, torch.tensor([0.5 * value, 0.0]).double(), rtol=1e-6, atol=1e-9)
        assert output.metrics["teacher_kl"].tolist() == [2.0, 0.0] and output.metrics["teacher_share"].tolist() == [
            1,
            0,
        ]


def test_the_weight_falls_in_a_straight_line():
    # from 1 to 0.5 over updates 0 to 4: 1, 0.875, 0.75, 0.625, 0.5, and 0.5 beyond the end
    logprob, teacher = torch.tensor([-1.0]), torch.tensor([-3.0])
    weights = [float(term(logprob, teacher, coef=1.0, end=0.5, update=n).per_token) / 2 for n in (0, 1, 2, 3, 4, 7)]
    assert weights == [1.0, 0.875, 0.75, 0.625, 0.5, 0.5]


def test_only_failed_chains():
    logprob, teacher = torch.tensor([-1.0, -1.0]), torch.tensor([-3.0, -3.0])
    output = term(logprob, teacher, coef=1.0, only="failed", succeeded=torch.tensor([1.0, 0.0]))
    assert output.per_token.tolist() == [0.0, 2.0]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("form", ["k2", "k3", "ratio"])
def test_the_mean_gradient_is_that_of_the_divergence(form, seed):
    """Over all tokens, each with its probability: grad KL(pi || teacher); for k3 grad KL(teacher || pi)."""
    torch.manual_seed(seed)
    logits = torch.randn(7, dtype=torch.float64, requires_grad=True)
    teacher = torch.randn(7, dtype=torch.float64).log_softmax(0)
    logprob = logits.log_softmax(0)
    probability = logprob.exp().detach()
    (probability * term(logprob, teacher, form=form, coef=1.0).per_token).sum().backward()
    found, logits.grad = logits.grad, None
    p = logits.log_softmax(0)
    exact = (teacher.exp() * (teacher - p)).sum() if form == "k3" else (p.exp() * (p - teacher)).sum()
    exact.backward()
    torch.testing.assert_close(found, logits.grad, rtol=1e-9, atol=1e-12)
