"""Hints, in tiers, for groups whose copies all failed; hinted chains are trained with the prompt without the hint.

Source: Guide, arXiv:2506.13923 (hints only where all rollouts of a problem failed; the hinted rollouts join the group,
and their importance ratio is that of the policy without the hint to the policy with it); Scaf-GRPO, arXiv:2510.19807
(tiers from vague to concrete, the least that helps is taken; compared with the released code, `ray_trainer.py`).

Formula: a hinted chain y of prompt x and hint h is trained with the weight w(pi(y_t | x) / pi(y_t | x, h)) per token, w
that of `update.importance`, times the ratio of the loss, pi_new(y_t | x) / pi(y_t | x).

When all copies of a task failed, `copies` further chains with a hint join its group. The first time it is the hint of
tier 1. If no hinted chain succeeds either, the task's next failure gets the next tier; if at least the share `rise` of
the hinted chains succeeds, it gets the tier before. As soon as a copy succeeds without help, no hint is given.

A hint is text of `path` (JSON lines: {"task": KEY, "hints": [tier 1, tier 2, ...]}), or the first actions of a solution
of the expert or of the policy itself: the shares in `tiers` say how many. The words stand at the end of the system
message, and in the column of texts `words`.

Departures: Scaf-GRPO tries all tiers at once and replaces one failed copy by the success of the least tier; it has the
hints written by a stronger model. Guide writes its hints with a model too. Here a batch tries one tier of a task, and
all hinted chains stay in the group.

Limits: chains only, one agent, and no credit method that estimates values from further rollouts.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from agentrl.files import read_text
from agentrl.rollout import Draw, EpisodeRecord, by_group, lost, success_rate
from agentrl.types import Task

PAPER = "Guide, arXiv:2506.13923; Scaf-GRPO, arXiv:2510.19807"
HEADING = "Hint:"


class Config(BaseModel, frozen=True, extra="forbid"):
    """See the module.

    Attributes:
        source: the first actions of the policy's shortest success so far (own) or of an episode of `warmup.expert`
            (expert); or the texts of `path` (file).
        path: file of the hints, for source=file.
        tiers: shares of a solution's actions that the tiers show, ascending.
        heading: the line before a hint.
        copies: hinted chains of a group.
        patience: batches in a row in which all copies without help must fail.
        rise: share of the hinted chains that must succeed before the tier below is given.
        train: the prompt with which hinted chains are trained: that without the hint (without), or that with it (with).
        keep: most tasks that are remembered; the oldest go first.
    """

    source: Literal["own", "expert", "file"] = "own"
    path: str = ""
    tiers: tuple[float, ...] = (0.34, 0.67, 1.0)
    heading: str = HEADING
    copies: int = Field(2, ge=1)
    patience: int = Field(1, ge=1)
    rise: float = Field(0.5, gt=0, le=1)
    train: Literal["without", "with"] = "without"
    keep: int = Field(10_000, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> "Config":
        if (self.source == "file") != bool(self.path):
            raise ValueError(
                f"source is {self.source!r} and path is {self.path!r}: give both source='file' and path, or neither"
            )
        if (
            not self.tiers
            or list(self.tiers) != sorted(set(self.tiers))
            or not 0 < self.tiers[0] <= self.tiers[-1] <= 1
        ):
            raise ValueError(
                f"tiers is {list(self.tiers)}: give ascending shares above 0 and at most 1, such as [0.5, 1.0]"
            )
        return self


class Hints:
    """See the module.

    Attributes:
        plain: see `agentrl.rollout.hints.Hinting`.
        written: key of a task -> the texts of its tiers, from `path`.
        solutions: key -> the actions of its shortest success.
        failed: key -> batches in a row in which all copies without help failed.
        tier: key -> the tier of its next hint, from 1.
        unsolved: keys of tasks that the expert did not solve.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.plain = plain(config)
        self.written = read_hints(Path(config.path)) if config.path else {}
        self.solutions: dict[str, list[str]] = {}
        self.failed: dict[str, int] = {}
        self.tier: dict[str, int] = {}
        self.unsolved: set[str] = set()

    def begin(self, draws: Sequence[Draw]) -> list[Draw]:
        """The draws as they are: the first chains of a group have no help."""
        return list(draws)

    def lacking(self, groups: Mapping[int, Sequence[EpisodeRecord]]) -> list[Task]:
        """Tasks that need a hint and have no known solution."""
        if self.config.source != "expert":
            return []
        stuck = {own[0].task.key: own[0].task for own in groups.values() if own and self._stuck(own)}
        return [task for key, task in stuck.items() if key not in self.solutions and key not in self.unsolved]

    def shown(self, records: Sequence[EpisodeRecord]) -> None:
        """The expert's episodes."""
        for record in records:
            if not self._add(record):
                self.unsolved.add(record.task.key)

    def again(self, draw: Draw, records: Sequence[EpisodeRecord]) -> Draw | None:
        """Further chains with the hint of the task's tier; None if a copy succeeded, `patience` batches are not over,
        or there is no hint."""
        words = self.words(draw.task.key) if self._stuck(records) else ""
        return (
            replace(draw, words="\n".join(filter(None, [draw.words, words])), copies=self.config.copies)
            if words
            else None
        )

    def words(self, key: str) -> str:
        """The hint of a task's tier; empty if there is none."""
        tier = self.tier.get(key, 1)
        if self.config.source == "file":
            texts = self.written.get(key, [])
            return f"{self.config.heading}\n{texts[min(tier, len(texts)) - 1]}" if texts else ""
        actions = self.solutions.get(key)
        if not actions:
            return ""
        told = ceil(self.config.tiers[min(tier, len(self.config.tiers)) - 1] * len(actions))
        return "\n".join([self.config.heading, *actions[:told]])

    def _stuck(self, records: Sequence[EpisodeRecord]) -> bool:
        """Have all copies failed, in this batch and in `patience` - 1 batches before?"""
        before = self.failed.get(records[0].task.key, 0)
        return not success_rate(records) and before + 1 >= self.config.patience

    def observe(self, records: Sequence[EpisodeRecord]) -> None:
        """Count failures without help, and move the tiers by the success with it."""
        for own in by_group(records).values():
            key = own[0].task.key
            helped = [record for record in own if record.words]
            alone = [record for record in own if not record.guided]
            if alone:
                self.failed[key] = self.failed.get(key, 0) + 1 if not success_rate(alone) else 0
            if helped:
                self._move(key, success_rate(helped))
            if self.config.source == "own":
                for record in own:
                    self._add(record)
        for store in (self.solutions, self.failed, self.tier):
            for key in [*store][: max(0, len(store) - self.config.keep)]:
                del store[key]

    def _move(self, key: str, rate: float) -> None:
        """The tier of the next hint."""
        now = self.tier.get(key, 1)
        last = len(self.written.get(key, ())) if self.config.source == "file" else len(self.config.tiers)
        self.tier[key] = (
            min(now + 1, max(1, last)) if not rate else max(1, now - 1) if rate >= self.config.rise else now
        )

    def _add(self, record: EpisodeRecord) -> bool:
        """Keep the actions of a success if no success of the task had fewer; False if the record is no success."""
        if lost(record) or not record.success:
            return False
        actions = [step.action for step in record.steps if not step.rewrites]
        before = self.solutions.get(record.task.key)
        if before is None or len(actions) < len(before):
            self.solutions[record.task.key] = actions
        return True

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "solutions": {key: list(actions) for key, actions in self.solutions.items()},
            "failed": dict(self.failed),
            "tier": dict(self.tier),
            "unsolved": sorted(self.unsolved),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.solutions = {key: [str(action) for action in actions] for key, actions in state["solutions"].items()}
        self.failed = {key: int(n) for key, n in state["failed"].items()}
        self.tier = {key: int(n) for key, n in state["tier"].items()}
        self.unsolved = set(state["unsolved"])


