"""The agents of a recipe: what each plays when it is called, in whose words, with whose weights.

The agent that tasks are given to is called `main` once there are others; what it calls are sections [agents.NAME]. An
environment may propose sections of its own, `agents(config) -> {NAME: {...}}`, which a recipe's are laid over.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel, Field

from agentrl.config import Entry, merge, resolve, validate
from agentrl.env import hooks as world
from agentrl.env.limits import Limits
from agentrl.env.pool import Pool
from agentrl.env.prompt import Prompt
from agentrl.graph.step_graph import StepGraph
from agentrl.model.load import ModelConfig
from agentrl.rollout.actor import Actor
from agentrl.rollout.play import Player
from agentrl.trainer.learner import OptimConfig

POLICY = "policy"  # whose weights are [model]'s
MAIN, ALONE = "main", "agent"  # the name of the agent that tasks are given to, with others and without


class AgentSection(BaseModel, frozen=True, extra="forbid"):
    """Section [agents.NAME] of a recipe; that of `main` may say policy, trained, model and optim only.

    Attributes:
        policy: whose weights it acts with: `policy` is [model]'s; another name is a policy of its own, which agents
            of that name share.
        trained: whether its steps train that policy; if not they are in the graph and in no update.
        env: what it plays when it is called.
        context: its context policy.
        limits: options that differ from [limits].
        expert: who plays it in the warm-up.
        model: of a policy of its own; default: [model].
        optim: options of a policy of its own that differ from [optim].
    """

    policy: str = POLICY
    trained: bool = True
    env: dict[str, Any] = Field(default_factory=dict)
    context: dict[str, Any] = Field(default_factory=lambda: {"name": "full"})
    limits: dict[str, Any] = Field(default_factory=dict)
    expert: str = "expert"
    model: ModelConfig | None = None
    optim: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Agent:
    """One agent, resolved. `env` is what it plays, `prompt` how that speaks to it."""

    name: str
    policy: str
    trained: bool
    env: Entry
    prompt: Prompt
    context: Entry
    limits: Limits
    expert: str


class Plan(NamedTuple):
    """A policy to make: its model, and its optimiser in training and in cloning."""

    model: ModelConfig
    optim: OptimConfig
    clone_optim: OptimConfig


def sections(env: Entry, given: Mapping[str, Mapping[str, Any]]) -> dict[str, AgentSection]:
    """The recipe's sections over those that the environment proposes.

    Raises:
        ValueError: a key or value is wrong, or an agent has nothing to play.
    """
    proposed = env.module.agents(env.config) if hasattr(env.module, "agents") else {}
    whole = merge(proposed, given)
    found = {name: validate(AgentSection, table, f"agents.{name}") for name, table in whole.items()}
    for name, section in found.items():
        if name == MAIN and (section.env or section.limits):
            raise ValueError("agents.main plays [env] under [limits]: its section says policy, trained, model or optim")
        if name != MAIN and not section.env:
            raise ValueError(f"agents.{name} has nothing to play: give it a section [agents.{name}.env]")
    return found


def team(
    env: Entry, context: Entry, limits: Limits, expert: str, chosen: Mapping[str, AgentSection]
) -> dict[str, Agent]:
    """Every agent by name, the one that tasks are given to first."""
    main = chosen.get(MAIN, AgentSection())
    name = MAIN if set(chosen) - {MAIN} else ALONE
    agents = {
        name: Agent(
            name=name,
            policy=main.policy,
            trained=main.trained,
            env=env,
            prompt=words(env, context),
            context=context,
            limits=limits,
            expert=expert,
        )
    }
    for called, section in chosen.items():
        if called != MAIN:
            own = resolve("envs", section.env, f"agents.{called}.env")
            chat = resolve("context", section.context, f"agents.{called}.context")
            agents[called] = Agent(
                name=called,
                policy=section.policy,
                trained=section.trained,
                env=own,
                prompt=words(own, chat),
                context=chat,
                limits=validate(Limits, merge(limits.model_dump(), section.limits), f"agents.{called}.limits"),
                expert=section.expert,
            )
    return agents


def words(env: Entry, context: Entry) -> Prompt:
    """How an environment speaks to a model under a context policy."""
    own = world.words(env)
    if not hasattr(context.module, "speak"):
        return own
    spoken: Prompt = context.module.speak(context.config, own)
    return spoken


def plans(
    chosen: Mapping[str, AgentSection], model: ModelConfig, optim: OptimConfig, clone_optim: OptimConfig
) -> dict[str, Plan]:
    """Every policy by name.

    Raises:
        ValueError: two agents of one policy describe it differently, or one describes [model]'s anew.
    """
    found: dict[str, Plan] = {}
    for name, section in {MAIN: AgentSection(), **chosen}.items():
        if section.policy == POLICY:
            if section.model is not None or section.optim:
                raise ValueError(
                    f"agents.{name} shares the policy of [model]: set its own policy, or drop model, optim"
                )
            plan = Plan(model, optim, clone_optim)
        else:
            own = f"agents.{name}.optim"
            plan = Plan(
                section.model or model,
                validate(OptimConfig, merge(optim.model_dump(), section.optim), own),
                validate(OptimConfig, merge(clone_optim.model_dump(), section.optim), own),
            )
        if found.setdefault(section.policy, plan) != plan:
            raise ValueError(f"agents.{name} describes policy {section.policy!r} differently than another agent does")
    return found


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
                context=agent.context.module,
                context_config=agent.context.config,
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
