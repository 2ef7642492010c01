"""Batches of the groups that finish first: more groups start than a batch takes, and the last groups are left over.

A batch does not wait for long episodes. With `leftover="cancel"` this causes a bias: tasks with long episodes are
trained less often than they are drawn. With `leftover="keep"` the groups that are left over continue in the next batch,
with the weights of that batch. If such a group becomes older than `run.staleness` allows, it is cancelled, and its draw
is played again, at most once. The metrics `groups_left`, `groups_stale` and `groups_given_up` count such groups.

If the environments run in this process and the engine is deterministic, only the order of the event loop decides which
groups finish first. Then the same seed gives the same batches.
"""

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentrl.config import Entry
from agentrl.credit import RewardTransform
from agentrl.rollout.batches import Collected, collected, leaf_episodes, renumbered, varied_groups
from agentrl.rollout.expansion import Expansion, RolloutMethod
from agentrl.rollout.faults import stop_on_faults
from agentrl.rollout.player import Player
from agentrl.rollout.records import EpisodeRecord
from agentrl.rollout.sampler import Draw, Sampler, SamplerFile


@dataclass(kw_only=True, eq=False)
class Flight:
    """A group that is being played, or that has finished and is not yet part of a batch.

    Attributes:
        begun: the iteration in which the group started, and the group's number among the groups of this iteration.
        version: version of the weights when the group started.
        draw: the draw that is played.
        again: was an earlier group of the same draw cancelled because it was too old?
        batch: the group in the form that a rollout method gets.
        job: the task of the event loop that plays the group.
        counted: the costs of the group that earlier batches have counted.
    """

    begun: tuple[int, int]
    version: int
    draw: Draw
    again: bool
    batch: Expansion
    job: "asyncio.Task[list[EpisodeRecord]]"
    counted: "Cost" = field(default_factory=lambda: Cost())

    def cost(self) -> "Cost":
        """The group's costs so far."""
        chains = self.batch.live.values()
        return Cost(sum(c.tokens for c in chains), sum(c.actions for c in chains), sum(c.replayed for c in chains))


