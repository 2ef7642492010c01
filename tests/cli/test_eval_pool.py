"""Where `agentrl eval` runs environments, and what it says while it does."""

import os
import time

import numpy as np
import pytest

from agentrl.cli import main
from agentrl.rollout import EpisodeRecord
from agentrl.rollout.records import StepRecord
from agentrl.run import EpisodeCounts, progress
from agentrl.types import Generation, Observation, Status, Task

WALK = "tests.toys.walk"
WHO = """
import os
from pathlib import Path
from agentrl.tool_env import environment

class Who:
    def reset(self, id: int) -> str:
        (Path(__file__).parent / f"{os.getpid()}.pid").touch()
        return "who"
    def look(self) -> str:
        return "nobody"
    def reward(self, answer: str) -> float:
        return 1.0
    def _actions(self) -> list[str]:
        return ["look()", "done"]

Config, make, tasks, prompt = environment(Who, rows=[{"id": i} for i in range(4)])
"""


@pytest.mark.parametrize("how", ["words", "recipe"])
def test_processes_on_demand(how, tmp_path, capsys):
    path = tmp_path / f"who_{how}.py"
    path.write_text(WHO)
    (tmp_path / "eval.toml").write_text("[pool]\nkind = 'processes'\nworkers = 2\n")
    words = {"words": ["pool.kind=processes", "pool.workers=2"], "recipe": ["--recipe", str(tmp_path / "eval.toml")]}
    assert main(["eval", str(path), "--policy", "random", "split=all", *words[how]]) == 0
    pids = {int(path.stem) for path in tmp_path.glob("*.pid")}
    assert len(pids) == 2 and os.getpid() not in pids


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("pool.knd=inline", "unknown key pool.knd: did you mean kind"),
        ("pool.kind=threds", "pool.kind"),
        ("pool.workers=-1", "pool.workers"),
    ],
)
def test_a_wrong_option_is_one_sentence(word, sentence, capsys):
    assert main(["eval", WALK, "--policy", "random", word]) == 2
    assert sentence in capsys.readouterr().err


def record(reward: float, ending: Status = Status.DONE) -> EpisodeRecord:
    step = StepRecord(
        observation=Observation(text="o"), added=np.zeros(0, np.int64), continues=False,
        generation=Generation(text="a"), action="a", valid=True, status=Status.OK, reward=reward,
    )  # fmt: skip
    return EpisodeRecord(task=Task(key="t", env="e", seed=0), group=0, copy=0, steps=[step], ending=ending)


def test_the_running_line_says_how_far_and_how_well():
    tally = EpisodeCounts(4)
    assert str(tally) == ""
    for reward, ending in ((1.0, Status.DONE), (0.0, Status.TURN_LIMIT), (0.0, Status.ENV_ERROR)):
        tally.add(record(reward, ending))
    assert str(tally) == "2/4 episodes, success 0.50"  # what the environment spoiled does not count
    tally.add(record(-7.0))
    assert str(tally) == "3/4 episodes, success 0.33, return -2"


def test_a_log_without_bars_gets_a_line_before_it_is_silent_for_long(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SILENT_S", 0.2)
    with progress.Progress() as shown:
        bar = shown.bar("cloning", 40, 2)
        bar.step("loss 0.5")
        said, until = "", time.monotonic() + 90
        while not said and time.monotonic() < until:
            time.sleep(0.05)
            said += capsys.readouterr().err
        assert set(said.splitlines()) == {"cloning: 3 of 40, loss 0.5 (for 0 min)"}
        bar.close()
        time.sleep(0.3)
        capsys.readouterr()
        time.sleep(0.5)
        assert capsys.readouterr().err == ""  # nothing is done, so nothing is said
    with progress.Progress(quiet=True) as shown:
        shown.bar("cloning", 40)
        time.sleep(0.5)
    assert capsys.readouterr().err == ""


def test_check_says_that_branches_replay(tmp_path, capsys):
    (tmp_path / "who_checked.py").write_text(WHO)
    assert main(["check", str(tmp_path / "who_checked.py"), "--tasks", "1"]) == 0
    assert (
        "all holds on 1 of 4 tasks; it has no snapshots, so branches carry out its actions again"
        in capsys.readouterr().out
    )
    assert main(["check", WALK, "--tasks", "1"]) == 0
    assert capsys.readouterr().out == f"{WALK}: all holds on 1 of 4 tasks\n"
