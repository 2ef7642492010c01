"""The part `equal` of the run on a GPU: log-probs and gradients of a branching graph, against the CPU in float32."""

import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch

from agentrl.config import resolve
from agentrl.credit import Credit
from agentrl.graph import StepGraph
from agentrl.loss import Loss
from agentrl.model import Network
from agentrl.trainer import Learner, LearnerConfig, OptimConfig, StepReport, UpdateConfig, logprobs, update
from benchmarks.gpu_models import Setting, Shape, model_of, name_of, tried


class Reading(NamedTuple):
    """Log-probs [S] of the sampled tokens, NaN elsewhere, and the gradient of an update, flat and in float64."""

    logprobs: np.ndarray
    gradient: torch.Tensor


class Still(Learner):
    """A learner that keeps the gradient of an update, and does not step."""

    gradient: torch.Tensor

    def step(self) -> StepReport:
        """Keep the gradient."""
        self.gradient = torch.cat(
            [p.grad.detach().double().flatten().cpu() for p in self.trained if p.grad is not None]
        )
        for parameter in self.trained:
            parameter.grad = None
        return StepReport(1.0, False)


def equal(setting: Setting) -> Iterator[tuple[str, Any]]:
    """Log-probs and gradients, as a tree and as paths, against those of the CPU in float32."""
    from tests.graph.graphs import trees

    base, rng = model_of(Shape(), torch.float32, "cpu"), np.random.default_rng(1)
    graph = trees(3, roots=2 if setting.tiny else 12, size=8 if setting.tiny else 24)  # branches; ids below 23
    assert graph.tokens is not None
    noise = {name: -6.0 + rng.normal(0, 0.3, len(graph.tokens.ids)) for name in ("old_logprob", "ref_logprob")}
    graph = graph.with_token_columns(**noise)
    wanted = read(Network(model=copy.deepcopy(base), sharing="tree"), graph)
    for dtype in (torch.float32, torch.bfloat16):
        for sharing in ("tree", "paths"):
            model: Any = copy.deepcopy(base).to(setting.device, dtype)
            known = Network(model=model, sharing=sharing)  # type: ignore[arg-type]
            yield f"{name_of(dtype)}_{sharing}", tried(lambda known=known: differences(read(known, graph), wanted))


def differences(found: Reading, wanted: Reading) -> dict[str, float]:
    """How far a reading is from the wanted one; NaN where a sampled token has no log-prob."""
    seen = np.isfinite(wanted.logprobs)
    apart = np.abs(found.logprobs - wanted.logprobs)[seen]
    a, b = found.gradient, wanted.gradient
    return {
        "logprob_max": float(apart.max()),
        "logprob_mean": float(apart.mean()),
        "gradient_relative": float((a - b).norm() / b.norm()),
        "gradient_cosine": float((a @ b) / a.norm() / b.norm()),
    }


def read(known: Network, graph: StepGraph) -> Reading:
    """Log-probs and gradient of a network on a graph."""
    loaded: Any = SimpleNamespace(model=known.model, tokenizer=None)
    learner = Still(loaded, OptimConfig(grad_clip=0), known=known, config=LearnerConfig())
    found = logprobs(known, graph, np.arange(len(graph)), temperature=1.0, max_tokens=4096)
    credit = Credit.of(np.random.default_rng(0).normal(size=len(graph)))
    loss = resolve(Loss, {"name": "ppo_clip"})
    update(learner, graph, credit, UpdateConfig(max_tokens=4096), loss, temperature=1.0)
    return Reading(found, learner.gradient)
