"""Which columns a run fills: a credit method that wants another one says so before anything is played.

Beyond the columns every step has, a critic fills some, `agentrl.trainer.gold_answer` those of an environment that knows
its answers, `agentrl.trainer.prompt_values` those of a credit method that keeps a `Tracker`; a rollout method names its
own in `FILLS`, and so does a context policy in whose answers `agentrl.algorithms._subgoals` finds them.
"""

from collections.abc import Iterator
from types import ModuleType

from agentrl.credit import name_of
from agentrl.graph import COLUMNS
from agentrl.trainer import gold_answer as gold
from agentrl.trainer import prompt_values as stream
from agentrl.trainer.sections import CriticConfig

HOW = {
    "tree": "its trees must have several leaves, set rollout.name=tree or entropy_branch",
    "value": "set critic.model=head or own, or rollout.name=vine",
    "next_value": "set critic.model=head or own",
    "token_value": "set critic.model=head or own, and critic.at=token",
    "value_high": "set critic.model=head or own, and critic.high=true",
    "segment_start": "set context.name=plan, in which answers name their sub-goals",
    "gold_logprob": "it is filled in environments that know the answer (a hook `gold(task)` in their file)",
}


def filled_columns(critic: CriticConfig, *modules: ModuleType) -> set[str]:
    """Names of the columns a run's steps have when credit is given.

    Every step has a `tree`, but it tells nothing where each chain is a tree of its own.
    """
    columns = {*COLUMNS, "old_logprob", "importance"} - {"tree"}
    if critic.model != "none":
        columns |= {"value", "next_value"}
        columns |= {"token_value"} if critic.at == "token" else set()
        columns |= {"value_high"} if critic.high else set()
    for module in modules:
        columns |= set(getattr(module, "FILLS", ()))
        columns |= set(gold.FILLS) if hasattr(module, "gold") else set()
        columns |= set(stream.FILLS) if hasattr(module, "Tracker") else set()
    return columns


def wanted_columns(method: ModuleType) -> Iterator[str]:
    """Columns a credit method cannot do without."""
    yield from getattr(method, "NEEDS", ())
    yield from getattr(method, "READS", ())


def check_agents(method: ModuleType, agents: int) -> None:
    """Raise ValueError if a run of so many agents trains with a method about agents that are called (`CALLS`)."""
    if agents == 1 and getattr(method, "CALLS", False):
        raise ValueError(
            f"credit.name={name_of(method)} is for agents that call others, and this recipe has one agent: take an "
            "environment that sends errands, such as deep_research, or credit.name=grpo"
        )


def check_columns(method: ModuleType, critic: CriticConfig, *modules: ModuleType) -> None:
    """Raise ValueError if no part of the run fills a column that its credit method reads.

    Args:
        method: the credit method.
        critic: the run's critic.
        modules: the other entries that may fill columns: environment, rollout method, context policy.
    """
    has = filled_columns(critic, method, *modules)
    for name in wanted_columns(method):
        if name not in has:
            how = HOW.get(name, "no part of this recipe fills it; `agentrl credit` takes steps that have it")
            raise ValueError(f"credit.name={name_of(method)} needs the column {name!r}: {how}")
