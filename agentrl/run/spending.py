"""What a training service was asked for, in tokens and dollars, from the metrics of a run.

A line of metrics counts the tokens of what it reports: an iteration, an update of the warm-up, or an evaluation. Names
of counts may have the name of a policy before them, as other metrics do.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agentrl.graph import DEMO, StepGraph, prompt_lengths, token_rows
from agentrl.run.metrics import finite_number
from agentrl.settings import Settings
from agentrl.trainer.sections import ServiceOptions

SPENT = "dollars_spent"  # metric: dollars of the whole run so far
# Metrics that hold the number of sampled tokens, in a line of each stage.
SAMPLED = {"train": "generated_tokens", "eval": "tokens"}


class Usage(NamedTuple):
    """Numbers of tokens at a training service.

    Attributes:
        prefill: tokens of prompts, each prompt counted as a whole.
        cached: tokens among them which the service has read or sampled for the same chain before, so that a cache of
            prefixes may have them.
        sampled: tokens of answers.
        trained: tokens that training passes read, forward passes alone included.
    """

    prefill: float = 0.0
    cached: float = 0.0
    sampled: float = 0.0
    trained: float = 0.0

    def plus(self, other: "Usage") -> "Usage":
        """The sum of both."""
        return Usage(*(one + two for one, two in zip(self, other, strict=True)))

    def times(self, factor: float) -> "Usage":
        """All counts times a factor."""
        return Usage(*(factor * one for one in self))

    def dollars(self, prices: ServiceOptions) -> float:
        """The price; 0 without prices."""
        return prices.dollars(*self)


def asked(settings: Settings, graph: StepGraph, sampled: float | None = None) -> dict[str, float]:
    """`prefill_tokens` and `cached_tokens` of a batch, for its line of metrics; empty without a training service.

    Steps that no policy has sampled for this batch, such as replayed ones, count nothing.

    Args:
        settings: the run's settings.
        graph: the steps.
        sampled: number of all tokens that were sampled for the batch. If it is larger than that of the graph, for
            example because groups were filtered out, the prompts of the missing steps are counted in proportion.
    """
    tokens = graph.tokens
    if tokens is None or not settings.tables.learner.remote:
        return {}
    own = graph.kind != DEMO  # [N]
    own &= ~graph.column("replayed").astype(bool) if graph.has("replayed") else True
    here = float((tokens.sampled & own[token_rows(tokens)]).sum())
    scale = max(1.0, sampled / here) if sampled and here else 1.0
    return {
        "prefill_tokens": round(float(prompt_lengths(tokens)[own].sum()) * scale),
        "cached_tokens": round(float(tokens.context_tokens[own].sum()) * scale),
    }


def usage_of(row: Mapping[str, Any]) -> Usage:
    """The counts of a line of metrics; a count that the line lacks is 0."""

    def count(name: str) -> float:
        named = [key for key in row if key in (name, f"lesson_{name}") or key.endswith(f"/{name}")]
        return sum(finite_number(row[key]) or 0.0 for key in named)

    sampled = SAMPLED.get(str(row.get("stage", "")), "")
    return Usage(
        prefill=count("prefill_tokens") + count("reference_tokens"),
        cached=count("cached_tokens"),
        sampled=count(sampled) if sampled else 0.0,
        trained=count("trained_tokens"),
    )


def dollars_spent(rows: Sequence[Mapping[str, Any]]) -> float:
    """The dollars that stored lines of metrics say were spent, lines after the last checkpoint included."""
    return max((finite_number(row.get(SPENT)) or 0.0 for row in rows), default=0.0)
