"""A pretrained language model in its own type: engine and trainer agree, and it trains and comes back.

The same tests run with a toy of the same architecture, tokenizer type and rounding, and with SmolLM2-135M-Instruct
(marked `pretrained`; `make pretrained` fetches it).
"""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agentrl.chat import Chat
from agentrl.config import resolve
from agentrl.engines import HfEngine, Sampling, stopping
from agentrl.env import Limits, make_pool, prompt_of, tasks_of
from agentrl.graph import StepGraph, decisions
from agentrl.model import Loaded, ModelConfig, load_model
from agentrl.rollout import Player, PolicyActor, build_graph, play
from agentrl.trainer import Learner, annotate
from agentrl.trainer.sections import OptimConfig, UpdateConfig
from tests.toys.language_model import language_model

REAL = Path("models/smollm2")
ROUGH = {"num_hidden_layers": 10, "initializer_range": 0.5}
CONTEXT = 4096
WORLDS = {
    "alfworld": {"level": "small", "prompt": "instruct_listed"},
    "search_qa": {"world": "tiny", "prompt": "instruct"},
    "calculator": {"prompt": "chat"},
}


def loaded(which: str, dtype: torch.dtype) -> Loaded:
    """The toy, or the pretrained model, in a type."""
    if which == "toy":
        return language_model(0, dtype, **ROUGH)
    if not REAL.is_dir():
        pytest.skip("agentrl model fetch smollm2")
    return load_model(ModelConfig(path=str(REAL), dtype=str(dtype).removeprefix("torch."), device="cpu"), 0)


def converse(made: Loaded, name: str, *, tasks: int, turns: int, tokens: int, **options: Any) -> StepGraph:
    """Conversations of an environment with the model, two per task, sampled from the whole vocabulary."""
    entry = resolve("envs", {"name": name, **WORLDS[name], **options})
    prompt = prompt_of(entry)
    sampling = stopping(Sampling(temperature=1.0), prompt)
    engine = HfEngine(
        made.model, made.tokenizer, sampling, max_slots=2 * tasks, max_context=CONTEXT, deterministic=True
    )
    pool = make_pool(entry, timeout_s=60)
    player = Player(
        actor=PolicyActor(engine, Chat(made.tokenizer), CONTEXT),
        pool=pool,
        prompt=prompt,
        context=resolve("context", {"name": "full"}),
        limits=Limits(turns=turns, turn_tokens=tokens),
        seed=0,
    )
    panel = tasks_of(entry)
    try:
        return build_graph(asyncio.run(play(player, [panel[i] for i in range(tasks)], copies=2)))
    finally:
        pool.close()


def mismatch(made: Loaded, graph: StepGraph) -> np.ndarray:
    """[K] absolute difference, in nats, between engine and trainer on every decision."""
    learner = Learner(made, OptimConfig())
    assert learner.network.sharing == "tree", learner.note
    annotated, _ = annotate(graph, learner, UpdateConfig(), 1.0)
    counted = decisions(graph.tokens)
    return np.abs(graph.tokens.logprobs - annotated.tokens.columns["old_logprob"])[counted]
