"""Worker processes: a fault costs its own episode, whatever its kind; siblings play on as if nothing had
happened."""

import asyncio
import functools
import os
import signal

import pytest

from agentrl.env import Limits, make_pool, processes as workers, tasks_of
from agentrl.env.pool import InlinePool
from agentrl.env.processes import WorkerPool
from agentrl.rollout import ExpertActor, PolicyActor, Random
from agentrl.types import EnvFault, Status, Task
from tests.rollout.playing import FAULTY, WALK, entry, play_all, player, right, script
from tests.toys import faulty, walk

ON = entry(FAULTY)
LIMITS = Limits(turns=4, retries=1, fault_share=1.0)


@pytest.fixture
def pool(monkeypatch):
    """Two processes that are given up 1 s after a call's deadline of 2 s."""
    monkeypatch.setattr(workers, "GRACE_S", 1.0)
    made = WorkerPool(functools.partial(faulty.make, ON.config), walk.expert, timeout_s=2.0, workers=2)
    yield made
    made.close()


def calm():
    """What the tasks 0..5 look like when nothing fails."""
    by = player(ON, make_pool(ON, "inline"), limits=LIMITS)
    return [script(record) for record in play_all(by, [faulty.task(i) for i in range(6)])]


def test_workers_play_the_same_bytes_as_this_process(pool):
    by = player(ON, pool, limits=LIMITS)
    tasks = [faulty.task(i) for i in range(6)]
    assert [script(record) for record in play_all(by, tasks)] == calm()
    assert [script(record) for record in play_all(by, tasks)] == calm()  # the pool outlives an event loop


@pytest.mark.fault
@pytest.mark.parametrize(
    "fault",
    ["raise", "exit", "interrupt", "generator_exit", "cancelled", "hang", "hang_in_c", "die", "killed", "nan", "text"],
)
def test_a_fault_that_persists_costs_its_own_episode_only(pool, fault):
    tasks = [faulty.task(i, fault if i == 2 else "") for i in range(6)]
    records = play_all(player(ON, pool, limits=LIMITS), tasks)
    assert [record.task.key for record in records] == [task.key for task in tasks]
    lost = records.pop(2)
    assert lost.ending == Status.ENV_ERROR and lost.attempts == 2 and lost.fault
    undisturbed = calm()
    undisturbed.pop(2)
    assert [script(record) for record in records] == undisturbed
    assert all(record.ending != Status.ENV_ERROR and record.attempts == 1 for record in records)


@pytest.mark.fault
@pytest.mark.parametrize(("seconds", "start_s", "lost"), [(3.0, 120.0, 0), (3.0, 0.3, 2), (-1, 0.6, 2)])
def test_making_an_instance_may_take_longer_than_a_call(monkeypatch, seconds, start_s, lost):
    monkeypatch.setattr(workers, "GRACE_S", 1.0)
    make = functools.partial(faulty.make_slowly, seconds, ON.config)
    slow = WorkerPool(make, timeout_s=1.0, workers=1, start_s=start_s)
    limits = Limits(turns=2, retries=0, fault_share=1.0)
    try:
        records = play_all(player(ON, slow, limits=limits), [faulty.task(i) for i in range(2)])
    finally:
        slow.close()
    assert [record.ending for record in records].count(Status.ENV_ERROR) == lost


@pytest.mark.fault
@pytest.mark.parametrize("fault", ["raise", "killed"])
def test_a_fault_that_passes_is_retried_from_the_start(pool, fault, tmp_path):
    tasks = [faulty.task(2, fault, at=1, marker=str(tmp_path / "struck")), faulty.task(1)]
    records = play_all(player(ON, pool, limits=LIMITS, policy=right()), tasks)
    assert [record.attempts for record in records] == [2, 1]
    assert [record.ending for record in records] == [Status.DONE, Status.DONE]
    assert [step.reward for step in records[0].steps] == [0, 0, 1]  # three steps to the goal, none left over


@pytest.mark.fault
def test_a_worker_killed_from_outside_costs_nothing(pool):
    """The out-of-memory killer's case: an idle process dies; its episodes are replayed elsewhere."""

    async def run():
        handles = [pool.acquire() for _ in range(4)]
        for number, handle in enumerate(handles):
            await handle.reset(Task(key=str(number), env=FAULTY, seed=2))
            await handle.step("left")
        os.kill(handles[0].worker.process.pid, signal.SIGKILL)
        handles[0].worker.process.join()
        return [(await handle.step("left")).observation.text for handle in handles]

    assert asyncio.run(run()) == ["You are at -2, the goal is 3."] * 4


