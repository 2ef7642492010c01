"""The agents of a recipe: what each plays when it is called, in whose words, with whose weights.

The agent that tasks are given to is called `main` once there are others; what it calls are sections [agents.NAME]. An
environment may propose sections of its own, `agents(config) -> {NAME: {...}}`, which a recipe's are laid over.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from agentrl.config import Entry
from agentrl.env import EnvironmentFile, Limits, Pool, Prompt
from agentrl.graph import StepGraph
from agentrl.rollout.actor import Actor
from agentrl.rollout.context import ContextPolicy
from agentrl.rollout.player import Player


@dataclass(frozen=True, kw_only=True)
class Agent:
    """One agent, resolved. `env` is what it plays, `prompt` how that speaks to it."""

    name: str
    policy: str
    trained: bool
    env: Entry[EnvironmentFile]
    prompt: Prompt
    context: Entry[ContextPolicy]
    limits: Limits
    expert: str


class Crew:
    """The agents with the environments they play in.

    Args:
        agents: see `team`.
        pools: of each agent, by its name.
        admissible: answers are restricted to the admissible actions.
        seed: of the noise.
    """

    def __init__(self, agents: Mapping[str, Agent], pools: Mapping[str, Pool], *, admissible: bool, seed: int) -> None:
        self.agents, self._pools, self._admissible, self._seed = agents, pools, admissible, seed

    def player(self, actors: Mapping[str, Actor], stage: int = 0) -> Player:
        """How the first agent plays, and those that it may call, themselves included."""
        players: dict[str, Player] = {}
        for agent in self.agents.values():
            players[agent.name] = Player(
                actor=actors[agent.name],
                pool=self._pools[agent.name],
                prompt=agent.prompt,
                context=agent.context,
                limits=agent.limits,
                admissible=self._admissible,
                seed=self._seed,
                stage=stage,
                agent=agent.name,
                agents=players,
            )
        return next(iter(players.values()))


def rows_of(graph: StepGraph, agents: Mapping[str, Agent], policy: str, trained: bool) -> np.ndarray:
    """[N] bool, the steps of a policy; with `trained` only those of agents that train it."""
    names = graph.names.get("agent", ())
    chosen = [agents[name].policy == policy and (agents[name].trained or not trained) for name in names]
    rows: np.ndarray = np.array(chosen, bool)[graph.agent]
    return rows
