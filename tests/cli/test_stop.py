"""Ctrl-C and SIGTERM: one sentence, never a traceback, wherever the signal lands."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentrl.cli import main
from tests.toys.runs import ALFWORLD, recipe

ENVIRONMENT = '''
"""A corridor whose instances keep a SQLite connection and close slowly."""

import pathlib
import sqlite3
import time

from pydantic import BaseModel

from agentrl.env import Move, Observation, StepResult, Task


class Config(BaseModel, frozen=True, extra="forbid"):
    step_s: float = 0.002
    close_s: float = 0.0
    mark: str = ""


class Corridor:
    def __init__(self, config):
        self.config = config
        self.rows = sqlite3.connect(":memory:")
        self.rows.execute("create table places (place int)")

    def reset(self, task):
        self.place = 0
        self.rows.execute("delete from places")
        return self.observe()

    def observe(self):
        return Observation(text=f"You are at {self.place}.", actions=("left", "right"))

    def step(self, action):
        time.sleep(self.config.step_s)
        self.place += 1 if action == "right" else -1
        self.rows.execute("insert into places values (?)", (self.place,))
        self.rows.commit()
        won = self.place == 3
        return StepResult(self.observe(), float(won), won, False, {"success": won})

    def close(self):
        if self.config.mark:
            pathlib.Path(self.config.mark).touch()
        time.sleep(self.config.close_s)
        self.rows.close()

    def __del__(self):
        self.rows.close()


def make(config):
    return Corridor(config)


def tasks(config):
    return [Task(key=f"corridor/{i}", env="corridor", seed=i) for i in range(400)]
'''


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "corridor.py").write_text(ENVIRONMENT)
    long = {"iterations": 500}
    (tmp_path / "tiny.toml").write_text(
        recipe(ALFWORLD, run=long, eval={"tasks": 6}, warmup={"updates": 2}, credit={"name": "grpo"})
    )
    return tmp_path


def listen_to_ctrl_c() -> None:
    """A shell's background jobs ignore Ctrl-C, and so would their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.setsid()


