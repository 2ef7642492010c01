"""A training service in this process, below the SDK: plain padded passes of a small model, one verb per method.

It has the methods of `agentrl.engines.tinker.Service`, `Trainer` and `ServiceSampler`, and adds up token losses in
either way (`sums`).
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from agentrl.engines.tinker import AdamStep, Datum, Passed, ServiceError


@dataclass
class Done:
    """An answer that is there."""

    value: Any

    def result(self) -> Any:
        return self.value


def token_logprobs(model: Any, ids: np.ndarray, targets: np.ndarray) -> torch.Tensor:
    """[L] log-probs of the targets of one sequence."""
    logits = model(input_ids=torch.from_numpy(ids)[None]).logits[0].float()
    return torch.log_softmax(logits, -1).gather(1, torch.from_numpy(targets)[:, None])[:, 0]


@dataclass
class OwnSampler:
    """A snapshot."""

    model: Any
    path: str = ""
    scores: bool = True  # does it return log-probs of prompts?
    place: Any = None  # the trained model into whose place the weights are loaded when they are read

    def prompt_logprobs(self, paths: Sequence[np.ndarray]) -> list[Any]:
        return [list(one) for one in self.logprobs(paths)] if self.scores else [None] * len(paths)

    def logprobs(self, paths: Sequence[np.ndarray]) -> list[np.ndarray]:
        if self.place is not None:
            self.place.load_state_dict(self.model.state_dict())
        with torch.no_grad():
            found = [token_logprobs(self.model, ids[:-1], ids[1:]) for ids in paths]
        return [np.concatenate([[np.nan], one.double().numpy()]) for one in found]


@dataclass
class OwnTrainer:
    """A model that is trained, all weights of it."""

    model: Any
    service: "OwnService"
    optimiser: Any = None
    sent: list[list[Datum]] = field(default_factory=list)  # data of the gradients since the last step
    steps: list[AdamStep] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.optimiser = self.optimiser or torch.optim.AdamW(self.model.parameters(), lr=0.0)

    def forward(self, data: Sequence[Datum], loss: str = "cross_entropy") -> Done:
        self.service.calls.append(("forward", sum(len(one.inputs) for one in data)))
        with torch.no_grad():
            found = [token_logprobs(self.model, one.inputs, one.targets) for one in data]
        return Done(Passed([one.double().numpy() for one in found], {}))

    def forward_backward(self, data: Sequence[Datum], loss: str = "importance_sampling") -> Done:
        assert loss == "importance_sampling"
        self.service.calls.append(("backward", sum(len(one.inputs) for one in data)))
        self.sent.append(list(data))
        answers = []
        for one in data:
            logprob = token_logprobs(self.model, one.inputs, one.targets)
            old, advantage = (torch.from_numpy(one.columns[name]) for name in ("logprobs", "advantages"))
            total = -((logprob - old).exp() * advantage).sum()
            if self.service.sums == "sequences":  # as SkyRL's JAX back end does it
                total = total / len(one.inputs) / len(data)
            total.backward()
            answers.append(logprob.detach().double().numpy())
        return Done(Passed(answers, {}))

    def step(self, adam: AdamStep) -> Done:
        self.steps.append(adam)
        for group in self.optimiser.param_groups:
            group.update(lr=adam.lr, betas=(adam.beta1, adam.beta2), eps=adam.eps, weight_decay=adam.weight_decay)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), adam.grad_clip or float("inf"))
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.sent = []
        return Done({"grad_norm": float(norm)} if self.service.tells_norm else {})

    def check(self) -> None:
        """It is the model that was asked for."""

    def unload(self) -> None:
        self.service.calls.append(("unload", 0))

    def save(self, name: str, keep_s: float | None) -> str:
        self.service.stored[name] = copy.deepcopy((self.model.state_dict(), self.optimiser.state_dict()))
        return name

    def save_sampler(self, name: str, keep_s: float | None) -> str:
        self.service.samplers[name] = replace(self.sampler(), path=name)
        return name

    def sampler(self) -> OwnSampler:
        place = None if self.service.snapshots else self.model
        return OwnSampler(copy.deepcopy(self.model), scores=self.service.scores, place=place)


@dataclass
class OwnService:
    """The service; `base` is its base model."""

    base: Any
    sums: str = "tokens"
    tells_norm: bool = True
    scores: bool = True
    in_order: bool = True
    snapshots: bool = True  # SkyRL's JAX back end has one place for a model and its samplers
    url: str = "in this process"
    calls: list[tuple[str, int]] = field(default_factory=list)
    stored: dict[str, Any] = field(default_factory=dict)
    samplers: dict[str, Any] = field(default_factory=dict)

    def train(self, model: str, **options: Any) -> OwnTrainer:
        return OwnTrainer(copy.deepcopy(self.base), self)

    def resume(self, path: str, *, optimiser: bool, model: str = "", rank: int = 0) -> OwnTrainer:
        if path not in self.stored:
            raise ServiceError(f"the service has no checkpoint {path}")
        weights, moments = copy.deepcopy(self.stored[path])
        made = OwnTrainer(copy.deepcopy(self.base), self)
        made.model.load_state_dict(weights)
        if optimiser:
            made.optimiser.load_state_dict(moments)
        return made

    def sampler(self, *, model: str = "", path: str = "") -> OwnSampler:
        return self.samplers[path] if path else OwnSampler(copy.deepcopy(self.base), scores=self.scores)

    def models(self) -> dict[str, int | None]:
        return {"own": None}

    def close(self) -> None:
        """Nothing to end."""


def tokenizer() -> Any:
    """A tokenizer that writes one file."""
    return SimpleNamespace(save_pretrained=lambda folder: None)
