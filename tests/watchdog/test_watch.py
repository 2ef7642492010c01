"""The watchdog with a clock of the test: when it speaks, what it writes, when it ends a process, what is progress."""

import asyncio
import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from agentrl.cli import main
from agentrl.cli._watch_frame import drawn
from agentrl.engines import EngineLost
from agentrl.env import Limits, longest_limit
from agentrl.env.pool import InlinePool
from agentrl.env.threads import ThreadPool
from agentrl.pulse import PULSE, Pulse
from agentrl.runs import frame
from agentrl.types import EnvFault, Task
from agentrl.watchdog import STALLED, Patience, Watch, read_stalls, stall_words
from agentrl.watchdog.peers import Peers
from agentrl.watchdog.stacks import own_stacks
from tests.toys import walk

SILENT_S = 200.0


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def found(steps: list[tuple[float, int]], silent_s: float = SILENT_S) -> list[tuple[float, str]]:
    """The findings of looks at these times [s], with these counts of progress."""
    patience = Patience(silent_s, 0.0)
    looks = [(now, patience.look(now, count)) for now, count in steps]
    return [(now, finding) for now, finding in looks if finding]


def every(seconds: float, until: float, count: int = 0, begin: float = 0.0) -> list[tuple[float, int]]:
    return [(begin + i * seconds, count) for i in range(1, int((until - begin) / seconds) + 1)]


def test_the_watchdog_speaks_once_and_ends_once():
    # the first look, at 10 s, sees a count for the first time: the silence begins there
    assert found(every(10, 1000)) == [(210, "silent"), (410, "over")]


def test_progress_takes_it_back_and_the_silence_begins_anew():
    steps = [*every(10, 300), *every(10, 900, count=1, begin=300)]
    assert found(steps) == [(210, "silent"), (310, "again"), (510, "silent"), (710, "over")]
    assert found([(10.0 * i, i) for i in range(1, 500)]) == []


def test_time_in_which_the_process_was_stopped_does_not_count():
    # 100 s without progress, one hour of Ctrl-Z, then 10 s per look: 100 s more are silent at 3710 + 90
    stopped = [*every(10, 100), *every(10, 4500, begin=3700)]
    assert found(stopped)[0] == (3810, "silent")
    # a busy machine delays a look by 20 s: this does count
    assert found([*every(10, 100), *every(10, 800, begin=120)])[0] == (210, "silent")


@pytest.mark.parametrize("seed", range(5))
def test_it_never_speaks_before_the_silence_and_always_within_two_looks_after_it(seed):
    import numpy as np

    rng = np.random.default_rng(seed)
    silent_s = float(rng.uniform(5, 5000))
    patience, now_s, last_s, spoke = Patience(silent_s, 0.0), 0.0, None, False
    for look in range(400):
        now_s += patience.tick_s
        progress = look == 0 or rng.random() < 0.02
        finding = patience.look(now_s, look if progress else None if last_s is None else last_s)
        if progress:
            patience.look(now_s, last_s := now_s)
            spoke = False
        silence = now_s - (last_s or 0.0)
        spoke |= finding == "silent"
        assert not spoke or silence >= silent_s - 1e-6
        assert spoke or silence < silent_s + 2 * patience.tick_s


def test_a_longer_limit_of_the_recipe_is_waited_for():
    recipe = {
        "limits": {"call_seconds": 60.0, "start_seconds": 600.0, "turns": 10_000},
        "engine": {"timeout_s": 3600.0, "start_s": float("inf"), "retries": 2},
        "score": [{"name": "judge", "timeout_s": 120.0}, {"name": "other", "max_wait_s": "none"}],
    }
    assert longest_limit(recipe, 900.0) == 1.25 * 3600 + 5
    assert longest_limit({"limits": {"call_seconds": True}}, 900.0) == 900.0  # True is no number of seconds
    assert longest_limit({}, 30.0) == 30.0
    assert longest_limit({"learner": {"name": "local", "timeout_s": 3600.0}}, 900.0) == 900.0  # no service is asked
    assert longest_limit({"learner": {"name": "tinker", "timeout_s": 3600.0}}, 900.0) == 1.25 * 3600 + 5


class Process:
    """A process that a `Watch` with a test's clock watches."""

    def __init__(self, run: Path | None, rank: int = 0, size: int = 1) -> None:
        self.clock, self.said, self.ended = Clock(), list[str](), list[str]()
        self.pulse = Pulse(self.clock)
        self.watch = Watch(
            SILENT_S, run, say=self.said.append, end=self.ended.append, rank=rank, size=size,
            pulse=self.pulse, clock=self.clock,
        )  # fmt: skip

    def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds / 10)):
            self.clock.now_s += 10
            self.watch.look()


@pytest.fixture(autouse=True)
def no_file_activity(monkeypatch):
    monkeypatch.setattr("agentrl.watchdog.watch._file_bytes", lambda: 0)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "hung"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('[run]\nname = "hung"\niterations = 9\n')
    return folder


