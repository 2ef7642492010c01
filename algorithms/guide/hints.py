"""Hints, in tiers, for groups whose copies all failed; hinted chains are trained with the prompt without the hint.

Source: Guide, arXiv:2506.13923, gives hints only where all rollouts of a problem failed. The hinted rollouts join the
group, and their importance ratio divides the probability without the hint by the probability with the hint. Scaf-GRPO,
arXiv:2510.19807, has tiers of hints from vague to concrete, and takes the vaguest tier that helps (checked against the
released code, `ray_trainer.py`).

Formula: with `train = "without"`, the loss of a hinted chain y with prompt x and hint h has per token the ratio
pi_new(y_t | x) / pi(y_t | x), as other chains have, and the additional factor w(pi(y_t | x) / pi(y_t | x, h)). The
function w is the one that `update.importance` names.

When all copies of a task failed `patience` times in a row, `copies` further chains with a hint join the group of the
task. The first hint of a task is that of tier 1. If none of the hinted chains succeeds, the next hint of the task is
that of the next tier. If at least the share `rise` of the hinted chains succeeds, the next hint is that of the tier
before. A group in which a copy succeeds without help gets no hint.

With `source = "file"`, a hint is a text of the file `path`, which has JSON lines {"task": KEY, "hints": [tier 1,
tier 2, ...]}. With the other sources, a hint is the first actions of a solution, and the shares in `tiers` say how many
actions. The hint is put at the end of the system message, and into the column of texts `words`.

Departures: Scaf-GRPO tries all tiers of a task in the same batch and replaces one failed copy by the success of the
vaguest tier that helps. Guide and Scaf-GRPO let a model write the hints. Here a batch tries one tier of a task, and all
hinted chains stay in the group.

Limits: `rollout.name` must be a method that plays whole chains, without branches, candidates or probes. With
`train = "without"`, the recipe must have one agent only.
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
        source: what a hint shows: the first actions of the policy's shortest success so far (own), the first actions of
            an episode of `warmup.expert` (expert), or a text of the file `path` (file).
        path: file of the hints, for source=file.
        tiers: share of a solution's actions that the hint of each tier shows, ascending.
        heading: the line before a hint.
        copies: number of hinted chains that join a group.
        patience: how many times in a row all copies that play a task without a hint must fail before the task gets a
            hint; the present batch counts.
        rise: share of the hinted chains that must succeed before the task's next hint is that of the tier before.
        train: hinted chains are trained with the prompt without the hint (without), or with the prompt with the hint
            (with).
        keep: largest number of tasks whose solutions, failures and tiers are stored; the tasks that were stored first
            are dropped first.
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
        failed: key -> number of times in a row that all copies without help failed.
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
        """Keep the actions of the expert's successes, and note the tasks that the expert did not solve."""
        for record in records:
            if not self._add(record):
                self.unsolved.add(record.task.key)

    def again(self, draw: Draw, records: Sequence[EpisodeRecord]) -> Draw | None:
        """The draw of further chains with the hint of the task's tier.

        None if a copy succeeded, if the copies have not yet failed `patience` times in a row, or if there is no hint.
        """
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
        """Have all copies failed now, and the last `patience` - 1 times before?"""
        before = self.failed.get(records[0].task.key, 0)
        return not success_rate(records) and before + 1 >= self.config.patience

    def observe(self, records: Sequence[EpisodeRecord]) -> None:
        """Count the failures of copies without help, and move the tiers by the success rate of the hinted chains."""
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
        """Set the tier of the task's next hint; `rate` is the success rate of the hinted chains."""
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
        """The solutions, counts and tiers, as a checkpoint stores them."""
        return {
            "solutions": {key: list(actions) for key, actions in self.solutions.items()},
            "failed": dict(self.failed),
            "tier": dict(self.tier),
            "unsolved": sorted(self.unsolved),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the solutions, counts and tiers of a checkpoint."""
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
    """The texts whose words a new tokenizer must know, so that the policy can read the hints."""
    texts = [text for own in read_hints(Path(config.path)).values() for text in own] if config.path else []
    return [config.heading, *texts]


def plain(config: Config) -> bool:
    """Are hinted chains trained with the prompt without the hint?"""
    return config.train == "without"