class Cost(NamedTuple):
    """Sampled tokens, carried-out actions, and actions carried out again (`EpisodeRecord.replayed`)."""

    tokens: int = 0
    actions: int = 0
    replayed: int = 0

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(*(a - b for a, b in zip(self, other, strict=True)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Wanted:
    """The batch to collect; see `agentrl.rollout.collect`.

    Attributes:
        tasks: number of groups of the batch.
        copies: `batch.copies` of the recipe.
        begin: number of groups in flight when the batch starts, at least `tasks`.
        iteration: part of the noise keys.
        version: version of the weights.
        staleness: largest age, in updates, of the weights with which a group started.
        keep: do the groups that are left over continue in the next batch? If not, they are cancelled.
        rollout: the rollout method.
        rewards, reported: see `collect`.
        on_episode: called with each finished record.
    """

    tasks: int
    copies: int
    begin: int
    iteration: int
    version: int
    staleness: int
    keep: bool
    rollout: Entry[RolloutMethod]
    rewards: Sequence[Entry[RewardTransform]] = ()
    reported: Sequence[str] = ()
    on_episode: Any = None


class Provision:
    """The groups in flight (`Flight`), which continue from one batch to the next.

    Args:
        concurrency: largest number of episodes at the same time; 0 for no limit.
    """

    def __init__(self, concurrency: int = 0) -> None:
        self._flights: dict[tuple[int, int], Flight] = {}  # by `begun`
        self._news = asyncio.Event()  # a group has ended
        self._sessions: Iterator[int] = itertools.count()
        self._gate = asyncio.Semaphore(concurrency or 2**31)

    @property
    def flying(self) -> int:
        """Number of groups in flight."""
        return len(self._flights)

    async def batch(self, player: Player, sampler: Sampler, entry: Entry[SamplerFile], wanted: Wanted) -> Collected:
        """The `wanted.tasks` groups that finish first, in the order in which they started.

        If the sampler has a filter, a new group starts for each group that does not pass the filter, until this batch
        has started `wanted.begin + (max_rounds - 1) * wanted.tasks` groups. If too few groups pass, groups that did not
        pass fill the batch.

        Raises:
            TooManyFaults: see `Limits.fault_share`.
        """
        try:
            return await self._batch(player, sampler, entry, wanted)
        except BaseException:
            await self.cancel()
            raise

    async def cancel(self) -> None:
        """Cancel all groups in flight."""
        await self._drop([*self._flights.values()])

    async def _batch(self, player: Player, sampler: Sampler, entry: Entry[SamplerFile], wanted: Wanted) -> Collected:
        if not self._flights:
            # A resumed run begins without groups in flight, and numbers its sessions from 0. A run that was not
            # interrupted does the same when no group is in flight, so that both runs have equal numbers.
            self._sessions = itertools.count()
        stale = [f for f in self._flights.values() if wanted.iteration - f.version > wanted.staleness]
        lost = await self._drop(stale)
        again = [flight.draw for flight in stale if not flight.again]
        begin = _Begin(self, player, wanted, _rounds(entry))
        new = max(0, wanted.begin - self.flying - len(again))
        begin(again, again=True)
        begin(sampler.draw(new))
        taken, spare = await self._first(sampler, entry, wanted, begin)
        done = sorted([*taken, *spare], key=lambda flight: flight.begun)
        played = [record for flight in done for record in flight.batch.played]
        for record in played:
            record.points.clear()
        stop_on_faults(played, player.limits.fault_share)
        seen = renumbered([flight.job.result() for flight in done])
        sampler.observe(leaf_episodes(seen, wanted.rewards, wanted.reported).graph)
        left = [*self._flights.values()]
        metrics = {
            "groups_played": len(done),
            "groups_dropped": max(0, len(done) - wanted.tasks),
            "groups_filled": max(0, wanted.tasks - len(taken)),
            "groups_left": len(left),
            "left_steps": _mean_steps(left),
            "groups_stale": len(stale),
            "groups_given_up": len(stale) - len(again),
        }
        cancelled = await self._drop([] if wanted.keep else left)
        final = sorted((taken + spare)[: wanted.tasks], key=lambda flight: flight.begun)
        metrics |= self._costs([*done, *left, *stale]) | {"cancelled_tokens": float(lost.tokens + cancelled.tokens)}
        return collected([flight.job.result() for flight in final], metrics, wanted.rewards, wanted.reported)

    async def _first(
        self, sampler: Sampler, entry: Entry[SamplerFile], wanted: Wanted, begin: "_Begin"
    ) -> tuple[list[Flight], list[Flight]]:
        """The groups that finish first and pass the sampler's filter, and the finished groups that do not pass."""
        taken: list[Flight] = []
        spare: list[Flight] = []
        while len(taken) < wanted.tasks and self._flights:
            self._news.clear()
            done = sorted((f for f in self._flights.values() if f.job.done()), key=lambda flight: flight.begun)
            if not done:
                await self._news.wait()
            for flight in done[: wanted.tasks - len(taken)]:
                del self._flights[flight.begun]
                if _passes(flight.job.result(), entry, wanted):
                    taken.append(flight)
                    continue
                spare.append(flight)
                if begin.allowed:
                    begin(sampler.draw(1))
        return taken, spare

    async def _drop(self, flights: Sequence[Flight]) -> Cost:
        """Cancel these groups; returns their costs."""
        if not flights:
            return Cost()
        for flight in flights:
            del self._flights[flight.begun]
            flight.job.cancel()
        await asyncio.gather(*(flight.job for flight in flights), return_exceptions=True)
        return Cost(*map(sum, zip(*(flight.cost() for flight in flights), strict=True)))

    def add(self, flight: Flight) -> None:
        """Add a group to the groups in flight."""
        self._flights[flight.begun] = flight
        flight.job.add_done_callback(lambda _: self._news.set())

    def _costs(self, flights: Sequence[Flight]) -> dict[str, float]:
        """The costs of these groups since the previous batch."""
        spent = [flight.cost() - flight.counted for flight in flights]
        for flight in flights:
            flight.counted = flight.cost()
        return {
            "generated_tokens": sum(cost.tokens for cost in spent),
            "actions": sum(cost.actions for cost in spent),
            "replayed_actions": sum(cost.replayed for cost in spent),
        }


class _Begin:
    """Starts groups of one iteration, and numbers them."""

    def __init__(self, provision: Provision, player: Player, wanted: Wanted, rounds: int) -> None:
        self._provision, self._player, self._wanted, self._number = provision, player, wanted, 0
        self._iteration, self._most = wanted.iteration * rounds, wanted.begin + (rounds - 1) * wanted.tasks

    @property
    def allowed(self) -> bool:
        """May another group start?"""
        return self._number < self._most

    def __call__(self, draws: Sequence[Draw], *, again: bool = False) -> None:
        """Start one group per draw."""
        for draw in draws:
            self._provision.add(self._one(draw, again))

    def _one(self, draw: Draw, again: bool) -> Flight:
        wanted = self._wanted
        batch = Expansion(
            self._player,
            [draw],
            iteration=self._iteration,
            first=self._number,
            on_episode=wanted.on_episode,
            sessions=self._provision._sessions,
            gate=self._provision._gate,
        )
        play: Callable[[Any, Expansion, int], Awaitable[list[EpisodeRecord]]] = wanted.rollout.hooks.rollout
        job = asyncio.ensure_future(play(wanted.rollout.config, batch, wanted.copies))
        self._number += 1
        begun = (wanted.iteration, self._number)
        return Flight(begun=begun, version=wanted.version, draw=draw, again=again, batch=batch, job=job)


def groups_to_begin(tasks: int, provision: float) -> int:
    """Groups in flight at the beginning of a batch of `tasks` groups."""
    return math.ceil(tasks * provision)


def _rounds(entry: Entry[SamplerFile]) -> int:
    return entry.config.max_rounds if entry.hooks.keep else 1


def _passes(group: list[EpisodeRecord], entry: Entry[SamplerFile], wanted: Wanted) -> bool:
    """Does the group pass the sampler's filter?"""
    if entry.hooks.keep is None:
        return True
    groups = renumbered([group])
    order, graph = leaf_episodes(groups, wanted.rewards, wanted.reported)
    return bool(varied_groups(groups, order, graph, entry.hooks.keep(entry.config, graph)))


def _mean_steps(flights: Sequence[Flight]) -> float:
    """Mean number of steps so far of the episodes in these groups."""
    lengths = [len(record.steps) for flight in flights for record in flight.batch.live.values()]
    return sum(lengths) / max(1, len(lengths))
