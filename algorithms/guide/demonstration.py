"""A demonstration in the group: a chain of an expert, or a stored success of the policy, beside the fresh copies.

Source: LUFFY, arXiv:2504.14945, puts an off-policy trace of a stronger model into each group and computes the
advantages over the group with the trace. For LUFFY, set `source = "expert", when = "always"` and the regularizer
`imitation` with `shape = "bounded", by = "advantage"`. GCPO, arXiv:2510.07790, puts a reference answer into each group
whose copies all failed. For GCPO, set `when = "failed"`.

Formula: with LUFFY's setting the loss of a group is a sum over all tokens, divided by the number of all tokens. A token
of the policy adds the loss of the clipped ratio. A token of the demonstration adds -A f(pi) with f(x) = x / (x + 0.1).
A is the advantage of the token's episode in the group with the demonstration.

The demonstration has kind DEMO. It counts in the group's mean and standard deviation if `statistics` is true, and in no
success rate. It is trained in one of two ways. With `train = "imitation"`, a regularizer imitates it
(`update.regularizers`, entry `imitation`). This is the only way for an expert, because the probabilities with which an
expert acts are not known. With `train = "ratio"`, the policy gradient trains it with the log-probs of the policy that
sampled it and with the importance weights of `update.importance`, as it trains replayed rollouts.

Departures: the expert plays a task once, when a group first needs the demonstration, and the same episode joins all
later groups of the task that need one. LUFFY's paper takes mean and standard deviation over the group with the trace,
as `statistics = true` does here. LUFFY's released code takes them over the policy's own copies alone, as
`statistics = false` does here, with one exception. If all copies have the same score, here the copies get advantage 0,
and the demonstration gets its score minus theirs, not divided by a standard deviation of 0.

Limits: the rollout method must play whole chains, without branches, candidates or probes. If an expert's demonstration
contains episodes of agents that were called, the steps of all its agents are imitated.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field, model_validator

from agentrl.graph import StepGraph, graph_from_bytes, graph_to_bytes
from agentrl.rollout import Draw, EpisodeRecord, Fresh, Joins, by_group, demonstration_of

PAPER = "LUFFY, arXiv:2504.14945; GCPO, arXiv:2510.07790"


class Config(BaseModel, frozen=True, extra="forbid"):
    """See the module.

    Attributes:
        source: the demonstration is the policy's shortest success so far (own), or one episode of `warmup.expert`
            (expert).
        when: the demonstration joins groups whose copies all failed (failed), or every group (always).
        statistics: whether the demonstration counts in the group's mean and standard deviation.
        train: the demonstration is trained by a regularizer that imitates it (imitation), or by the policy gradient
            with the ratio of its log-probs (ratio).
        keep: largest number of tasks whose demonstrations are stored; the tasks that were stored first are dropped
            first.
    """

    source: Literal["own", "expert"] = "own"
    when: Literal["failed", "always"] = "failed"
    statistics: bool = True
    train: Literal["imitation", "ratio"] = "imitation"
    keep: int = Field(10_000, ge=1)

    @model_validator(mode="after")
    def _expert_has_no_ratio(self) -> "Config":
        if self.source == "expert" and self.train == "ratio":
            raise ValueError(
                "train='ratio' needs the log-probs of the player, and an expert has none: set train='imitation'"
            )
        return self


class Demonstration:
    """See the module.

    Attributes:
        joins: whether demonstrations count in the group's statistics, and whether the policy gradient trains them.
        stored: key of a task -> its demonstration.
        unsolved: keys of tasks that the expert did not solve.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.joins = joins(config)
        self.stored: dict[str, StepGraph] = {}
        self.unsolved: set[str] = set()

    def begin(self, draws: Sequence[Draw]) -> list[Draw]:
        """The draws as they are: the policy's own chains have no help."""
        return list(draws)

    def observe(self, records: Sequence[EpisodeRecord]) -> None:
        """Keep the shortest success of each task, if the demonstrations are successes of the policy."""
        if self.config.source == "own":
            for own in by_group(records).values():
                for record in own:
                    self._add(record)

    def missing(self, groups: Sequence[Fresh]) -> list[str]:
        """The tasks whose groups need an expert's episode that was not played yet."""
        if self.config.source == "own":
            return []
        wanted = dict.fromkeys(group.task for group in groups if self._wants(group))
        return [key for key in wanted if key not in self.stored and key not in self.unsolved]

    def shown(self, records: Sequence[EpisodeRecord]) -> None:
        """Keep the expert's episodes that are successes, and note the tasks that the expert did not solve."""
        for record in records:
            if not self._add(record):
                self.unsolved.add(record.task.key)

    def demonstration(self, group: Fresh) -> StepGraph | None:
        """The demonstration of the group's task, if the group needs one."""
        return self.stored.get(group.task) if self._wants(group) else None

    def _wants(self, group: Fresh) -> bool:
        return self.config.when == "always" or not group.succeeded.any()

    def _add(self, record: EpisodeRecord) -> bool:
        """Keep a success if it is the task's shortest; False if the record is no success."""
        found, key = demonstration_of(record), record.task.key
        if found is None:
            return False
        if key not in self.stored or len(found) < len(self.stored[key]):
            self.stored[key] = found
        for old in [*self.stored][: max(0, len(self.stored) - self.config.keep)]:
            del self.stored[old]
        return True

    def state_dict(self) -> dict[str, Any]:
        """The demonstrations and the unsolved tasks, as a checkpoint stores them."""
        stored = {key: np.frombuffer(graph_to_bytes(graph), np.uint8).copy() for key, graph in self.stored.items()}
        return {"stored": stored, "unsolved": sorted(self.unsolved)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the demonstrations and the unsolved tasks of a checkpoint."""
        self.stored = {key: graph_from_bytes(bytes(data)) for key, data in state["stored"].items()}
        self.unsolved = set(state["unsolved"])


def make(config: Config, seed: int) -> Demonstration:
    """See `agentrl.rollout.guide`; nothing is drawn at random."""
    return Demonstration(config)


def expert(config: Config) -> bool:
    """Does the guide ask for episodes of the expert?"""
    return config.source == "expert"


def joins(config: Config) -> Joins:
    """Do the demonstrations count in statistics, and does the policy gradient train them?"""
    return Joins(in_statistics=config.statistics, in_gradient=config.train == "ratio")
