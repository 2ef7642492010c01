"""A pretrained language model in its own type: engine and trainer agree, and it trains and comes back.

The same tests run with a toy of the same architecture, tokenizer type and rounding, and with SmolLM2-135M-Instruct
(marked `pretrained`; `make pretrained` fetches it).
"""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentrl.chat import Chat
from agentrl.config import resolve
from agentrl.engines import HfEngine, Sampling, stopping
from agentrl.env import Limits, make_pool, prompt_of, tasks_of
from agentrl.graph import StepGraph, decisions
from agentrl.model import Loaded, Lora, ModelConfig, load_model, save_model
from agentrl.rollout import Player, PolicyActor, build_graph, play
from agentrl.trainer import Learner, annotate, clone
from agentrl.trainer.sections import OptimConfig, UpdateConfig
from agentrl.types import Message
from tests.toys.language_model import language_model, model_folder

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


# Nats: the largest difference on one decision, and the mean; in bfloat16 those of the pretrained model.
AGREE = {torch.float32: (2e-3, 2e-4), torch.bfloat16: (0.5, 0.1)}
CONVERSED = [("search_qa", 2, 2), ("calculator", 1, 1)]
PRETRAINED = [("alfworld", 3, 3), ("search_qa", 3, 3), ("calculator", 3, 3)]


def check_agreement(made: Loaded, name: str, tasks: int, turns: int, dtype: torch.dtype, factor: float = 1.0) -> None:
    """Engine and trainer agree on the decisions of an environment's conversations."""
    apart = mismatch(made, converse(made, name, tasks=tasks, turns=turns, tokens=12))
    largest, mean = AGREE[dtype]
    assert len(apart) > 20 and apart.max() < factor * largest and apart.mean() < factor * mean


@pytest.mark.parametrize(("name", "tasks", "turns"), CONVERSED)
@pytest.mark.parametrize(("dtype", "factor"), [(torch.float32, 1.0), (torch.bfloat16, 3.0)])
def test_engine_and_trainer_agree_on_real_texts(name, tasks, turns, dtype, factor):
    # Random weights spread the toy's rounding more than training does: its mean in bfloat16 is 0.17, SmolLM2's 0.04.
    check_agreement(loaded("toy", dtype), name, tasks, turns, dtype, factor)


@pytest.mark.pretrained
@pytest.mark.parametrize(("name", "tasks", "turns"), PRETRAINED)
@pytest.mark.parametrize("dtype", AGREE)
def test_engine_and_trainer_agree_on_a_pretrained_model(name, tasks, turns, dtype):
    check_agreement(loaded("real", dtype), name, tasks, turns, dtype)


def test_the_gate_goes_by_the_type_of_the_weights():
    for dtype, corrected in ((torch.float32, True), (torch.bfloat16, False)):
        made = language_model(0, dtype)
        graph = converse(made, "search_qa", tasks=1, turns=1, tokens=6)
        learner = Learner(made, OptimConfig())
        exact, _ = annotate(graph, learner, UpdateConfig(), 1.0)
        assert graph.tokens is not None and exact.tokens is not None
        off = dataclasses.replace(graph.tokens, logprobs=exact.tokens.columns["old_logprob"] - 0.1)
        annotated, _ = annotate(dataclasses.replace(graph, tokens=off), learner, UpdateConfig(), 1.0)
        assert annotated.tokens is not None
        counted = decisions(annotated.tokens)
        wanted = np.exp(0.1) if corrected else 1.0
        np.testing.assert_allclose(annotated.tokens.columns["importance"][counted], wanted)


def train_a_little(made: Loaded) -> tuple[float, float]:
    """Loss of cloning the same conversations at the first and at the last of a few updates."""
    graph = converse(made, "search_qa", tasks=1, turns=1, tokens=6)
    learner = Learner(made, OptimConfig(lr=1e-4))
    losses = [clone(learner, graph, UpdateConfig(), seed=step)["loss"] for step in range(4)]
    return losses[0], losses[-1]


def check_training_and_checkpoint(made: Loaded, folder: Path) -> None:
    """Training lowers the loss, and transformers loads the checkpoint, tied and in its type, to the bit."""
    before, after = train_a_little(made)
    assert after < before
    save_model(made, folder)
    again = AutoModelForCausalLM.from_pretrained(folder)
    assert again.dtype == torch.bfloat16 and again.config.origin == made.model.config.origin
    assert again.get_output_embeddings().weight is again.get_input_embeddings().weight
    weights = made.model.state_dict()
    assert all(torch.equal(x, weights[name]) for name, x in again.state_dict().items())
    messages = [Message("user", "left right")]
    words = Chat(AutoTokenizer.from_pretrained(folder))
    assert words.start(messages).tolist() == Chat(made.tokenizer).start(messages).tolist()


def test_a_model_in_bfloat16_trains_and_its_checkpoint_loads_in_transformers(tmp_path):
    made = loaded("toy", torch.bfloat16)
    made.model.config.origin = "a toy"
    check_training_and_checkpoint(made, tmp_path / "toy")


@pytest.mark.pretrained
def test_a_pretrained_model_in_bfloat16_trains_and_its_checkpoint_loads_in_transformers(tmp_path):
    check_training_and_checkpoint(loaded("real", torch.bfloat16), tmp_path / "real")


@pytest.mark.pretrained
def test_the_fetched_model_answers_a_question():
    made = loaded("real", torch.bfloat16)
    prompt = Chat(made.tokenizer).start([Message("user", "What is the capital of France?")])
    out = made.model.generate(torch.from_numpy(prompt)[None], max_new_tokens=12, do_sample=False)
    assert "Paris" in made.tokenizer.decode(out[0, len(prompt) :])


def test_adapters_of_a_model_in_bfloat16_are_float32(tmp_path):
    folder = model_folder(tmp_path / "toy")
    made = load_model(ModelConfig(path=str(folder), dtype="bfloat16", device="cpu", lora=Lora(r=2)), 0)
    trained = {x.dtype for x in made.model.parameters() if x.requires_grad}
    frozen = {x.dtype for x in made.model.parameters() if not x.requires_grad}
    assert (trained, frozen) == ({torch.float32}, {torch.bfloat16})
    before, after = train_a_little(made)
    assert after < before
