"""Checks, before anything is played, that the scores of a recipe fit its agents, [scoring] and [reward]."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from agentrl.catalogue import nearest
from agentrl.config import Entry
from agentrl.credit import RewardTransform
from agentrl.scoring import ScoreFile
from agentrl.scoring.sections import ScoringConfig


def check_scores(
    scores: Sequence[Entry[ScoreFile]],
    scoring: ScoringConfig,
    rewards: Sequence[Entry[RewardTransform]],
    agents: Iterable[str],
) -> None:
    """Raise ValueError if a score names an unknown agent, or if `scoring.second` does not fit the other sections.

    A score must return the signal that `scoring.second` holds out, and no reward may read it.
    """
    known = list(agents)
    for place, entry in enumerate(scores):
        options = entry.config.model_dump()
        for option in ("agent", "judge"):
            named = options.get(option)
            if isinstance(named, str) and named and named not in known:
                raise ValueError(
                    f"score.{place}.{option} = {named!r}: the recipe has no such agent{nearest(named, known)}"
                )
    if scoring.second is None:
        return
    signals = [name for entry in scores for name in entry.hooks.signals(entry.config)]
    if scoring.second.held_out not in signals:
        raise ValueError(
            f"scoring.second.held_out = {scoring.second.held_out!r}: no score returns this signal"
            f"{nearest(scoring.second.held_out, signals)}"
        )
    for place, reward in enumerate(rewards):
        if scoring.second.held_out in _words(reward.config.model_dump()):
            raise ValueError(
                f"reward.{place} ({reward.name}) reads {scoring.second.held_out!r}, which scoring.second holds out: a "
                "judge whose verdicts are rewarded cannot show whether the policy exploits the first judge; leave the "
                "signal out of the reward"
            )


def _words(value: Any) -> Iterator[str]:
    """Every key and every text value of a table of options, at any depth."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield str(key)
            yield from _words(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _words(one)
    elif isinstance(value, str):
        yield value
