"""A run with two agents and two policies whose learners several processes must change as one process does.

`python -m tests.runs.ranks_of_policies STORE RANK SIZE OUT` is one of SIZE processes that share every learner; rank 0
writes OUT.
"""

import sys
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from agentrl.cluster.learner_group import RankPlace, joined
from agentrl.config import merge
from agentrl.credit import Credit
from agentrl.graph import StepGraph
from agentrl.model import Loaded, Weights, load_model
from agentrl.run import Rollouts, policies
from agentrl.run.vocabulary import vocabularies
from agentrl.settings import Settings
from agentrl.trainer import Ranks
from tests.toys.runs import TOY

TABLES: dict[str, Any] = {
    **TOY,
    "env": {"name": "tests.toys.foreman", "count": 8},
    "eval": {"tasks": 4, "env": {"count": 12}},
    "agents": {"walker": {"policy": "walker"}},
    "limits": {"turns": 4, "turn_tokens": 8},
    "warmup": {"expert": "straight", "updates": 1, "minibatches": 1},
    "batch": {"tasks": 6, "copies": 4},
    "optim": {"name": "adamw", "lr": 1e-2, "grad_clip": 0.05},
    "update": {
        "old_logprob": "trainer",
        "kl_coef": 0.1,
        "minibatches": 2,
        "max_tokens": 90,
        "regularizers": [{"name": "entropy_band", "coef": 0.1, "penalty": 1.0, "differentiable": True}],
    },
}
UPDATES = 7  # of two optimiser steps, for each policy


def settings_of(size: int) -> Settings:
    return Settings(merge(TABLES, {"learner": {"processes": size}}))


def played(settings: Settings) -> StepGraph:
    """A batch of both agents' steps, the same in every process."""
    words = vocabularies(settings)
    models = {
        name: load_model(plan.model, 0, texts=words[name].texts, entities=words[name].entities)
        for name, plan in settings.policies.items()
    }
    rollouts = Rollouts(settings, {name: one.tokenizer for name, one in models.items()})
    rollouts.load(Weights({name: one.model for name, one in models.items()}), 0)
    graph = rollouts.batch(0).graph
    rollouts.close()
    return graph


def changed(ranks: Ranks) -> dict[str, Any]:
    """What all stages of a run make of its policies, in float64: weights, metrics, and what a regularizer remembers."""
    single, make = settings_of(1), policies._model
    graph, settings = played(single), settings_of(ranks.size)

    def double(*words: Any) -> Loaded:
        loaded = make(*words)
        return loaded._replace(model=loaded.model.double())

    policies._model = double
    try:
        every = policies.Policies(settings, vocabularies(single), None, ranks)
    finally:
        policies._model = make
    every.restart("warmup")
    metrics = [every.imitate(graph, 0)]
    every.restart("train")
    for number in range(UPDATES):
        annotated = every.annotate(graph)
        credit = Credit.of(np.random.default_rng(number).normal(size=len(graph)))
        metrics += [annotated.metrics, every.improve(annotated.graph, credit, number)]
    weights = {name: one and dict(one.state_dict()) for name, one in every.weights().models.items()}
    remembered = every.state_dict()["regularizers"]
    return {"agents": sorted(graph.names["agent"]), "weights": weights, "metrics": metrics, "remembered": remembered}


if __name__ == "__main__":
    torch.set_num_threads(1)
    place = RankPlace(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[2]))
    store = dist.FileStore(sys.argv[1], place.size)  # type: ignore[attr-defined]
    ranks = joined(torch.device("cpu"), place, store)
    found = changed(ranks)
    if ranks.leads:
        torch.save(found, sys.argv[4])
    dist.destroy_process_group()