def test_a_stall_is_said_written_with_stacks_and_ended(run):
    process = Process(run)
    process.pulse.beat("update")
    with process.pulse.phase("rollout"), process.pulse.call("engine"), process.pulse.call("engine"):
        process.pass_time(200)
        assert not process.said
        process.pass_time(30)
        (said,) = process.said
        assert "now: rollout; engine: 2 calls in progress, none ended yet; update: no call in progress" in said
        assert "environments" not in said and "limits.silent_seconds" in said  # a part that was never at work
        (record,) = read_stalls(run)
        assert record.state == "silent" and record.pid == os.getpid() and record.parts["engine"]["busy"] == 2
        stacks = (run / "stalls" / record.stacks).read_text()
        assert "thread MainThread" in stacks and "test_a_stall_is_said_written_with_stacks_and_ended" in stacks
        process.pass_time(200)
    assert len(process.ended) == 1 and "ended after 400 s without progress (now: rollout; engine: 2" in process.ended[0]
    assert read_stalls(run)[0].state == "over"
    (words,) = stall_words(run)
    assert words.startswith("was ended: no progress for 200 s: now: rollout") and record.stacks in words


def test_a_stall_that_ends_is_taken_back(run):
    process = Process(run)
    process.pass_time(220)
    process.pulse.beat("weights")
    process.pass_time(10)
    assert [said[:15] for said in process.said] == ["no progress for", "there is progre"]
    assert read_stalls(run)[0].state == "again" and not process.ended
    assert stall_words(run)[0].startswith("went on after a silence: no progress")


def test_the_commands_show_what_the_watchdog_wrote(run, capsys, tmp_path):
    process = Process(run)
    process.pass_time(220)
    from rich.console import Console

    shown = frame(run)
    assert len(shown.stalls) == 1
    console = Console(width=400, file=(tmp_path / "screen").open("w"))
    console.print(drawn(shown))
    console.file.close()
    assert "watchdog: no progress for 200 s" in (tmp_path / "screen").read_text()
    assert main(["watch", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stalls"] == list(shown.stalls)
    assert main(["report", str(run), "--diagnose"]) == 2  # it has no graphs, and still says this
    assert "watchdog: no progress for 200 s" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"sentence": 3}', '{"sentence": "a", "rank": "x"}', "[" * 100_000, "\x00"]
)
def test_a_damaged_record_is_left_out(run, text):
    (run / "stalls").mkdir()
    (run / "stalls" / "rank-0.json").write_text(text)
    (run / "stalls" / "rank-1.json").mkdir()
    os.mkfifo(run / "stalls" / "rank-2.json")  # whose reading would not end
    assert read_stalls(run) == [] and stall_words(run) == []


