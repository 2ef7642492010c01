"""Environments in threads: the same records, every fault alone, and waiting that overlaps."""

import asyncio
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar

import pytest

from agentrl.env import Limits, ThreadPool, make_pool, tasks_of
from agentrl.env.pool import InlinePool
from agentrl.env.threads import Thread
from agentrl.graph.store import graph_to_bytes
from agentrl.rollout import Scripted, build_graph
from agentrl.tool_env import environment
from agentrl.types import EnvFault, Status
from tests.rollout.playing import FAULTY, entry, play_all, player, right, script
from tests.tool_env.test_tool_env import ON as SUMS, written
from tests.toys import faulty, sums

ON = entry(FAULTY)


def graph(where: str):
    texts = [written("add", a=1, b=2), written("wait", seconds=0.01, words="w") * 2, "<tool_call>{", "3"]
    by = player(SUMS, make_pool(SUMS, where), policy=Scripted(texts))
    return build_graph(play_all(by, [tasks_of(SUMS)[i] for i in range(6)], copies=3))


def test_threads_give_the_same_bytes_as_this_process():
    assert graph_to_bytes(graph("threads")) == graph_to_bytes(graph("inline")) == graph_to_bytes(graph("threads"))


@pytest.mark.fault
@pytest.mark.parametrize("fault", ["raise", "exit", "hang", "none", "nan", "flag", "surrogate"])
def test_a_fault_in_a_thread_costs_one_episode(fault):
    tasks = [faulty.task(0), faulty.task(2, fault, at=1), faulty.task(4)]
    pool = ThreadPool(lambda: faulty.make(faulty.Config()), timeout_s=2.0)
    by = player(ON, pool, policy=right(), limits=Limits(turns=5, retries=0, fault_share=1.0))
    first, broken, last = play_all(by, tasks)
    assert broken.ending == Status.ENV_ERROR and broken.fault
    inline = player(ON, make_pool(ON, "inline"), policy=right())
    assert [script(r) for r in (first, last)] == [script(r) for r in play_all(inline, [tasks[0], tasks[2]])]
    pool.close()


@pytest.mark.fault
def test_a_hung_call_is_told_and_retried_in_another_instance(tmp_path):
    tasks = [faulty.task(2, "hang", at=1, marker=str(tmp_path / "struck"))]
    pool = ThreadPool(lambda: faulty.make(faulty.Config()), timeout_s=2.0)
    (record,) = play_all(player(ON, pool, policy=right(), limits=Limits(turns=5, retries=1)), tasks)
    assert record.attempts == 2 and record.success


def test_waiting_overlaps(monkeypatch):
    waiting, pause = [], asyncio.sleep

    async def sleep(seconds: float) -> None:
        """Wait until every episode waits; one after the other, the first would wait for ever."""
        waiting.append(seconds)
        while len(waiting) < 20:
            await pause(0.01)

    monkeypatch.setattr(sums, "asyncio", SimpleNamespace(sleep=sleep))
    texts = [written("wait", seconds=0.3, words="w"), "3"]
    tasks = [tasks_of(SUMS)[i] for i in range(20)]
    records = play_all(player(SUMS, make_pool(SUMS, "threads"), policy=Scripted(texts)), tasks)
    assert [record.ending for record in records] == [Status.DONE] * 20 and len(waiting) == 20


def test_modules_that_wait_get_threads_by_themselves():
    waits = SUMS._replace(hooks=replace(ON.hooks, waits=True))
    assert isinstance(make_pool(waits), ThreadPool)
    assert not isinstance(make_pool(ON), ThreadPool)


def test_tool_environments_get_threads_unless_they_say_that_nothing_waits():
    says = replace(SUMS.hooks, waits=False)
    quick = replace(SUMS.hooks, make=environment(sums.Sums, waits=False, module=sums.__name__).make)
    assert isinstance(make_pool(SUMS), ThreadPool)
    for hooks in (says, quick):
        assert isinstance(make_pool(SUMS._replace(hooks=hooks)), InlinePool)


class Runaway:
    """Its tool computes for ever, in Python."""

    closed: ClassVar[list[int]] = []

    def reset(self, seed: int) -> str:
        self.seed = seed
        return "Count."

    def count(self) -> str:
        while self.seed == 0:
            pass
        return "counted"

    def close(self) -> None:
        self.closed.append(self.seed)

    def reward(self, answer: str) -> float:
        return 1.0


RUNAWAY = environment(Runaway, module=__name__)


@pytest.mark.fault
def test_a_call_that_computes_for_ever_is_stopped_and_its_thread_ends():
    Runaway.closed.clear()
    before = threading.active_count()
    pool = ThreadPool(lambda: RUNAWAY.make(RUNAWAY.Config()), timeout_s=1.0)
    by = replace(
        player(SUMS, pool, policy=Scripted([written("count"), "done"]), limits=Limits(retries=0, fault_share=1.0)),
        prompt=RUNAWAY.prompt(RUNAWAY.Config()),
    )
    lost, fine = play_all(by, [RUNAWAY.tasks(RUNAWAY.Config())[i] for i in range(2)])
    assert (lost.ending, fine.ending) == (Status.ENV_ERROR, Status.DONE) and "no answer in 1 s" in lost.fault
    pool.close()
    started = time.monotonic()
    while threading.active_count() > before and time.monotonic() < started + 120:
        time.sleep(0.01)
    assert threading.active_count() <= before and sorted(Runaway.closed)[:2] == [0, 1]


@pytest.mark.fault
def test_so_many_hanging_calls_are_a_fault_of_the_run_and_those_that_came_back_are_not_counted(monkeypatch):
    monkeypatch.setattr("agentrl.env.threads.MOST_GIVEN_UP", 2)
    pool = ThreadPool(lambda: faulty.make(faulty.Config()), timeout_s=0.1)

    come_back = threading.Event()

    async def said(limit_s: float) -> str:
        try:
            await pool.run(pool.acquire(), come_back.wait, limit_s)
        except EnvFault as fault:
            return str(fault)
        return "fine"

    async def work() -> list[str]:
        before = [await said(0.05), await said(0.05), await said(60.0)]
        come_back.set()
        while pool._given_up:
            await asyncio.sleep(0.01)
        return [*before, await said(60.0)]

    assert [said[:12] for said in asyncio.run(work())] == ["no answer in", "no answer in", "2 calls hang", "fine"]


@pytest.mark.fault
def test_an_environment_that_cannot_be_made_is_a_fault():
    def make():
        raise OSError("no data")

    pool = ThreadPool(make, timeout_s=60.0)
    limits = Limits(turns=5, retries=0, fault_share=1.0)
    (record,) = play_all(player(ON, pool, policy=right(), limits=limits), [faulty.task(0)])
    assert record.ending == Status.ENV_ERROR and "OSError: no data" in record.fault


def test_an_interrupt_that_comes_too_late_does_not_cost_the_job_after_it():
    """The call came back at the very moment it was given up; its environment is closed nevertheless."""
    thread, done, closed = Thread(), threading.Event(), threading.Event()
    thread.do(done.set)
    assert done.wait(60)
    time.sleep(0.05)  # it waits for its next job now
    thread.interrupt()
    thread.do(closed.set)
    assert closed.wait(60)
    thread.do(None)
