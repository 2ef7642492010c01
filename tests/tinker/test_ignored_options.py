"""A service that takes options and ignores them is found out."""

import copy
from typing import Any

import pytest
import torch

from agentrl.tinker.ignored_options import check_flags, clips_gradients
from agentrl.trainer import LearnerConfig
from tests.graph.graphs import tiny_model
from tests.toys.own_service import OwnService, OwnTrainer


class Careful(OwnService):
    """Trains only the layers that the flags name."""

    def train(self, model: str, **options: Any) -> OwnTrainer:
        made = copy.deepcopy(self.base)
        for name, parameter in made.named_parameters():
            if ("mlp" in name and not options["train_mlp"]) or ("attn" in name and not options["train_attn"]):
                parameter.requires_grad_(False)
        return OwnTrainer(made, self)


class Unlimited(OwnService):
    """Drops the limit of the gradient norm."""

    def train(self, model: str, **options: Any) -> OwnTrainer:
        made = super().train(model, **options)
        step = made.step
        made.step = lambda adam: step(adam._replace(grad_clip=0.0))
        return made


def config(**options: Any) -> LearnerConfig:
    return LearnerConfig(name="tinker", model="own", **options)


def test_flags_that_are_ignored_are_refused():
    ignoring, careful = OwnService(tiny_model(1)), Careful(tiny_model(1))
    check_flags(ignoring, "own", config())
    check_flags(careful, "own", config(train_mlp=False))
    with pytest.raises(ValueError, match=r"ignores learner.train_attn=false and learner.train_mlp=false"):
        check_flags(ignoring, "own", config(train_mlp=False, train_attn=False))
    assert [kind for kind, _ in ignoring.calls].count("unload") == 2


def test_flags_are_not_checked_without_gradient_norms():
    check_flags(OwnService(tiny_model(1), tells_norm=False), "own", config(train_mlp=False))


@pytest.mark.parametrize("kind", [OwnService, Unlimited])
def test_a_limit_of_the_gradient_norm_that_is_ignored_shows(kind):
    torch.manual_seed(0)
    assert clips_gradients(kind(tiny_model(1)), "own") is (kind is OwnService)