@pytest.mark.fault
def test_what_cannot_be_pickled_costs_its_own_call_only(pool):
    async def run():
        good, bad = pool.acquire(), pool.acquire()
        await asyncio.gather(good.reset(faulty.task(0)), bad.reset(faulty.task(1, "unpicklable", 0)))
        return await asyncio.gather(good.step("left"), bad.step("left"), return_exceptions=True)

    fine, fault = asyncio.run(run())
    assert fine.observation.text.startswith("You are at -1")
    assert isinstance(fault, EnvFault) and "pickled" in str(fault)


def test_a_task_that_cannot_be_sent_is_the_users_mistake(pool):
    async def run():
        await pool.acquire().reset(Task(key="a", env=FAULTY, params={"open": lambda: 0}))

    with pytest.raises(ValueError, match="cannot be sent to a worker process"):
        asyncio.run(run())


def test_an_unknown_expert_stops_the_run_with_its_sentence_and_spares_the_process(pool):
    actor = ExpertActor("clever", player(ON, pool).prompt)
    with pytest.raises(ValueError, match="no expert 'clever'"):
        play_all(player(ON, pool, actor=actor), [faulty.task(0), faulty.task(1)])
    by = player(ON, pool, actor=ExpertActor("straight", player(ON, pool).prompt))
    assert [record.success for record in play_all(by, [faulty.task(0), faulty.task(1)])] == [True, True]


def test_broken_instances_are_forgotten_in_their_worker(pool):
    async def run():
        handle = pool.acquire()
        await handle.reset(faulty.task(0))
        pool.release(handle, broken=True)  # by a fault of the policy, say: the worker knows nothing of it
        with pytest.raises(EnvFault, match=r"AttributeError"):
            await handle.step("left")  # a new instance, which was never reset

    asyncio.run(run())


@pytest.mark.fault
def test_closing_ends_the_processes_even_with_calls_on_their_way(pool):
    async def run():
        handles = [pool.acquire() for _ in range(2)]
        waiting = [asyncio.ensure_future(handle.reset(faulty.task(0, "hang_in_c", -1))) for handle in handles]
        await asyncio.sleep(0.05)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        pids = [handle.worker.process.pid for handle in handles]
        pool.close()
        return pids

    for pid in asyncio.run(run()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_world_pool_makes_environments_in_workers_from_their_name():
    on = entry(WALK, count=3)
    heavy = make_pool(on, "processes", workers=1)
    try:
        by = player(on, heavy, actor=PolicyActor(Random(player(on, heavy).prompt), None, None))
        light = player(on, make_pool(on, "inline"))
        tasks = tasks_of(on)
        assert [script(r) for r in play_all(by, tasks)] == [script(r) for r in play_all(light, tasks)]
        assert isinstance(light.pool, InlinePool) and isinstance(heavy, WorkerPool)
    finally:
        heavy.close()


@pytest.mark.fault
def test_a_worker_that_cannot_start_is_a_fault_at_once_not_after_ten_processes():
    class Here:
        def __reduce__(self):
            return exec, ("raise RuntimeError('not installed here')",)

    pool = WorkerPool(Here(), None, workers=1)
    try:
        (record,) = play_all(player(ON, pool, limits=Limits(turns=2, retries=0, fault_share=1)), [faulty.task(0)])
        assert record.ending == Status.ENV_ERROR and "before its first call" in record.fault
    finally:
        pool.close()


@pytest.mark.fault
def test_a_process_that_hangs_before_its_first_call_is_given_up(monkeypatch):
    monkeypatch.setattr(workers, "GRACE_S", 0.1)
    monkeypatch.setattr(workers, "serve", faulty.never_serves)
    stuck = WorkerPool(functools.partial(faulty.make, ON.config), timeout_s=0.3, workers=1, start_s=2.0)
    limits = Limits(turns=2, retries=0, fault_share=1.0)
    try:
        records = play_all(player(ON, stuck, limits=limits), [faulty.task(i) for i in range(2)])
    finally:
        stuck.close()
    assert [record.ending for record in records] == [Status.ENV_ERROR] * 2
    assert "before its first call" in records[0].fault
