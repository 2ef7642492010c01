"""The folder of a run: never another run's, rewound to its checkpoint, whole or not at all."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from agentrl.run import Metrics, Now, Run, RunFolder, read_metrics
from agentrl.run.checkpoint import RunState
from agentrl.run.health import Health
from agentrl.run.metrics import check_lines, rewind

CONFIG = {"run": {"seed": 0, "iterations": 10}, "credit": {"name": "gigpo", "gamma": 0.95}}


def changed(section: str, key: str, value: object) -> dict:
    return {**CONFIG, section: {**CONFIG[section], key: value}}


@pytest.fixture
def folder(tmp_path):
    made = RunFolder(tmp_path / "run")
    made.open(CONFIG, resume=False)
    return made


def test_a_new_run_writes_its_configuration_and_versions(folder):
    assert sorted(p.name for p in folder.path.iterdir()) == [".lock", "config.toml", "versions.json"]


def test_a_folder_that_holds_a_run_is_refused(folder):
    before = (folder.path / "config.toml").read_bytes()
    with pytest.raises(ValueError, match="already holds a run: add --resume"):
        folder.open(changed("run", "seed", 1), resume=False)
    assert (folder.path / "config.toml").read_bytes() == before


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("words")
    with pytest.raises(ValueError, match="is not empty and holds no run"):
        RunFolder(tmp_path).open(CONFIG, resume=False)
    with pytest.raises(ValueError, match="is not empty and holds no run"):
        RunFolder(tmp_path).open(CONFIG, resume=True)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_resuming_takes_the_same_configuration_but_for_what_may_differ(folder):
    folder.open(CONFIG, resume=True)
    folder.open(changed("run", "iterations", 20), resume=True)
    folder.open({**CONFIG, "update": {"max_tokens": 4096}}, resume=True)
    with pytest.raises(ValueError, match=r"another configuration \(other values of credit.gamma"):
        folder.open(changed("credit", "gamma", 0.9), resume=True)
    with pytest.raises(ValueError, match=r"another configuration \(other values of credit.lam"):
        folder.open(changed("credit", "lam", 1.0), resume=True)


def test_a_run_of_a_version_with_fewer_options_goes_on_at_their_defaults(folder):
    newer = RunFolder(folder.path, complete=lambda stored: {**stored, "credit": {"lam": 1.0, **stored["credit"]}})
    with pytest.raises(ValueError, match=r"another configuration \(other values of credit.lam"):
        newer.open(changed("credit", "lam", 0.5), resume=True)
    folder.release()
    newer.open(changed("credit", "lam", 1.0), resume=True)


def test_resuming_what_never_began_begins(tmp_path):
    RunFolder(tmp_path / "new").open(CONFIG, resume=True)
    assert (tmp_path / "new" / "config.toml").exists()


def test_checkpoints_appear_whole_and_the_oldest_go(folder):
    with pytest.raises(ValueError, match="has no checkpoint yet"):
        folder.latest()
    for name in ("clone-000005", "clone-000010", "000000", "000010"):
        part = folder.begin_checkpoint()
        (part / "state").write_text(name)
        folder.finish_checkpoint(part, name, keep=2)
        assert (folder.latest() / "state").read_text() == name
    assert [p.name for p in folder.checkpoints()] == ["000000", "000010"]


def test_a_checkpoint_cut_off_is_none(folder):
    part = folder.begin_checkpoint()
    (part / "half").write_text("x")
    assert folder.checkpoints() == []
    assert list(folder.begin_checkpoint().iterdir()) == []  # remnants are gone


def test_a_checkpoint_may_be_written_again(folder):
    for word in ("old", "new"):
        part = folder.begin_checkpoint()
        (part / "state").write_text(word)
        folder.finish_checkpoint(part, "000003", keep=1)
    assert (folder.latest() / "state").read_text() == "new" and len(folder.checkpoints()) == 1


def test_a_checkpoint_set_aside_comes_back_if_its_successor_never_arrived(folder):
    part = folder.begin_checkpoint()
    (part / "state").write_text("old")
    folder.finish_checkpoint(part, "000003", keep=1)
    folder.latest().rename(part.with_name(".before-000003"))  # as after a kill between the two renames
    assert (folder.latest() / "state").read_text() == "old"


def test_lines_after_the_checkpoint_are_forgotten(folder):
    log = Metrics(folder)
    for step in range(3):
        log.log("train", step, {"loss": 1 / 3 + step})
        log.time("train", step, {"rollout_s": 0.1})
    at, timing_at = log.lines - 1, log.timing_lines - 2
    rewind(folder, at, timing_at)
    again = Metrics(folder)
    assert (again.lines, again.timing_lines) == (2, 1)
    again.log("train", 2, {"loss": 5.0})
    assert [row["loss"] for row in read_metrics(folder.metrics).rows] == [0.333333333, 1.33333333, 5.0]


def test_a_line_cut_short_by_a_crash_is_rewound_too(folder):
    log = Metrics(folder)
    log.log("train", 0, {"loss": 1.0})
    with folder.metrics.open("a") as file:
        file.write('{"stage": "tra')
    rewind(folder, 1, 0)
    Metrics(folder).log("train", 1, {"loss": 2.0})
    assert [row["loss"] for row in read_metrics(folder.metrics).rows] == [1.0, 2.0]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_one_sentence(folder):
    log = Metrics(folder)
    folder.metrics.symlink_to("/dev/full")
    with pytest.raises(ValueError, match=r"cannot write .*metrics\.jsonl: No space left on device"):
        log.log("train", 0, {"loss": 1.0})


def test_metrics_repeat_byte_for_byte(tmp_path):
    logs = []
    for name in ("a", "b"):
        folder = RunFolder(tmp_path / name)
        folder.open(CONFIG, resume=False)
        Metrics(folder).log("train", 0, {"loss": 0.1 + 0.2, "n": 3, "word": "x"})
        logs.append(folder.metrics.read_bytes())
    assert logs[0] == logs[1] == b'{"stage": "train", "step": 0, "loss": 0.3, "n": 3, "word": "x"}\n'


def test_two_processes_never_write_one_run(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.open(CONFIG, resume=False)
    code = (
        "import sys; from pathlib import Path; from agentrl.run import RunFolder\n"
        f"RunFolder(Path(sys.argv[1])).open({CONFIG!r}, resume=True)"
    )
    command = [sys.executable, "-c", code, str(folder.path)]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode and "held by another process" in refused.stderr
    assert (folder.path / "config.toml").exists()  # the second one took nothing away
    folder.release()
    assert subprocess.run(command).returncode == 0
    folder.open(CONFIG, resume=True)  # what a process held is free when it has ended
    folder.release()


def test_the_folder_knows_whether_the_process_before_was_killed(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.open(CONFIG, resume=False)
    folder.release()
    code = (
        "import os, sys; from pathlib import Path; from agentrl.run import RunFolder\n"
        f"RunFolder(Path(sys.argv[1])).open({CONFIG!r}, resume=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(folder.path)]) as process:
        pass
    assert process.returncode == -9
    for killed in (process.pid, 0):
        folder.open(CONFIG, resume=True)
        assert folder.killed == killed
        folder.release()


def logged(folder, count):
    log = Metrics(folder)
    for step in range(count):
        log.log("train", step, {"loss": 1.0})
        log.time("train", step, {"rollout_s": 0.1})
    part = folder.begin_checkpoint()
    folder.finish_checkpoint(part, "000003", keep=2)
    return folder.metrics.read_bytes()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-5],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-10] + bytes(10),
        lambda data: data.replace(b'"step": 1', b'"step": "1', 1),
        lambda data: b"[1]\n" + data,
        lambda data: b"",
        lambda data: None,
    ],
)
def test_metrics_damaged_before_the_checkpoint_are_refused(folder, damage):
    data = damage(logged(folder, 3))
    folder.metrics.unlink() if data is None else folder.metrics.write_bytes(data)
    with pytest.raises(ValueError, match=r"metrics.jsonl is (damaged in line \d|missing), and the checkpoint 000003"):
        check_lines(folder, 3)


def test_what_follows_the_lines_of_the_checkpoint_may_be_damaged(folder):
    data = logged(folder, 3)
    with folder.metrics.open("ab") as file:
        file.write(bytes(100))
    check_lines(folder, 3)
    rewind(folder, 3, 3)
    assert folder.metrics.read_bytes() == data


def test_remnants_of_killed_writers_are_removed_when_the_run_is_opened(folder):
    folder.release()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    names = [f".000000.safetensors.{number}.part" for number in (ended.pid, os.getpid(), 10**30, process.pid)]
    for place in ("graphs", "evaluations", "."):
        (folder.path / place).mkdir(exist_ok=True)
        for name in [*names, "000000.safetensors", ".x.part"]:
            (folder.path / place / name).touch()
    folder.open(CONFIG, resume=True)
    left = {path.name for path in (folder.path / "graphs").iterdir()}
    assert left == {names[3], "000000.safetensors", ".x.part"}  # of a living writer, and what no writer left
    assert not (folder.path / "evaluations" / names[0]).exists() and not (folder.path / names[0]).exists()
    process.communicate(b"\n")


def test_a_checkpoint_and_the_metrics_that_it_counts_are_on_the_disk_before_it_has_its_name(folder, monkeypatch):
    events: list[str] = []
    sync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        events.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), folder.path))
        sync(descriptor)

    def renamed(source: object, target: object) -> None:
        events.append(f"{os.path.relpath(source, folder.path)} -> {os.path.relpath(target, folder.path)}")
        replace(source, target)

    metrics = Metrics(folder)
    metrics.log("train", 0, {"loss": 1.0})
    metrics.time("train", 0, {"s": 1.0})
    stateless = SimpleNamespace(state_dict=dict, save=lambda part: None)
    run = Run(
        now=Now(folder.path / "now.json"),
        settings=SimpleNamespace(tables=SimpleNamespace(run=SimpleNamespace(keep=2))),
        folder=folder,
        state=RunState(stage="train", step=1),
        metrics=metrics,
        health=Health(),
        decisions=stateless,
        progress=SimpleNamespace(),
        rollouts=stateless,
        policies=stateless,
        teacher=None,
    )
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    run.save()
    named = events.index("checkpoints/.part -> checkpoints/000001")
    part = [f"checkpoints/.part/{name}" for name in ("progress.json", "state.pt")]
    assert {*part, "checkpoints/.part", "metrics.jsonl", "timings.jsonl", "."} <= set(events[:named])
    assert events[named + 1 :] == ["checkpoints"]