class Program:
    """`agentrl WORDS` in a process group of its own, as a terminal starts it."""

    def __init__(self, place: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agentrl", *words], cwd=place, text=True, preexec_fn=listen_to_ctrl_c,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def wait_to_begin(self, then_s: float) -> None:
        """Wait until the program handles SIGTERM, so that its verb has begun, and `then_s` seconds more."""
        status = Path(f"/proc/{self.process.pid}/status")
        end = time.monotonic() + 300
        while time.monotonic() < end:
            (caught,) = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigCgt")]
            if int(caught, 16) >> (signal.SIGTERM - 1) & 1:
                break
            time.sleep(0.01)
        time.sleep(then_s)
        assert self.process.poll() is None, self.process.communicate()[1]

    def wait_for(self, path: Path, most_s: float = 300.0) -> None:
        end = time.monotonic() + most_s
        while self.process.poll() is None and time.monotonic() < end and not list(path.parent.glob(path.name)):
            time.sleep(0.01)

    def stop(self, *signals: int, gap_s: float = 0.05) -> str:
        """Send the signals to the whole group, as a terminal does; what the program then said."""
        for number in signals:
            os.killpg(self.process.pid, number)
            time.sleep(gap_s)
        _, said = self.process.communicate(timeout=600)
        return said


def is_one_sentence(said: str, code: int, *signals: int) -> bool:
    stopped = [line for line in said.splitlines() if line.startswith("agentrl: stopped")]
    words = ("Traceback", "Exception", "Error")
    return len(stopped) == 1 and not any(w in said for w in words) and code in {128 + number for number in signals}


def test_a_stop_in_a_users_close_and_a_second_one_leave_one_sentence(place):
    mark = place / "closing"
    words = ("eval", "corridor", "--policy", "random", "--tasks", "2", "close_s=20.0", f"mark={mark}")
    program = Program(place, *words)
    program.wait_for(mark)
    said = program.stop(signal.SIGINT, signal.SIGINT, signal.SIGTERM)
    assert is_one_sentence(said, program.process.returncode, signal.SIGINT), said


def test_a_signal_while_the_program_closes_does_not_end_it_before_its_time(monkeypatch, capsys):
    from agentrl.cli import _stop

    monkeypatch.setattr(_stop, "_State", type("State", (_stop._State,), {}))
    ended: list[int] = []
    monkeypatch.setattr(_stop.os, "_exit", ended.append)
    monkeypatch.setattr(_stop.logging.getLogger("asyncio"), "disabled", False)
    _stop.on_stop(lambda: "; continue with: agentrl train x --resume")
    with pytest.raises(KeyboardInterrupt):
        _stop._stop(signal.SIGTERM, None)
    _stop._stop(signal.SIGTERM, None)  # again, while it closes
    assert not ended and _stop.requested()
    assert _stop.logging.getLogger("asyncio").disabled  # it would report every task that the interrupt ends
    monkeypatch.setattr(_stop, "PATIENCE_S", -1.0)
    _stop._stop(signal.SIGINT, None)
    assert ended == [130]
    assert capsys.readouterr().err == "agentrl: stopped; continue with: agentrl train x --resume\n"


IN_A_DESTRUCTOR = """
import os, signal, sys, time
from agentrl.cli import _stop

class Last:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

signal.signal(signal.SIGINT, signal.default_int_handler)
_stop.listen()
try:
    Last()
    time.sleep(30)
    print("it went on")
except KeyboardInterrupt as error:
    sys.exit(_stop.finish(error))
"""


def test_a_signal_in_a_destructor_is_not_lost():
    """Python cannot raise there: it prints an exception that is ignored, and goes on."""
    done = subprocess.run([sys.executable, "-c", IN_A_DESTRUCTOR], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, "", "agentrl: stopped\n")


def test_a_stopped_run_says_how_to_go_on_if_it_has_stored_something(place, capsys, monkeypatch):
    def interrupted(settings, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("agentrl.train.train", interrupted)
    words = ["train", str(place / "tiny.toml"), f"run.folder={place}"]
    assert main(words) == 130
    assert capsys.readouterr().err == "agentrl: stopped; nothing was stored yet\n"
    (place / "tiny").mkdir()
    (place / "tiny" / "config.toml").touch()
    assert main([*words, "--resume"]) == 130
    end = f"; continue with: agentrl {' '.join(words)} --resume\n"
    assert capsys.readouterr().err == f"agentrl: stopped; no checkpoint was stored yet, so the run begins again{end}"
    for name, where in (("clone-000002", "the warm-up goes on from update 2"), ("000010", "the run goes on")):
        (place / "tiny" / "checkpoints" / name).mkdir(parents=True)
        assert main([*words, "--resume"]) == 130
        said = capsys.readouterr().err
        assert said.startswith(f"agentrl: stopped; {where}") and said.endswith(end)
    assert f"the run goes on from iteration 10{end}" in said


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("wait_s", [0.0, 0.3, 1.0, 2.0, 4.0, 6.0, 9.0, 13.0, 18.0])
def test_train_stops_at_any_moment_and_goes_on(place, number, wait_s):
    program = Program(place, "train", "tiny.toml", "pool.kind=processes", "pool.workers=2")
    program.wait_to_begin(wait_s)
    said = program.stop(number, number)
    assert is_one_sentence(said, program.process.returncode, number), said
    there = (place / "runs" / "tiny" / "config.toml").exists()
    assert there == ("--resume" in said), said
    again = Program(
        place, "train", "tiny.toml", "pool.kind=processes", "pool.workers=2", "run.iterations=1", "--resume"
    )
    _, words = again.process.communicate(timeout=600)
    assert again.process.returncode == 0, words


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["corridor", "alfworld"])
@pytest.mark.parametrize("wait_s", [0.0, 0.5, 1.5, 3.0, 6.0])
def test_eval_stops_at_any_moment(place, kind, wait_s):
    options = ("step_s=0.05",) if kind == "corridor" else ()
    program = Program(place, "eval", kind, "--policy", "random", "--tasks", "5000", *options)
    program.wait_to_begin(wait_s)
    said = program.stop(signal.SIGINT, signal.SIGINT, gap_s=0.3)
    assert is_one_sentence(said, program.process.returncode, signal.SIGINT), said


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("play", "corridor"),
        ("check", "corridor", "--tasks", "400", "step_s=0.05"),
        ("serve", "retriever", "--corpus", "corpus.jsonl", "--port", "0"),
        ("serve", "mcp", "calculator"),
        ("serve", "mcp", "calculator", "--http", "127.0.0.1:18431"),
    ],
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("wait_s", [0.1, 5.0])
def test_other_verbs_stop(place, words, number, wait_s):
    (place / "corpus.jsonl").write_text("".join(json.dumps({"id": i, "contents": f"a {i}"}) + "\n" for i in range(99)))
    program = Program(place, *words)
    program.wait_to_begin(wait_s)
    said = program.stop(number)
    assert "Traceback" not in said and "stopped" in said and program.process.returncode in (0, 128 + number), said
