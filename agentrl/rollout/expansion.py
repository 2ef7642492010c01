"""What a rollout is: which chains of a batch are played, and from where. A file in `algorithms/rollout/` offers a
frozen `Config` and

    async def rollout(config: Config, batch: Expansion, copies: int) -> list[EpisodeRecord]
    def leaves(config: Config, copies: int) -> int    # scored episodes that each task gets

`copies` is `batch.copies` of the recipe. The core hands the batch out and the file decides who is expanded;
`RolloutMethod` lists what else a file may say.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from agentrl.catalogue import CatalogueFile, hook
from agentrl.graph import PLAYED
from agentrl.rollout.episode import play_starts, stop_on_faults
from agentrl.rollout.player import Player, Start
from agentrl.rollout.records import EpisodeRecord
from agentrl.types import Status, Task


@dataclass(frozen=True, kw_only=True)
class RolloutMethod(CatalogueFile):
    """The file of a rollout method.

    Attributes:
        rollout, leaves: see the module.
        fills: columns that its graphs have beyond the usual ones, `tree` where trees have several leaves.
        entropy: it reads `Generation.entropy`.
        paper: one line for listings.
    """

    KIND: ClassVar[str] = "rollout"

    rollout: Callable[[Any, "Expansion", int], Awaitable[list[EpisodeRecord]]] = hook(
        help="async (config, batch, copies) -> the records of the batch"
    )
    leaves: Callable[[Any, int], int] = hook(help="(config, copies) -> scored episodes that each task gets")
    fills: tuple[str, ...] = hook("FILLS", "columns that its graphs have beyond the usual ones", ())
    entropy: bool = hook("ENTROPY", "it reads the entropy of generations", False)
    paper: str = hook("PAPER", "one line for listings", "")


class Branch(NamedTuple):
    """Play on from where `record` stood before its turn `turn`; it must have been played with `remember`."""

    record: EpisodeRecord
    turn: int


class Expansion:
    """A batch that grows: one group a task, chains from the beginning and branches of them.

    What is drawn is a function of the player's seed and stage, the iteration, and a chain's group and number in it.

    Args:
        player: how to play.
        tasks: one group each.
        iteration: goes into the noise keys.
        first: number of the first task's group.
        on_episode: called with each finished record (progress).

    Attributes:
        groups: the numbers of its groups.
        played: every record so far.
    """

    def __init__(
        self, player: Player, tasks: Sequence[Task], *, iteration: int = 0, first: int = 0, on_episode: Any = None
    ) -> None:
        self.groups = range(first, first + len(tasks))
        self.played: list[EpisodeRecord] = []
        self._player, self._iteration, self._on_episode = player, iteration, on_episode
        self._tasks = dict(zip(self.groups, tasks, strict=True))
        self._copies = dict.fromkeys(self.groups, 0)

    def rng(self, *key: int) -> np.random.Generator:
        """A generator named by integers, such as a group, a tree and a round."""
        return np.random.default_rng((self._player.seed, self._player.stage, self._iteration, *key))

    async def begin(
        self, copies: int, *, groups: Sequence[int] | None = None, turns: int | None = None, remember: bool = False
    ) -> list[EpisodeRecord]:
        """`copies` chains of each group (default: of all) from the beginning, each the root of a tree.

        Args:
            copies: chains a group.
            groups: which ones; one that is named twice gets twice as many.
            turns: steps after which a chain stops, to go on later; None plays it to its end.
            remember: keep the points that chains can be branched at.
        """
        chosen = [group for group in (self.groups if groups is None else groups) for _ in range(copies)]
        starts = []
        for number, group in enumerate(chosen, len(self.played)):
            copy = self._next_copy(group)
            task = self._tasks[group]
            starts.append(
                Start(task=task, group=group, copy=copy, session=number, tree=copy, turns=turns, remember=remember)
            )
        return await self._play(starts)

    async def go_on(
        self, branches: Sequence[Branch], *, kind: int = PLAYED, turns: int | None = None, remember: bool = False
    ) -> list[EpisodeRecord]:
        """A new chain from each of these points, in the tree of its record; one named twice is played twice.

        Args:
            branches: from where.
            kind: of the new steps.
            turns, remember: see `begin`; turns counts new steps.
        """
        starts = []
        for number, (record, turn) in enumerate(branches, len(self.played)):
            points = {t: point for t, point in record.points.items() if t <= turn}
            assert turn in points or turn == 0, "a chain is branched only where it was remembered"
            starts.append(
                Start(
                    task=record.task,
                    group=record.group,
                    copy=self._next_copy(record.group),
                    session=number,
                    tree=record.tree,
                    kind=kind,
                    point=points.get(turn),
                    steps=record.steps[:turn],
                    points=points if remember else {},
                    turns=turns,
                    remember=remember,
                )
            )
        return await self._play(starts)

    def _next_copy(self, group: int) -> int:
        self._copies[group] += 1
        return self._copies[group] - 1

    async def _play(self, starts: Sequence[Start]) -> list[EpisodeRecord]:
        found = await play_starts(self._player, starts, iteration=self._iteration, on_episode=self._on_episode)
        self.played += found
        return found

    @property
    def tokens(self) -> int:
        """Tokens sampled so far: a shared step's once, those of lost tries and of what is left out later too."""
        return sum(record.tokens for record in self.played)

    @property
    def calls(self) -> int:
        """Actions carried out so far, counted as tokens are; those replayed to reach a branch point are not."""
        return sum(record.calls for record in self.played)

    def finish(self) -> None:
        """Drop the branch points.

        Raises:
            TooManyFaults: more chains were lost to the environment than `limits.fault_share` allows.
        """
        for record in self.played:
            record.points.clear()
        stop_on_faults(self.played, self._player.limits.fault_share)


def adopt(kept: Sequence[EpisodeRecord], left_out: Sequence[EpisodeRecord]) -> None:
    """What agents called by a shared step did stays with the step: it goes to the first kept record that has it."""
    for record in left_out:
        for chain in record.called:
            owner = next((k for k in kept if any(step is chain.caller for step in k.steps)), None)
            if owner is not None:
                owner.called.append(chain)


def lost(record: EpisodeRecord) -> bool:
    """Did the environment fail in it? Such a record is reported and counts in no statistic."""
    return record.ending == Status.ENV_ERROR
