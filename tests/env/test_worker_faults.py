"""Worker processes that crash, hang or grow: each fault costs its own episode, and nothing stays behind."""

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrl.env import Limits, make_pool, processes as workers
from agentrl.env.processes import WorkerPool
from agentrl.types import Status, Task
from tests.rollout.playing import FAULTY, entry, play_all, player, right, script
from tests.toys import faulty, walk

ON = entry(FAULTY)
LIMITS = Limits(turns=4, retries=0, fault_share=1.0)
ROOT = Path(__file__).parents[2]


@pytest.fixture
def pool():
    made = pooled(60.0)
    yield made
    made.close()


def pooled(timeout_s: float) -> WorkerPool:
    make = functools.partial(faulty.make, ON.config)
    return WorkerPool(make, walk.expert, timeout_s, workers=2, output_chars=1000, memory_mb=1024)


def calm(numbers, limits=LIMITS):
    """What the tasks of these numbers look like when nothing fails."""
    return list(
        map(script, play_all(player(ON, make_pool(ON, "inline"), limits=limits), list(map(faulty.task, numbers))))
    )


@pytest.mark.fault
@pytest.mark.slow
def test_crashes_of_every_kind_at_once_cost_their_own_episodes(monkeypatch):
    monkeypatch.setattr(workers, "GRACE_S", 0.3)
    kinds = sorted(faulty.CRASHES)
    tasks = [faulty.task(i, kinds[i // 2] if i % 2 else "") for i in range(2 * len(kinds))]
    pool = pooled(2.0)
    try:
        records = play_all(player(ON, pool, limits=LIMITS), tasks)
    finally:
        pool.close()
    assert {kinds[i // 2]: records[i].ending for i in range(1, len(tasks), 2)} == dict.fromkeys(kinds, Status.ENV_ERROR)
    assert "MemoryError" in records[2 * kinds.index("burst") + 1].fault
    undisturbed = calm(range(len(tasks)))
    assert [script(record) for record in records[::2]] == undisturbed[::2]


@pytest.mark.fault
def test_an_answer_that_would_fill_the_trainers_memory_is_a_fault(pool):
    large, other = play_all(player(ON, pool, limits=LIMITS), [faulty.task(0, "info_huge"), faulty.task(1)])
    assert "step returned 257 MB, and the limit of a worker's answer is 256 MB" in large.fault and not other.fault


@pytest.mark.fault
def test_what_is_much_is_no_fault_and_prints_nothing_to_stdout(pool, capfd):
    kinds = sorted(faulty.MUCH)
    records = play_all(player(ON, pool, limits=LIMITS), [faulty.task(i, kind) for i, kind in enumerate(kinds)])
    assert [(record.attempts, record.fault) for record in records] == [(1, "")] * len(kinds)
    text = records[kinds.index("text_huge")].steps[2].observation.text
    assert len(text) < 1100 and text.startswith("éé") and text.endswith("éé")
    assert len(records[kinds.index("actions_many")].steps[2].observation.actions) == 20_002
    out, err = capfd.readouterr()
    assert out == "" and all(err.count(word) >= 10_000 for word in ("written", "printed", "told"))


@pytest.mark.slow
@pytest.mark.fault
def test_a_process_that_leaks_is_replaced_and_its_episodes_are_replayed(pool):
    """Each of eight episodes, two at a time, leaks 300 MB in processes that may hold 1024 MB."""
    by = player(ON, pool, limits=LIMITS.model_copy(update={"concurrency": 2}), policy=right())
    records = play_all(by, [faulty.task(2, "leaks") for _ in range(8)])
    assert [(record.attempts, record.fault) for record in records] == [(1, "")] * 8


@pytest.mark.fault
def test_a_task_larger_than_a_pipe_does_not_stop_the_trainer_while_a_worker_hangs(monkeypatch):
    monkeypatch.setattr(workers, "GRACE_S", 0.1)
    monkeypatch.setattr(workers, "serve", faulty.never_serves)
    stuck = WorkerPool(functools.partial(faulty.make, ON.config), timeout_s=0.3, workers=1, start_s=2.0)
    large = Task(key="large", env=FAULTY, seed=0, params={"text": "a" * 5_000_000})
    try:
        (record,) = play_all(player(ON, stuck, limits=LIMITS), [large])
    finally:
        stuck.close()
    assert record.ending == Status.ENV_ERROR and "limits.start_seconds" in record.fault


@pytest.mark.fault
def test_an_instance_that_hangs_when_it_is_closed_delays_nobody():
    pool = pooled(60.0)
    records = play_all(player(ON, pool, limits=LIMITS), [faulty.task(0, "close", at=99), faulty.task(1)])
    assert [record.fault for record in records] == ["", ""]
    processes = [worker.process for worker in pool._workers]
    pool.close()
    assert sorted(process.exitcode for process in processes) == [-signal.SIGKILL, 0]  # it would hang for a minute


PROGRAM = """
import functools, sys
from agentrl import cli
from agentrl.env.processes import WorkerPool
from agentrl.run import Loop
from agentrl.env import Limits
from agentrl.rollout import play
from tests.rollout.playing import player
from tests.env.test_worker_faults import ON
from tests.toys import faulty
from agentrl.cli import _stop, doctor

def play_on(words):
    pool = WorkerPool(functools.partial(faulty.make, ON.config), timeout_s=60, workers=2)
    tasks = [faulty.task(i, sys.argv[1], marker=sys.argv[2]) for i in range(40)]
    try:
        with Loop() as loop:
            player_ = player(ON, pool, limits=Limits(turns=4, retries=1000, fault_share=1))
            print([pool.acquire().worker.process.pid for _ in range(2)], flush=True)
            loop.run(play(player_, tasks))
    finally:
        pool.close()

if __name__ == "__main__":
    _stop.listen()
    doctor.main = play_on
    sys.exit(cli.main(["doctor"]))
"""


def started(tmp_path, fault: str, marker: str = "") -> tuple[subprocess.Popen, list[int]]:
    """A program whose environments fail again and again, and the ids of its first workers."""
    (tmp_path / "program.py").write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "program.py", fault, marker],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process, list(map(int, process.stdout.readline().strip("[]\n").split(",")))


def eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.05)
    return False


def gone(pids: list[int]) -> bool:
    return eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


@pytest.mark.fault
def test_sigterm_while_workers_are_lost_prints_one_word_and_leaves_no_process(tmp_path):
    process, pids = started(tmp_path, "die")
    assert gone(pids)
    time.sleep(0.5)  # workers die and are replaced all the time
    process.terminate()
    _, said = process.communicate(timeout=600)
    assert (process.returncode, said) == (143, "agentrl: stopped\n")


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone kills the children of a killed process")
def test_workers_that_hang_end_with_a_killed_trainer(tmp_path):
    process, pids = started(tmp_path, "hang_in_c", str(tmp_path / "hangs"))
    assert eventually((tmp_path / "hangs").exists)
    process.kill()
    process.communicate(timeout=600)
    assert gone(pids)
