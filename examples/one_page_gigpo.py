"""GiGPO on one page: rollouts, step graph, credit, update. `python examples/one_page_gigpo.py`, half a CPU minute.

A tiny transformer with random weights plays `guess.py`, which stands beside this file. Chance wins a third of the
episodes, the best play 7 of 8. `agentrl train` is this loop with evaluation, checkpoints, experts, critics and agents.
"""

import asyncio
import sys

import torch

from agentrl.chat import Chat
from agentrl.config import resolve
from agentrl.credit import CreditMethod, assign
from agentrl.engines import HfEngine, Sampling
from agentrl.env import EnvironmentFile, Limits, make_pool, prompt_of, tasks_of
from agentrl.loss import Loss
from agentrl.model import ModelConfig, NewModel, load_model
from agentrl.rollout import BatchPlan, ContextPolicy, Player, PolicyActor, SamplerFile, collect
from agentrl.trainer import Learner, OptimConfig, UpdateConfig, annotate, update

TURNS, CONTEXT = 3, 128


async def train(iterations: int, seed: int = 0) -> list[float]:
    """The share of episodes won in each iteration."""
    torch.set_num_threads(1)
    # What a recipe's sections name: environment, context, credit, loss, sampler.
    env = resolve(EnvironmentFile, {"name": "guess", "turns": TURNS})
    context = resolve(ContextPolicy, {"name": "full"})
    method = resolve(CreditMethod, {"name": "gigpo", "gamma": 0.95, "std": "none"})
    loss = resolve(Loss, {"name": "ppo_clip", "clip_high": 0.28})
    order = resolve(SamplerFile, {"name": "uniform"})
    # 8 tasks x 8 copies per batch, played at once; what they share is stored once, in one graph.
    plan = BatchPlan(
        sampler=order.hooks.make(order.config, tasks_of(env), seed), sampler_entry=order, tasks=8, copies=8
    )

    # A model that knows the words of the game, an engine that generates with its weights, a learner that changes them.
    words = ["Guess a number. It is from 1 to 2 3 4 5 6 7 8 .", "Higher. Lower. Right.", *"12345678"]
    shape = NewModel(layers=2, hidden=128, heads=4, kv_heads=2, intermediate=384, max_positions=CONTEXT)
    loaded = load_model(ModelConfig(new=shape), seed, texts=words)
    learner = Learner(loaded, OptimConfig(name="muon", lr=2e-3, muon_lr=1e-2))
    engine = HfEngine(
        loaded.model,
        loaded.tokenizer,
        Sampling(temperature=1.0, max_tokens=4),
        max_slots=64,
        max_context=CONTEXT,
        actions="admissible",
        deterministic=True,
    )
    player = Player(
        actor=PolicyActor(engine, Chat(loaded.tokenizer), CONTEXT),
        pool=make_pool(env),
        prompt=prompt_of(env),
        context=context,
        limits=Limits(turns=TURNS, turn_tokens=4),
        admissible=True,  # answers are masked to the actions that the observation lists
        seed=seed,
    )
    won = []
    for iteration in range(iterations):
        batch = await collect(player, plan, iteration=iteration)
        graph = annotate(batch.graph, learner, UpdateConfig(), 1.0).graph
        credit = assign(method, graph)
        update(learner, graph, credit, UpdateConfig(minibatches=2), loss, temperature=1.0, seed=iteration)
        engine.load(loaded.model, iteration + 1)
        won.append(batch.metrics["success"])
        print(f"iteration {iteration:2d}: won {won[-1]:4.0%}, {len(graph)} steps")
    player.pool.close()
    return won


if __name__ == "__main__":
    asyncio.run(train(int(sys.argv[1]) if len(sys.argv) > 1 else 80))
