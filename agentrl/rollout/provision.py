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
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentrl.rollout.batch_plan import BatchPlan
from agentrl.rollout.batches import Collected, collected, leaf_episodes, renumbered, varied_groups
from agentrl.rollout.expansion import Expansion
from agentrl.rollout.faults import stop_on_faults
from agentrl.rollout.overlong import LeftOut
from agentrl.rollout.player import Player
from agentrl.rollout.records import EpisodeRecord
from agentrl.rollout.sampler import Draw


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
    counted: "GroupCost" = field(default_factory=lambda: GroupCost())

    def cost(self) -> "GroupCost":
        """The group's costs so far."""
        chains = self.batch.live.values()
        return GroupCost(sum(c.tokens for c in chains), sum(c.actions for c in chains), sum(c.replayed for c in chains))


class GroupCost(NamedTuple):
    """Sampled tokens, carried-out actions, and actions carried out again (`EpisodeRecord.replayed`)."""

    tokens: int = 0
    actions: int = 0
    replayed: int = 0

    def __sub__(self, other: "GroupCost") -> "GroupCost":
        return GroupCost(*(a - b for a, b in zip(self, other, strict=True)))


class _Finished(NamedTuple):
    """Groups that have finished.

    Attributes:
        taken: groups that pass the sampler's filter.
        spare: groups that do not pass.
        overlong: groups in which no first prompt fits the model's context.
    """

    taken: list[Flight]
    spare: list[Flight]
    overlong: list[Flight]


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

    async def batch(
        self,
        player: Player,
        plan: BatchPlan,
        *,
        iteration: int,
        version: int,
        pauses: bool = False,
        on_episode: Any = None,
    ) -> Collected:
        """The `plan.tasks` groups that finish first, in the order in which they started.

        If the sampler has a filter, a new group starts for each group that does not pass the filter, until this batch
        has started `plan.groups_to_begin() + (max_rounds - 1) * plan.tasks` groups. If too few groups pass, groups that
        did not pass fill the batch.

        Args:
            player: plays the rollouts.
            plan: how the batch comes about.
            iteration: part of the noise keys.
            version: version of the weights.
            pauses: whether no group may continue in a next batch.
            on_episode: called with each finished record.

        Raises:
            TooManyFaults: see `Limits.fault_share`.
        """
        begin = _Begin(self, player, plan, iteration=iteration, version=version, pauses=pauses, on_episode=on_episode)
        try:
            return await self._batch(begin)
        except BaseException:
            await self.cancel()
            raise

    async def cancel(self) -> None:
        """Cancel all groups in flight."""
        await self._drop([*self._flights.values()])

    async def _batch(self, begin: "_Begin") -> Collected:
        plan = begin.plan
        if not self._flights:
            # A resumed run begins without groups in flight, and numbers its sessions from 0. A run that was not
            # interrupted does the same when no group is in flight, so that both runs have equal numbers.
            self._sessions = itertools.count()
        stale = [f for f in self._flights.values() if begin.iteration - f.version > plan.staleness]
        lost = await self._drop(stale)
        again = [flight.draw for flight in stale if not flight.again]
        new = max(0, begin.in_flight - self.flying - len(again))
        begin(again, again=True)
        begin(plan.sampler.draw(new))
        left_out = LeftOut(plan.tasks)
        taken, spare, overlong = await self._first(begin, left_out)
        done = sorted([*taken, *spare, *overlong], key=lambda flight: flight.begun)
        played = [record for flight in done for record in flight.batch.played]
        for record in played:
            record.points.clear()
        stop_on_faults(played, begin.player.limits.fault_share)
        known = sorted([*taken, *spare], key=lambda flight: flight.begun)
        seen = renumbered([flight.job.result() for flight in known])
        plan.sampler.observe(leaf_episodes(seen, plan.rewards, plan.reported).graph)
        left = [*self._flights.values()]
        metrics = {
            "groups_played": len(done),
            "groups_dropped": max(0, len(done) - plan.tasks),
            "groups_filled": max(0, plan.tasks - len(taken)),
            "groups_left": len(left),
            "left_steps": _mean_steps(left),
            "groups_stale": len(stale),
            "groups_given_up": len(stale) - len(again),
        }
        cancelled = await self._drop([] if plan.keeps_leftover else left)
        final = sorted((taken + spare)[: plan.tasks], key=lambda flight: flight.begun)
        metrics |= self._costs([*done, *left, *stale]) | {"cancelled_tokens": float(lost.tokens + cancelled.tokens)}
        return collected([flight.job.result() for flight in final], metrics, plan, left_out.records)

    async def _first(self, begin: "_Begin", left_out: LeftOut) -> "_Finished":
        """The groups that finish first; in place of each group without a first prompt that fits, another one begins."""
        plan = begin.plan
        taken: list[Flight] = []
        spare: list[Flight] = []
        overlong: list[Flight] = []
        while len(taken) < plan.tasks and self._flights:
            self._news.clear()
            done = sorted((f for f in self._flights.values() if f.job.done()), key=lambda flight: flight.begun)
            if not done:
                await self._news.wait()
            for flight in done[: plan.tasks - len(taken)]:
                del self._flights[flight.begun]
                if not left_out.rest([flight.job.result()]):
                    overlong.append(flight)
                    begin(plan.sampler.draw(1))
                    continue
                if _passes(flight.job.result(), plan):
                    taken.append(flight)
                    continue
                spare.append(flight)
                if begin.allowed:
                    begin(plan.sampler.draw(1))
        return _Finished(taken, spare, overlong)

    async def _drop(self, flights: Sequence[Flight]) -> GroupCost:
        """Cancel these groups; returns their costs."""
        if not flights:
            return GroupCost()
        for flight in flights:
            del self._flights[flight.begun]
            flight.job.cancel()
        await asyncio.gather(*(flight.job for flight in flights), return_exceptions=True)
        return GroupCost(*map(sum, zip(*(flight.cost() for flight in flights), strict=True)))

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
    """Starts the groups of one batch, and numbers them; for the arguments see `Provision.batch`."""

    def __init__(
        self,
        provision: Provision,
        player: Player,
        plan: BatchPlan,
        *,
        iteration: int,
        version: int,
        pauses: bool,
        on_episode: Any,
    ) -> None:
        self.player, self.plan, self.iteration = player, plan, iteration
        self.in_flight = plan.groups_to_begin(pauses=pauses)
        self._provision, self._version, self._on_episode, self._number = provision, version, on_episode, 0
        self._most = self.in_flight + (plan.rounds - 1) * plan.tasks

    @property
    def allowed(self) -> bool:
        """May another group start?"""
        return self._number < self._most

    def __call__(self, draws: Sequence[Draw], *, again: bool = False) -> None:
        """Start one group per draw."""
        for draw in draws:
            self._provision.add(self._one(draw, again))

    def _one(self, draw: Draw, again: bool) -> Flight:
        plan, rollout = self.plan, self.plan.rollout
        batch = Expansion(
            self.player,
            [draw],
            iteration=self.iteration * plan.rounds,
            first=self._number,
            on_episode=self._on_episode,
            sessions=self._provision._sessions,
            gate=self._provision._gate,
        )
        play: Callable[[Any, Expansion, int], Awaitable[list[EpisodeRecord]]] = rollout.hooks.rollout
        job = asyncio.ensure_future(play(rollout.config, batch, plan.copies))
        self._number += 1
        begun = (self.iteration, self._number)
        return Flight(begun=begun, version=self._version, draw=draw, again=again, batch=batch, job=job)


def _passes(group: list[EpisodeRecord], plan: BatchPlan) -> bool:
    """Does the group pass the sampler's filter?"""
    keep = plan.sampler_entry.hooks.keep
    if keep is None:
        return True
    groups = renumbered([group])
    order, graph = leaf_episodes(groups, plan.rewards, plan.reported)
    return bool(varied_groups(groups, order, graph, keep(plan.sampler_entry.config, graph)))


def _mean_steps(flights: Sequence[Flight]) -> float:
    """Mean number of steps so far of the episodes in these groups."""
    lengths = [len(record.steps) for flight in flights for record in flight.batch.live.values()]
    return sum(lengths) / max(1, len(lengths))
