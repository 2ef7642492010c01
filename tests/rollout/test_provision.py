"""Batches of the groups that finish first: by hand, and the laws of what becomes of the others."""

import asyncio
from collections import Counter

import numpy as np
import pytest

from agentrl.config import resolve
from agentrl.engines import Wordless
from agentrl.env import Limits
from agentrl.env.pool import InlinePool
from agentrl.rollout import BatchPlan, Draw, Provision
from agentrl.types import Generation, Task
from tests.rollout.playing import entry, player


class Steady(Wordless):
    """Walks right, one answer per round of the event loop, so that a task takes as many rounds as its goal is far."""

    name = "steady"

    def __init__(self):
        self.open_sessions: set[int] = set()
        self.version = 0

    def open(self, session):
        assert session not in self.open_sessions
        self.open_sessions.add(session)

    def release(self, session):
        self.open_sessions.remove(session)

    async def generate(self, request):
        await asyncio.sleep(0)
        return Generation(text="right", policy_version=(self.version, self.version))


class Listed:
    """Draws tasks with these goals, in this order."""

    def __init__(self, goals):
        self.goals, self.drawn, self.seen = list(goals), 0, []

    def draw(self, count):
        tasks = [
            Task(key=f"walk/{i}", env="walk", seed=i, params={"goal": self.goals[i]})
            for i in range(self.drawn, self.drawn + count)
        ]
        self.drawn += count
        return [Draw(task=task) for task in tasks]

    def observe(self, graph):
        self.seen.append(list(graph.names["group"]))


class Bench:
    """Batches of two groups of two episodes, one after another."""

    def __init__(self, goals, *, provision=2.0, keep=False, staleness=0, sampler="uniform", concurrency=0):
        on = entry()
        self.policy, self.sampler = Steady(), Listed(goals)
        self.pool = InlinePool(lambda: on.hooks.make(on.config))
        self.player = player(on, self.pool, policy=self.policy, limits=Limits(turns=50, concurrency=concurrency))
        self.provision, self.loop = Provision(concurrency), asyncio.new_event_loop()
        self.plan = BatchPlan(
            sampler=self.sampler,
            sampler_entry=resolve("sampler", {"name": sampler}),
            tasks=2,
            copies=2,
            provision=provision,
            keeps_leftover=keep,
            staleness=staleness,
        )

    def batch(self, iteration, *, pauses=False):
        self.policy.version = iteration
        batch = self.provision.batch(self.player, self.plan, iteration=iteration, version=iteration, pauses=pauses)
        return self.loop.run_until_complete(batch)

    def close(self):
        self.loop.run_until_complete(self.provision.cancel())
        self.loop.close()


@pytest.fixture
def make():
    """Makes benches, and ends what they have in flight."""
    made: list[Bench] = []

    def one(goals, **options):
        made.append(Bench(goals, **options))
        return made[-1]

    yield one
    for bench in made:
        bench.close()


def goals(collected):
    return [record.task.params["goal"] for record in collected.records]


def test_the_groups_that_finish_first_are_taken_and_the_others_are_cancelled(make):
    bench = make([29, 1, 28, 2])
    done = bench.batch(0)
    assert goals(done) == [1, 1, 2, 2] and done.graph.names["group"] == ("walk/1", "walk/3")
    assert done.graph.group.tolist() == [0, 0, 1, 1, 1, 1] and bench.sampler.seen == [["walk/1", "walk/3"]]
    metrics = done.metrics
    assert (metrics["groups_played"], metrics["groups_left"], metrics["groups_stale"]) == (2, 2, 0)
    # The two that were left went on while the events of the second group's end passed through the loop.
    assert 2 <= metrics["left_steps"] <= 12
    assert metrics["actions"] == 6 + 4 * metrics["left_steps"]
    assert bench.provision.flying == 0 and not bench.policy.open_sessions
    bench.sampler.goals += [1, 1, 1, 1]
    assert goals(bench.batch(1)) == [1, 1, 1, 1]  # what was cancelled does not come back


def test_groups_that_are_kept_go_on_under_the_next_weights(make):
    bench = make([31, 1, 30, 2, 45, 45, 45, 45], keep=True, staleness=1)
    first, second = bench.batch(0), bench.batch(1)
    assert goals(first) == [1, 1, 2, 2] and goals(second) == [31, 31, 30, 30]
    assert second.graph.names["group"] == ("walk/0", "walk/2")  # in the order in which they were begun
    versions = second.graph.columns["version_oldest"]
    for episode in np.unique(second.graph.episode):
        own = versions[second.graph.episode == episode]
        assert own[0] == 0 and own[-1] == 1 and (np.diff(own) >= 0).all()
    assert first.metrics["cancelled_tokens"] == 0 and bench.provision.flying == 2
    # Each action is counted in the batch in which it was carried out, and none twice.
    flying = sum(flight.counted.actions for flight in bench.provision._flights.values())
    assert first.metrics["actions"] + second.metrics["actions"] == 6 + 122 + flying


