"""How a service adds up token losses and what it returns for prompts: found out, and not believed."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from agentrl.engines.tinker import Service, ServiceError
from agentrl.tinker import sums
from agentrl.tinker.sums import KNOWN, Ratios, named, probe, probe_prompt_logprobs, probe_sums, ratios
from tests.toys.training_service import RunningService, training_service

pytest.importorskip("tinker")

FLAGS = {"train_attn": True, "train_mlp": True, "train_unembed": False}


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[RunningService, Service]]]:
    """A service that sums over tokens, and one that takes means over sequences."""
    folder = tmp_path_factory.mktemp("services")
    with ExitStack() as stack:
        found = {}
        for name in KNOWN:
            running = stack.enter_context(training_service(folder / name, model=folder / "model", sums=name))
            service = Service(running.url, timeout_s=60.0)
            stack.callback(service.close)
            found[name] = running, service
        yield found


class Bare:
    """A model at a service that reports no gradient norm.

    Args:
        trainer: the model.
        still: its steps move nothing.
        returned: turns the log-probs of a prompt into what the service returns for them.
    """

    def __init__(self, trainer: Any, still: bool = False, returned: Callable[[list], Any] = list) -> None:
        self.trainer, self.still, self.returned = trainer, still, returned

    def __getattr__(self, name: str) -> Any:
        return getattr(self.trainer, name)

    def step(self, adam: Any) -> Any:
        sent = self.trainer.step(adam._replace(lr=0.0) if self.still else adam)
        return SimpleNamespace(result=lambda: {key: x for key, x in sent.result().items() if key != "grad_norm"})

    def sampler(self) -> Any:
        own = self.trainer.sampler()
        return SimpleNamespace(prompt_logprobs=lambda paths: [self.returned(x) for x in own.prompt_logprobs(paths)])


@pytest.mark.parametrize("name", ["tokens", "sequences"])
def test_sums_are_found_out(services, name):
    running, service = services[name]
    assert probe_sums(service, running.model) == name
    seen = running.faults.seen
    assert seen["unload_model"] == seen["create_model"] >= 1  # the probe leaves no model behind


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tokens", "sequences"])
def test_sums_are_found_out_without_gradient_norms(services, name):
    running, service = services[name]
    assert probe(lambda: Bare(service.train(running.model, rank=1, seed=0, **FLAGS))) == name


@pytest.mark.slow
def test_steps_that_move_nothing_are_told(services, monkeypatch):
    running, service = services["tokens"]
    monkeypatch.setattr(sums, "RATES", 2)
    with pytest.raises(ServiceError, match=r"its optimiser steps move no log-prob, .*: set learner.sums"):
        probe(lambda: Bare(service.train(running.model, rank=1, seed=0, **FLAGS), still=True))


def test_prompt_log_probs_are_found_out(services):
    running, service = services["tokens"]
    trainer = service.train(running.model, rank=1, seed=0, **FLAGS)
    assert probe_prompt_logprobs(trainer) == "full"
    assert probe_prompt_logprobs(Bare(trainer, returned=lambda found: found[1:])) == "short"
    for nothing in (None, [], [None] * 9):
        assert probe_prompt_logprobs(Bare(trainer, returned=lambda found, nothing=nothing: nothing)) == "none"
    for wrong in (lambda found: [None, *found[2:], found[1]], lambda found: found[:-2]):
        with pytest.raises(ServiceError, match="which are not those of the trained model"):
            probe_prompt_logprobs(Bare(trainer, returned=wrong))
    trainer.unload()


def test_ratios_by_hand():
    # Four positions with an advantage. A mean over sequences of means over positions has the gradient g/4 for the
    # sequence alone, (g/4 + g/4)/2 for it twice, g/8 for the one of eight positions, and (g/4 + 0)/2 beside the idle.
    assert ratios([1 / 4, 1 / 4, 1 / 8, 1 / 8]) == KNOWN["sequences"]
    assert ratios([1.0, 2.0, 1.0, 1.0]) == KNOWN["tokens"]
    assert named(Ratios(1.93, 1.02, 0.97)) == "tokens" and named(Ratios(1.02, 0.52, 0.48)) == "sequences"


@pytest.mark.fault
@pytest.mark.parametrize(
    "sizes",
    [
        [
            1 / 4,
            2 / 8,
            1 / 8,
            1 / 12,
        ],  # the mean over all tokens: twice and longer are those of `sequences`
        [1.0, 1.0, 1.0, 0.5],  # the mean over sequences of sums
        [0.0, 0.0, 0.0, 0.0],
        [float("nan"), 1.0, 1.0, 1.0],
    ],
)
def test_any_other_way_of_adding_up_is_refused(sizes):
    with pytest.raises(ServiceError, match=r"in a way that is not known \(ratios of gradients: .*set learner.sums"):
        named(ratios(sizes))
