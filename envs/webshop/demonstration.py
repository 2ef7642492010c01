"""A session of a person or a script, stored as a step graph for cloning."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from agentrl.envs.webshop.config import Config
from agentrl.envs.webshop.environment import WebShop
from agentrl.envs.webshop.market import open_market
from agentrl.envs.webshop.panel import make_task
from agentrl.envs.webshop.prompts import choose
from agentrl.graph import write_graph
from agentrl.rollout import EpisodeRecord, StepRecord, build_graph
from agentrl.types import Generation, Status

AGENT = "person"


def record(config: Config, number: int, actions: Sequence[str]) -> EpisodeRecord:
    """Play the actions again and record each step, up to the purchase or the last action."""
    prompt, env = choose(config), WebShop(config)
    task = make_task(open_market(config), number, config.session_seed)
    episode = EpisodeRecord(task=task, group=0, copy=0, agent=AGENT, policy=AGENT, ending=Status.TURN_LIMIT)
    observation = env.reset(task)
    for action in actions:
        result = env.step(action)
        episode.steps.append(
            StepRecord(
                observation=observation,
                added=np.zeros(0, np.int64),
                continues=bool(episode.steps),
                generation=Generation(text=prompt.answer(action)),
                action=action,
                valid=bool(result.info["accepted"]),
                status=Status.OK if result.info["accepted"] else Status.PARSE_ERROR,
                reward=result.reward,
                terminated=result.terminated,
                truncated=result.truncated,
                info=result.info,
            )
        )
        observation = result.observation
        if result.terminated:
            episode.ending = Status.DONE
            break
    episode.final = observation
    return episode


def save_session(path: Path, config: Config, number: int, actions: Sequence[str]) -> None:
    """Store the session as a step graph in a safetensors file; ValueError if there is no action to store."""
    if not actions:
        raise ValueError(f"no action was carried out, so there is nothing to save in {path}")
    graph = build_graph([record(config, number, actions)])
    write_graph(graph, path, {"env": "webshop", "agent": AGENT, "goal": number})
