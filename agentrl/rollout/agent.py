"""The agents of a recipe: the environment that an agent plays, its prompt, and the policy that answers for the agent.

If a recipe has several agents, the agent `main` gets the tasks, and every other agent has a section [agents.NAME]. The
hook `agents(config) -> {NAME: {...}}` of an environment may propose sections; the options of the recipe override the
proposed options.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from agentrl.config import Entry
from agentrl.env import EnvironmentFile, Limits, Pool, Prompt
from agentrl.graph import CALLED, StepGraph
from agentrl.rollout.actor import Actor
from agentrl.rollout.context import ContextPolicy
from agentrl.rollout.player import EpisodeProgram, Player


@dataclass(frozen=True, kw_only=True)
class Agent:
    """One agent of a recipe, with its catalogue entries.

    Attributes:
        name: as in [agents.NAME].
        policy: name of the policy that answers for the agent.
        trained: do the agent's steps train this policy?
        env: the environment that the agent plays.
        prompt: the prompt of this environment.
        context: the agent's context, which makes the prompts from the history.
        limits: limits of the agent's episodes.
        expert: name of the expert that may play this agent.
        program: plays the agent's episodes with its own prompts. If None, the policy answers turn by turn.
    """

    name: str
    policy: str
    trained: bool
    env: Entry[EnvironmentFile]
    prompt: Prompt
    context: Entry[ContextPolicy]
    limits: Limits
    expert: str
    program: EpisodeProgram | None = None


class PlayerFactory:
    """The agents of a recipe, with a pool of environments for each.

    Args:
        agents: by name; the first agent gets the tasks.
        pools: by name of the agent.
        admissible: restrict answers to the admissible actions, if the environment lists any.
        seed: part of the noise keys.
        timed: store how many seconds each answer and each step of an environment takes.
    """

    def __init__(
        self,
        agents: Mapping[str, Agent],
        pools: Mapping[str, Pool],
        *,
        admissible: bool,
        seed: int,
        timed: bool = False,
    ) -> None:
        self.agents, self._pools, self._admissible, self._seed = agents, pools, admissible, seed
        self._timed = timed

    def player(self, actors: Mapping[str, Actor], stage: int = 0) -> Player:
        """The player of the first agent. Every agent may call every agent, itself included.

        Args:
            actors: by name of the agent.
            stage: part of the noise keys.
        """
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
                timed=self._timed,
                program=agent.program,
            )
        return next(iter(players.values()))


def rows_of(graph: StepGraph, agents: Mapping[str, Agent], policy: str, trained: bool) -> np.ndarray:
    """[N] bool, the rows of the agents for which `policy` answers.

    If `trained` is true, rows of agents that are not trained are left out.
    """
    names = [name.removesuffix(CALLED) for name in graph.names.get("agent", ())]
    of_policy = [agents[name].policy == policy and (agents[name].trained or not trained) for name in names]
    rows: np.ndarray = np.array(of_policy, bool)[graph.agent]
    return rows
