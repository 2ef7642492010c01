"""A run on a local Ray cluster that is stopped or killed leaves none of its processes behind."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
import tomli_w

from agentrl.config import merge
from tests.cli.test_stop import Program, is_one_sentence
from tests.run.test_overlap import TABLES

LONG = {"run": {"name": "toy", "iterations": 500, "checkpoint_every": 1}, "batch": {"tasks": 4, "copies": 3}}
SHAPES = {
    "workers": {"cluster": {"address": "local", "workers": 2}},
    "engines and learners": {"cluster": {"address": "local", "workers": 1, "engines": 1}, "learner": {"processes": 2}},
}
MARK = "AGENTRL_TEST_MARK"  # a variable that all processes of a run inherit
END_S = 240.0  # two agents of Ray itself end only a minute or two after the rest of a cluster was killed


def marked(mark: str) -> dict[int, str]:
    """The living processes with this mark: their ids and command lines."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            if f"{MARK}={mark}".encode() in variables:
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:120]
        except OSError:  # it has just ended, or belongs to another user
            continue
    found.pop(os.getpid(), None)
    return found


def left_over(mark: str) -> dict[int, str]:
    """The processes that are still there when END_S seconds have passed."""
    end = time.monotonic() + END_S
    while (found := marked(mark)) and time.monotonic() < end:
        time.sleep(0.2)
    return found


@pytest.fixture(params=SHAPES)
def program(request, tmp_path, monkeypatch):
    """`agentrl train` with a cluster of its own, after its first checkpoint; and the mark of its processes."""
    pytest.importorskip("ray")
    tables = merge(merge(TABLES, LONG), {"run": {"folder": str(tmp_path / "runs")}, **SHAPES[request.param]})
    (tmp_path / "toy.toml").write_text(tomli_w.dumps(tables))
    mark = str(tmp_path)
    monkeypatch.setenv(MARK, mark)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    started = Program(tmp_path, "train", "toy.toml")
    monkeypatch.delenv(MARK)
    try:
        started.wait_for(tmp_path / "runs/toy/checkpoints/000002", most_s=300.0)
        assert started.process.poll() is None, started.process.communicate()[1]
        yield started, mark
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.ray
@pytest.mark.timeout(1800)
def test_ctrl_c_stores_a_checkpoint_and_ends_the_processes_of_the_cluster(program, tmp_path):
    started, mark = program
    names = " ".join(marked(mark).values())
    assert "raylet" in names and len(marked(mark)) > 4  # the test would else see nothing
    said = started.stop(signal.SIGINT, gap_s=0.0)
    assert is_one_sentence(said, started.process.returncode, signal.SIGINT), said
    assert "--resume" in said
    assert left_over(mark) == {}


@pytest.mark.ray
@pytest.mark.timeout(1800)
def test_a_killed_run_leaves_no_process_of_its_cluster(program):
    started, mark = program
    os.kill(started.process.pid, signal.SIGKILL)  # no handler runs
    assert left_over(mark) == {}
