"""Branch points: an environment's way back, by snapshot or by its recorded actions, and what is compared there."""

import asyncio

import numpy as np
import pytest

from agentrl.env import Limits, PastTurn, Slot, make_pool, tasks_of
from agentrl.env.pool import InlinePool
from agentrl.rollout import Branch, History, Point, StateMismatch
from agentrl.rollout.branch import go_back, own_copy
from agentrl.types import Message, Observation, Status
from tests.rollout.expanding import expansion, walks
from tests.rollout.playing import entry
from tests.toys import walk

LIAR = "tests.toys.liar"
LIMITS = Limits(turns=6, fault_share=1.0, retries=2)


def branched(name, tasks, *, where="inline", copies=2, turns=(0, 1, 3), **options):
    """(chains, branches of the first one at some turns, the expansion)."""
    batch = expansion(name, tasks, where=where, limits=LIMITS, **options)

    async def run():
        chains = await batch.begin(copies, remember=True)
        return chains, await batch.go_on([Branch(chains[0], turn) for turn in turns])

    return *asyncio.run(run()), batch


def liars(lie):
    on = entry(LIAR, lie=lie, goal=9)
    return tasks_of(on)[:1], make_pool(on, "inline")


@pytest.mark.parametrize("where", ["inline", "processes"])
def test_a_branch_sees_what_its_chain_saw_and_shares_its_steps(where):
    (chain, _), found, _ = branched("tests.toys.walk", walks(1, goal=9), where=where)
    for turn, record in zip((0, 1, 3), found, strict=True):
        assert record.inherited == turn and len(record.steps) == 6 and record.ending == Status.TURN_LIMIT
        assert all(a is b for a, b in zip(record.steps[:turn], chain.steps[:turn], strict=True))
        assert record.steps[turn].observation == chain.steps[turn].observation
        assert record.steps[turn] is not chain.steps[turn] and record.replayed == 0
        assert (record.tree, record.group) == (chain.tree, chain.group) and record.actions == 6 - turn


def test_without_snapshots_the_recorded_actions_are_played_again(monkeypatch):
    told = [[s.action for s in r.steps] for r in branched("tests.toys.walk", walks(1, goal=9))[1]]
    monkeypatch.setattr(Slot, "snapshot", lambda self: None)
    _, found, _ = branched("tests.toys.walk", walks(1, goal=9))
    assert [r.replayed for r in found] == [0, 1, 3]
    assert [[s.action for s in r.steps] for r in found] == told


def test_a_snapshot_that_nobody_can_check_is_not_trusted():
    tasks, pool = liars("blind")  # restore returns nothing
    _, found, _ = branched(LIAR, tasks, pool=pool)
    assert [r.replayed for r in found] == [0, 1, 3] and all(r.ending == Status.TURN_LIMIT for r in found)


@pytest.mark.parametrize(("lie", "said"), [("snapshot", "shows text"), ("restored", "shows actions")])
def test_a_wrong_state_makes_the_branch_an_environment_error_and_is_not_tried_again(lie, said):
    tasks, pool = liars(lie)
    chains, found, _ = branched(LIAR, tasks, pool=pool)
    for record in found:
        assert record.ending == Status.ENV_ERROR and record.attempts == 1
        assert said in record.fault and "restored to turn" in record.fault
        assert len(record.steps) == record.inherited  # nothing was played in the wrong state
    assert all(r.ending == Status.TURN_LIMIT and len(r.steps) == 6 for r in chains)


def test_a_replay_that_shows_something_else_is_an_environment_error(monkeypatch):
    monkeypatch.setattr(Slot, "snapshot", lambda self: None)
    tasks, pool = liars("chance")  # every reset has other weather
    _, found, _ = branched(LIAR, tasks, pool=pool)
    assert [r.ending for r in found] == [Status.ENV_ERROR] * 3
    assert all("the environment, reset, shows text" in r.fault for r in found)


def test_points_keep_their_history_while_the_chain_goes_on():
    seen = Observation(text="a")
    history = History(chat=None, first=seen, now=seen, messages=[Message("user", "hi")])
    kept = own_copy(history)
    history.past.append(PastTurn(seen, "go"))
    history.messages.append(Message("assistant", "go"))
    history.now = Observation(text="b")
    assert kept.past == [] and kept.now == seen and kept.messages == [Message("user", "hi")]


def test_a_replay_that_ends_early_is_no_way_back():
    async def run():
        handle = InlinePool(lambda: walk.make(walk.Config(goal=1))).acquire()
        (task,) = walks(1)
        first = await handle.reset(task)
        result = await handle.step("right")
        history = History(
            chat=None, first=first, now=result.observation, past=[PastTurn(first, "right")], path=np.zeros(0, np.int64)
        )
        with pytest.raises(StateMismatch, match="ended the episode at turn 1"):
            await go_back(handle, task, Point(history=history, session=0, sampled=0))

    asyncio.run(run())


def test_an_instance_that_played_another_task_is_reset_before_it_is_restored():
    class Careful(walk.Walk):
        """Its snapshots hold nothing of the task."""

        def snapshot(self):
            return self.place

        def restore(self, snapshot):
            self.place = snapshot
            return self.observe()

    async def run():
        pool = InlinePool(lambda: Careful(walk.Config()))
        one, other = pool.acquire(), pool.acquire()
        first, second = walks(2)  # goals 1 and 2
        await one.reset(second)
        saved = await one.snapshot()
        await other.reset(first)
        seen = await other.restore(second, saved)
        assert seen is not None and seen.text == "You are at 0, the goal is 2."

    asyncio.run(run())