def test_groups_beyond_the_bound_are_dropped_and_drawn_again_once(make):
    bench = make([48, 1, 48, 1, *[1] * 10], keep=True, staleness=1)
    told = [bench.batch(iteration).metrics for iteration in range(5)]
    assert [m["groups_stale"] for m in told] == [0, 0, 2, 0, 2]
    assert [m["groups_given_up"] for m in told] == [0, 0, 0, 0, 2]
    assert bench.provision.flying == 2 and bench.sampler.drawn == 4 + 2 + 2 + 2 + 4


def test_before_a_pause_nothing_is_left(make):
    bench = make([31, 1, 30, 2], keep=True, staleness=3)
    bench.batch(0)
    last = bench.batch(1, pauses=True)
    assert goals(last) == [31, 31, 30, 30] and bench.provision.flying == 0 and not bench.policy.open_sessions


@pytest.mark.parametrize("seed", range(4))
def test_every_group_is_taken_dropped_or_in_flight(make, seed):
    rng = np.random.default_rng(seed)
    bench = make(rng.integers(1, 20, 200).tolist(), provision=1.5, keep=True, staleness=2)
    taken = Counter()
    given_up = 0
    for iteration in range(12):
        done = bench.batch(iteration)
        taken.update(done.graph.names["group"])
        given_up += done.metrics["groups_given_up"]
        ages = iteration - done.graph.columns["version_oldest"]
        assert ages.min() >= 0 and ages.max() <= 2
        assert done.metrics["episodes"] == 4
    assert max(taken.values()) == 1
    assert bench.sampler.drawn == sum(taken.values()) + given_up + bench.provision.flying


@pytest.mark.parametrize(
    ("provision", "keep", "pauses", "begun"),
    [
        (1.0, False, False, 2),
        (1.25, False, False, 3),  # 2.5 groups, rounded up
        (2.0, False, True, 4),  # what is left over is cancelled, so a pause changes nothing
        (2.0, True, False, 4),
        (2.0, True, True, 2),  # nothing may be left over
    ],
)
def test_groups_in_flight_by_hand(make, provision, keep, pauses, begun):
    plan = make([1], provision=provision, keep=keep).plan
    assert plan.groups_to_begin(pauses=pauses) == begun


def test_the_same_draws_give_the_same_batches(make):
    def played():
        bench = make(np.random.default_rng(1).integers(1, 20, 99).tolist(), provision=1.5, keep=True, staleness=2)
        return [[(r.task.key, r.copy, len(r.steps)) for r in bench.batch(i).records] for i in range(6)]

    assert played() == played()


def test_provision_1_takes_every_group_as_the_plain_batch_does(make):
    bench = make([9, 1], provision=1.0)
    done = bench.batch(0)
    assert goals(done) == [9, 9, 1, 1] and done.metrics["groups_left"] == done.metrics["left_steps"] == 0


def test_filtered_groups_are_replaced_and_then_filled_up(make):
    bench = make([3] * 100, sampler="dynamic", provision=1.5)
    done = bench.batch(0)  # all copies score 1: no group varies, so every batch is tried and the last one is filled up
    begun = bench.plan.groups_to_begin() + (bench.plan.rounds - 1) * 2
    assert done.metrics["groups_played"] == bench.sampler.drawn == begun
    assert (done.metrics["groups_filled"], done.metrics["episodes"]) == (2, 4)


def test_a_limit_on_concurrency_holds_for_all_groups_together(make):
    bench = make([2, 2, 2, 2], concurrency=3)
    most = 0
    opened = bench.policy.open

    def count(session):
        nonlocal most
        opened(session)
        most = max(most, len(bench.policy.open_sessions))

    bench.policy.open = count
    bench.batch(0)
    assert most == 3


def test_a_mistake_ends_every_group(make):
    bench = make([9, 9, 9, 9])

    async def fail(request):
        await asyncio.sleep(0)
        if request.noise_key[3] == 1:
            raise ValueError("too long")
        return Generation(text="right")

    bench.policy.generate = fail
    with pytest.raises(ValueError, match="too long"):
        bench.batch(0)
    assert bench.provision.flying == 0 and not bench.policy.open_sessions
    assert not asyncio.all_tasks(bench.loop)