def test_secrets_and_control_characters_stay_out_of_the_record(run, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-0123456789abcdef0123456789")
    process = Process(run)
    with process.pulse.phase("sk-0123456789abcdef0123456789"):
        process.pass_time(220)
    for path in (run / "stalls").iterdir():
        assert path.suffix == ".txt" or "sk-0123456789abcdef" not in path.read_text()


def test_without_a_run_folder_the_stacks_go_to_a_temporary_file(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    process = Process(None)
    process.pass_time(220)
    (file,) = tmp_path.glob("agentrl-stalled-*.txt")
    assert str(file) in process.said[0] and "thread MainThread" in file.read_text()


def test_a_full_disk_does_not_silence_the_watchdog(run, monkeypatch):
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    monkeypatch.setattr("agentrl.watchdog.stall_record.write_atomically", full)
    process = Process(run)
    process.pass_time(420)
    assert "no progress for 200 s" in process.said[0] and process.ended


def test_a_rank_that_gives_no_sign_of_life_is_named(run):
    first, second = Process(run, 0, 2), Process(run, 1, 2)
    for _ in range(5):
        first.pulse.beat("update")
        first.pass_time(10)
        second.pass_time(10)
    with first.pulse.phase("update"):  # it waits for rank 1, whose process was stopped
        first.pass_time(220)
    assert "rank 1 (process" in first.said[0] and "gives no sign of life for" in first.said[0]
    assert not second.said


def test_a_rank_that_waits_for_rollouts_is_not_silent_and_one_whose_leader_stopped_is(run):
    leader, follower = Process(run, 0, 2), Process(run, 1, 2)
    for _ in range(200):  # 2000 s of rollouts on rank 0
        leader.pulse.beat("engine")
        leader.pass_time(10)
        follower.pass_time(10)
    assert not follower.said and not leader.said
    follower.pass_time(220)
    assert "rank 0 (process" in follower.said[0] and "gives no sign of life" in follower.said[0]
    follower.pass_time(200)
    assert follower.ended and not leader.said


def test_a_rank_writes_its_stacks_when_rank_0_is_silent(run):
    leader, follower = Process(run, 0, 2), Process(run, 1, 2)
    for _ in range(60):
        leader.pass_time(10)
        follower.pass_time(10)
    assert [record.rank for record in read_stalls(run)] == [0, 1]
    assert "rank 1" in leader.said[0] and leader.ended


def test_before_a_run_has_begun_nothing_is_written_and_no_rank_is_silent(tmp_path):
    leader, follower = Process(tmp_path / "new", 0, 2), Process(tmp_path / "new", 1, 2)
    for _ in range(100):
        leader.pulse.beat("environments")
        leader.pass_time(10)
        follower.pass_time(10)
    assert not leader.said and not follower.said and not (tmp_path / "new").exists()
    leader.pass_time(220)
    assert "rank 1 has given no sign of life yet" in leader.said[0]


def test_a_single_process_writes_no_sign_of_life(run):
    process = Process(run)
    process.pass_time(50)
    assert not (run / "stalls").exists()
    peers = Peers(run / "stalls", 0, 2)
    peers.show("plays", False)
    assert (run / "stalls" / "alive-0.json").is_file()
    peers.close()
    assert not list((run / "stalls").iterdir())


def test_the_places_of_waiting_tasks_are_in_the_stacks():
    async def innermost(wait: asyncio.Event) -> None:
        await wait.wait()

    async def outer() -> str:
        wait = asyncio.Event()
        task = asyncio.ensure_future(innermost(wait))
        await asyncio.sleep(0)
        text = await asyncio.to_thread(own_stacks)
        wait.set()
        await task
        return text

    text = asyncio.run(outer())
    assert "await wait.wait()" in text and "waiting tasks of event loops: 1" in text


def beats(pulse: Pulse, part: str) -> int:
    return next(one.beats for one in pulse.standing() if one.part == part)


@pytest.mark.parametrize("pool", [InlinePool, ThreadPool])
def test_calls_of_environments_are_progress(pool):
    made = pool(lambda: walk.make(walk.Config()))

    async def play() -> None:
        handle = made.acquire()
        await handle.reset(Task(key="walk/0", env="walk", seed=0))
        await handle.step("right")
        made.release(handle, broken=False)

    before = beats(PULSE, "environments")
    asyncio.run(play())
    made.close()
    assert beats(PULSE, "environments") == before + 2
    assert all(one.busy == 0 for one in PULSE.standing())


def test_a_call_that_fails_is_progress_too():
    pulse = Pulse()
    with pytest.raises(EnvFault), pulse.call("environments"):
        raise EnvFault("lost")
    (state,) = [one for one in pulse.standing() if one.part == "environments"]
    assert (state.beats, state.busy) == (1, 0)


def test_the_silence_of_parts_is_that_of_the_last_one_that_made_progress():
    clock = Clock()
    pulse = Pulse(clock)
    assert pulse.silence_s("engine", "scores") == float("inf")
    pulse.beat("engine")
    clock.now_s = 5.0
    assert pulse.silence_s("engine", "scores") == 5.0 and pulse.silence_s("scores") == float("inf")
    pulse.beat("scores")
    assert pulse.silence_s("engine", "scores") == 0.0 and pulse.silence_s("engine") == 5.0


def test_counts_from_many_threads_are_exact():
    pulse = Pulse()

    def work() -> None:
        for _ in range(200):
            with pulse.phase("rollout"), pulse.call("engine"):
                pulse.beat("update")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert beats(pulse, "engine") == beats(pulse, "update") == 800 and pulse.phases == [] and not pulse.busy
    assert pulse.total == 800 + 800 + 2 * 800


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EngineLost("the vLLM server at http://x gave no usable answer"), STALLED),
        (ConnectionRefusedError(111, "Connection refused"), 2),
        (ConnectionError("Could not find any running Ray instance at the specified address"), 2),
    ],
)
def test_only_a_lost_engine_asks_for_another_start(error, code, monkeypatch, tmp_path, capsys):
    def lost(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("agentrl.train.train", lost)
    assert main(["train", "tests/toys/corridor.toml", f"run.folder={tmp_path}"]) == code
    said = capsys.readouterr().err
    assert said.startswith("agentrl: ") and said.count("\n") == 1


def test_infinity_turns_the_watchdog_off():
    assert Limits(silent_seconds=float("inf")).silent_seconds == float("inf")
    from agentrl.watchdog import watching

    before = threading.active_count()
    with watching({}, float("inf"), None, say=print, end=print):
        assert threading.active_count() == before


def test_folders_of_killed_processes_are_removed_and_those_of_living_ones_stay(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    for name in (f"agentrl-stacks-{ended.pid}-abc", f"agentrl-stacks-{os.getppid()}-abc", "agentrl-stacks-x-abc"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.txt").touch()
    watch = Watch(1e9, None, say=print, end=print)
    watch.start()
    watch.close()
    assert {path.name for path in tmp_path.iterdir()} == {f"agentrl-stacks-{os.getppid()}-abc", "agentrl-stacks-x-abc"}
