"""Environments in threads: the same records, every fault alone, and waiting that overlaps."""

import time

import pytest

from agentrl import world
from agentrl.policies import Scripted
from agentrl.records import build_graph
from agentrl.rollout import Limits
from agentrl.store import to_bytes
from agentrl.threads import ThreadPool
from agentrl.types import Status
from tests.core.playing import FAULTY, entry, play_all, player, right, script
from tests.core.test_tool_env import ON as SUMS
from tests.core.test_tool_env import written
from tests.core.toys import faulty

ON = entry(FAULTY)


def graph(where: str):
    texts = [written("add", a=1, b=2), written("wait", seconds=0.01, words="w") * 2, "<tool_call>{", "3"]
    by = player(SUMS, world.pool(SUMS, where), policy=Scripted(texts))
    return build_graph(play_all(by, [world.tasks(SUMS)[i] for i in range(6)], copies=3))


def test_threads_give_the_same_bytes_as_this_process():
    assert to_bytes(graph("threads")) == to_bytes(graph("inline")) == to_bytes(graph("threads"))


@pytest.mark.parametrize("fault", ["raise", "exit", "hang", "none", "nan", "flag", "surrogate"])
def test_a_fault_in_a_thread_costs_one_episode(fault):
    tasks = [faulty.task(0), faulty.task(2, fault, at=1), faulty.task(4)]
    pool = ThreadPool(lambda: faulty.make(faulty.Config()), timeout_s=0.5)
    by = player(ON, pool, policy=right(), limits=Limits(turns=5, retries=0, fault_share=1.0))
    first, broken, last = play_all(by, tasks)
    assert broken.ending == Status.ENV_ERROR and broken.fault
    inline = player(ON, world.pool(ON, "inline"), policy=right())
    assert [script(r) for r in (first, last)] == [script(r) for r in play_all(inline, [tasks[0], tasks[2]])]
    pool.close()


def test_a_hung_call_is_told_and_retried_in_another_instance(tmp_path):
    tasks = [faulty.task(2, "hang", at=1, marker=str(tmp_path / "struck"))]
    pool = ThreadPool(lambda: faulty.make(faulty.Config()), timeout_s=0.5)
    (record,) = play_all(player(ON, pool, policy=right(), limits=Limits(turns=5, retries=1)), tasks)
    assert record.attempts == 2 and record.success


def test_waiting_overlaps():
    texts = [written("wait", seconds=0.3, words="w"), "3"]
    tasks = [world.tasks(SUMS)[i] for i in range(20)]
    started = time.monotonic()
    play_all(player(SUMS, world.pool(SUMS, "threads"), policy=Scripted(texts)), tasks)
    assert time.monotonic() - started < 3.0  # one after the other: 6 s


def test_modules_that_wait_get_threads_by_themselves():
    class Waits:
        WAITS, make = True, staticmethod(SUMS.module.make)

    assert isinstance(world.pool(SUMS._replace(module=Waits)), ThreadPool)
    assert not isinstance(world.pool(SUMS), ThreadPool)


def test_an_environment_that_cannot_be_made_is_a_fault():
    def make():
        raise OSError("no data")

    pool = ThreadPool(make, timeout_s=0.5)
    limits = Limits(turns=5, retries=0, fault_share=1.0)
    (record,) = play_all(player(ON, pool, policy=right(), limits=limits), [faulty.task(0)])
    assert record.ending == Status.ENV_ERROR and "OSError: no data" in record.fault