def read_hints(path: Path) -> dict[str, list[str]]:
    """The hints of a file, by the key of the task.

    Raises:
        ValueError: the file is missing, or a line of it holds no hints.
    """
    found: dict[str, list[str]] = {}
    for number, line in enumerate(read_text(path, "file of hints").splitlines(), 1):
        if not line.strip():
            continue
        try:
            read = json.loads(line)
            key, texts = read["task"], read["hints"]
            fits = isinstance(key, str) and isinstance(texts, list) and texts and all(isinstance(t, str) for t in texts)
        except (ValueError, KeyError, TypeError, RecursionError):
            fits = False
        if not fits:
            raise ValueError(
                f'{path}, line {number}: write {{"task": KEY, "hints": [TEXT, ...]}}, with one text or more'
            )
        found[key] = texts
    return found


def make(config: Config, seed: int) -> Hints:
    """See `agentrl.rollout.guide`; nothing is drawn at random."""
    return Hints(config)


def expert(config: Config) -> bool:
    """Does the guide ask for episodes of the expert?"""
    return config.source == "expert"


def words(config: Config) -> list[str]:
    """What a new tokenizer must know to read a hint."""
    texts = [text for own in read_hints(Path(config.path)).values() for text in own] if config.path else []
    return [config.heading, *texts]


def plain(config: Config) -> bool:
    """Are hinted chains trained with the prompt without the hint?"""
    return config.train == "without"
