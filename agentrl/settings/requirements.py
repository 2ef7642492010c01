"""Checks, before anything is played, that the run fills the columns that its credit method reads.

Every step has the columns `COLUMNS`, and the trainer adds `old_logprob` and `importance`. A critic fills further
columns. A rollout method fills the columns that it names in `FILLS`. The fillers (`agentrl.graph.Filler`) of the credit
method and of the context fill the columns that they name in `fills`. If the environment knows the right answers
(hook `gold`) and the credit method reads their log-probability, the run has the filler `agentrl.credit.GoldAnswer` too.
"""

from collections.abc import Iterator

from agentrl.config import Entry
from agentrl.credit import CreditMethod, GoldAnswer
from agentrl.env import EnvironmentFile
from agentrl.graph import COLUMNS, Filler
from agentrl.rollout import ContextPolicy, RolloutMethod
from agentrl.trainer.sections import CriticConfig

HOW = {
    "tree": "it compares the branches of a tree: set rollout.name=tree or entropy_branch",
    "value": "set critic.model=head or own, or rollout.name=vine",
    "next_value": "set critic.model=head or own",
    "token_value": "set critic.model=head or own, and critic.at=token",
    "value_high": "set critic.model=head or own, and critic.two_levels=true",
    "segment_start": "set context.name=plan, in which answers name their sub-goals",
    "gold_logprob": "take an environment that knows the right answer (its file has the hook `gold(task)`)",
}


def fillers(
    credit: Entry[CreditMethod], context: Entry[ContextPolicy], env: Entry[EnvironmentFile]
) -> dict[str, Filler]:
    """New fillers for a run, by name; under this name, checkpoints store the state of the filler."""
    found: dict[str, Filler] = {}
    if credit.hooks.filler is not None:
        found[f"credit/{credit.hooks.label}"] = credit.hooks.filler(credit.config)
    if env.hooks.gold is not None and {*GoldAnswer.fills} & {*wanted_columns(credit.hooks)}:
        found["gold_answer"] = GoldAnswer()
    if context.hooks.filler is not None:
        found[f"context/{context.hooks.label}"] = context.hooks.filler(context.config)
    return found


def filled_columns(critic: CriticConfig, rollout: RolloutMethod, own: dict[str, Filler]) -> set[str]:
    """Names of the columns that a run's steps have when their credit is computed.

    Every step has a `tree`. The column counts only if the rollout method names it in `FILLS`, because with other
    rollout methods each chain is a tree of its own.
    """
    columns = {*COLUMNS, "old_logprob", "importance"} - {"tree"}
    if critic.model != "none":
        columns |= {"value", "next_value"}
        columns |= {"token_value"} if critic.at == "token" else set()
        columns |= {"value_high"} if critic.two_levels else set()
    columns |= {*rollout.fills}
    for filler in own.values():
        columns |= {*filler.fills}
    return columns


def wanted_columns(method: CreditMethod) -> Iterator[str]:
    """Names of the columns that a credit method needs on every step, and of the columns that it reads on some steps."""
    yield from method.needs
    yield from method.reads


def check_agents(method: CreditMethod, agents: int, program: bool) -> None:
    """Raise ValueError if the credit method is for agents that call other agents, and the recipe has only one agent.

    Args:
        method: the credit method; its `called_agents` says whether it is for agents that call other agents.
        agents: number of agents of the recipe.
        program: the agent is a program of the user. Then no error is raised, because requests that the program sends
            at the same time become chains of called agents.
    """
    if agents == 1 and not program and method.called_agents:
        raise ValueError(
            f"credit.name={method.label} is for agents that call other agents, and this recipe has one agent: take an "
            "environment with called agents, such as deep_research, or credit.name=grpo"
        )


def check_columns(method: CreditMethod, has: set[str]) -> None:
    """Raise ValueError if no part of the run fills a column that its credit method reads.

    Args:
        method: the credit method.
        has: see `filled_columns`.
    """
    for name in wanted_columns(method):
        if name not in has:
            how = HOW.get(name, "no part of this recipe fills it; `agentrl credit` takes steps that have it")
            raise ValueError(f"credit.name={method.label} needs the column {name!r}: {how}")
