"""Columns that credit methods need beyond those of every step, and the options of a recipe that fill them."""

from collections.abc import Mapping
from types import MappingProxyType

FILLED_BY: Mapping[str, str] = MappingProxyType(
    {
        "tree": "it compares the branches of a tree: set rollout.name=tree or entropy_branch",
        "value": "set critic.model=head or own, or rollout.name=vine",
        "next_value": "set critic.model=head or own",
        "token_value": "set critic.model=head or own, and critic.at=token",
        "value_high": "set critic.model=head or own, and critic.two_levels=true",
        "segment_start": "set context.name=plan, in which answers name their sub-goals",
        "gold_logprob": "take an environment that knows the right answer (its file has the hook `gold(task)`)",
    }
)  # column -> the options by which a run fills it
