"""Whole runs on generated ALFWorld games with a tiny model: bytes repeat, a killed run goes on, mistakes are told."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentrl import train as training
from agentrl.cli import main
from agentrl.graph import read_graph
from tests.toys.runs import ALFWORLD, recipe

SLOW = pytest.mark.slow  # ten CPU seconds each; one of each kind stays in `make test`
RECIPE = recipe(
    ALFWORLD,
    run={"iterations": 3},
    env={"count": 24},  # a new model's vocabulary is of 200 tasks otherwise
    eval={"tasks": 6},
    warmup={"updates": 3, "episodes": 6},
    batch={"tasks": 3, "copies": 2},
    credit={"name": "gigpo"},
)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    return path


def run(recipe: Path, name: str, *more: str) -> Path:
    folder = recipe.parent / "runs"
    assert main(["train", str(recipe), f"run.name={name}", f"run.folder={folder}", *more]) == 0
    return folder / name


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bool]]:
    """The folder of an uninterrupted run; and for each update, whether the engine held keys and values in it."""
    held, real = list[bool](), training.learn

    def learn(run, played):
        held.extend(bool(engine._runner.store.kv) for engine in run.rollouts.inference.engines.values())
        return real(run, played)

    path = tmp_path_factory.mktemp("whole") / "tiny.toml"
    path.write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "learn", learn)
        return run(path, "whole"), held


@pytest.fixture(scope="module")
def whole(watched) -> Path:
    """The folder of an uninterrupted run, which no test changes."""
    return watched[0]


@pytest.fixture
def copied(whole: Path, recipe: Path) -> Path:
    """A copy of it, also called `whole`, in the folder `runs` beside the recipe of the test."""
    copy = Path(shutil.copytree(whole, recipe.parent / "runs" / "whole"))
    config = copy / "config.toml"
    config.write_text(config.read_text().replace(str(whole.parent), str(copy.parent)))
    return copy


def same(a: Path, b: Path) -> None:
    """Metrics, graphs and final weights are equal byte for byte."""
    assert (a / "metrics.jsonl").read_bytes() == (b / "metrics.jsonl").read_bytes()
    graphs = sorted(p.name for p in (a / "graphs").iterdir())
    assert graphs == sorted(p.name for p in (b / "graphs").iterdir()) == [f"{i:06d}.safetensors" for i in range(3)]
    for name in graphs:
        assert (a / "graphs" / name).read_bytes() == (b / "graphs" / name).read_bytes()
    weights = "checkpoints/000003/policy/model.safetensors"
    assert (a / weights).read_bytes() == (b / weights).read_bytes()


@SLOW
def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(recipe, whole):
    again, other = run(recipe, "b"), run(recipe, "c", "run.seed=1")
    same(whole, again)
    assert (whole / "metrics.jsonl").read_bytes() != (other / "metrics.jsonl").read_bytes()


def test_an_update_can_have_the_memory_of_the_keys_and_values(watched):
    assert watched[1] == [False] * 3


def test_a_run_stores_what_it_promises(whole):
    rows = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [r["name"] for r in rows if r["stage"] == "eval"] == ["start"] * 2 + ["clone"] * 2 + ["end"] * 2
    assert [r["step"] for r in rows if r["stage"] == "train"] == [0, 1, 2]
    graph = read_graph(whole / "graphs" / "000000.safetensors")
    assert len(set(graph.rollout.tolist())) == 6
    assert graph.tokens is not None and graph.tokens.sampled.any() and graph.has("advantage")
    for name in ("config.toml", "versions.json", "timings.jsonl", "evaluations/end-greedy.json"):
        assert (whole / name).stat().st_size > 0


@pytest.mark.parametrize("line", [pytest.param(1, marks=SLOW), 4, pytest.param(8, marks=SLOW)])
def test_a_run_killed_at_any_line_and_resumed_equals_an_uninterrupted_one(recipe, whole, line, capsys):
    folder = recipe.parent / "runs"
    command = [sys.executable, "-m", "agentrl", "train", str(recipe), "run.name=cut", f"run.folder={folder}"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    metrics = folder / "cut" / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.read_bytes().count(b"\n") >= line):
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL
    same(whole, run(recipe, "cut", "--resume"))
    assert f"note: process {process.pid}, which trained this run before, was killed" in capsys.readouterr().err


def listen_to_ctrl_c() -> None:
    """A shell's background jobs ignore Ctrl-C, and so would their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow  # tests/cli/test_stop.py has ordinary tests of Ctrl-C
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_leave_a_run_that_goes_on(recipe, whole, number, code):
    folder = recipe.parent / "runs"
    command = [sys.executable, "-m", "agentrl", "train", str(recipe), "run.name=cut", f"run.folder={folder}"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, preexec_fn=listen_to_ctrl_c
    )
    metrics = folder / "cut" / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.read_bytes().count(b"\n") >= 4):
        time.sleep(0.005)
    process.send_signal(number)
    _, said = process.communicate()
    assert process.returncode == code
    last = said.strip().splitlines()[-1]
    assert last.startswith("agentrl: stopped; ") and "; continue with: agentrl train" in last
    same(whole, run(recipe, "cut", "--resume"))


def complaint(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Exit code 2, one line on standard error beside notes and what began, nothing on standard output."""
    assert main([str(word) for word in words]) == 2
    out, err = capsys.readouterr()
    (said,) = [line for line in err.splitlines() if not line.startswith(("note: ", "preparing: ", "start: playing "))]
    assert out == ""
    return said


def test_a_folder_that_holds_another_run_is_refused_and_left_alone(recipe, copied, capsys):
    folder = copied
    before = (folder / "config.toml").read_bytes()
    runs = f"run.folder={folder.parent}"
    assert "already holds a run" in complaint(capsys, "train", recipe, "run.name=whole", runs)
    other = complaint(capsys, "train", recipe, "run.name=whole", runs, "--resume", "credit.gamma=0.5")
    assert "another configuration (other values of credit.gamma" in other
    assert (folder / "config.toml").read_bytes() == before


def test_mistakes_get_one_sentence_and_leave_nothing_behind(recipe, capsys):
    folder = recipe.parent / "none"
    where = f"run.folder={folder}"
    assert "did you mean gamma?" in complaint(capsys, "train", recipe, where, "credit.gama=0.9")
    assert "did you mean alfworld or alfworld-gen?" in complaint(capsys, "train", recipe, where, "env.name=alfwrld")
    for name in ("../x", "/tmp/x", "", "a/b", ".."):
        assert "the name of one folder" in complaint(capsys, "train", recipe, where, f"run.name='{name}'")
    greedy = complaint(capsys, "train", recipe, where, "sampling.temperature=0")
    assert "nothing to learn from" in greedy and "run.iterations=0" in greedy
    assert "split 'test'" in complaint(capsys, "train", recipe, where, "env.split=test")
    assert "are training tasks too" in complaint(capsys, "train", recipe, where, "eval.env.split=train")
    missing = complaint(capsys, "train", recipe, where, "model={path='/no/such/folder'}")
    assert "/no/such/folder does not exist" in missing
    assert "did you mean train?" in complaint(capsys, "trian", recipe)
    assert "no such file" in complaint(capsys, "train", recipe.parent / "nope.toml")
    assert not folder.exists()


def test_a_prompt_longer_than_the_context_is_told_before_anything_is_trained(recipe, capsys):
    words = ("train", recipe, f"run.folder={recipe.parent}/runs", "engine.max_context=16")
    assert "the first prompt of task alfworld-gen/" in complaint(capsys, *words)
    assert not (recipe.parent / "runs" / "tiny").exists()  # and the name is free again


@pytest.mark.parametrize(
    ("expert", "sentence"),
    [
        ("wandr", "no expert of alfworld: did you mean wander?"),
        ("expert-noisy:abc", "write expert-noisy:0.3, with a probability from 0 to 1"),
    ],
)
def test_a_mistyped_demonstrator_is_told_before_anything_is_played(expert, sentence, recipe, whole, capsys):
    model = whole / "checkpoints" / "000003" / "policy"
    path = recipe.parent / "path.toml"
    path.write_text(re.sub(r"\[model.new\][^[]*", f'[model]\npath = "{model}"\n', RECIPE))
    capsys.readouterr()
    said = complaint(capsys, "train", path, f"run.folder={recipe.parent}/runs", f"warmup.expert={expert}")
    assert sentence in said
    assert not (recipe.parent / "runs" / "path").exists()


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("batch.copies=1000000000", "batch.copies = 1000000000"),
        ("batch.copies=1000000", "3000000 rollouts per iteration"),
        ("eval.tasks=1e12", "eval.tasks = 1000000000000.0"),
        ("warmup.episodes=1e12", "warmup.episodes"),
        ("run.seed=99999999999999999999999", "run.seed"),
        ("limits.turns=-1", "limits.turns = -1"),
        ("model.new.layers=1000000000", "model.new.layers"),
        ("optim.lr=nan", "optim.lr = nan"),
    ],
)
def test_absurd_numbers_are_told_before_they_fill_the_memory(override, sentence, recipe, capsys):
    assert sentence in complaint(capsys, "train", recipe, f"run.folder={recipe.parent}/runs", override)
    assert not (recipe.parent / "runs").exists()


FULL_DISK = """
import resource, signal, sys
from agentrl.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    ("size", "what"),
    [
        pytest.param(1000, "config.toml", marks=SLOW),
        pytest.param(8000, "evaluations/start-greedy", marks=SLOW),
        pytest.param(100_000, "a checkpoint", marks=SLOW),
    ],
)
def test_a_full_disk_is_one_sentence_and_the_run_goes_on_once_there_is_space(recipe, size, what):
    words = [
        "train",
        str(recipe),
        "run.name=full",
        f"run.folder={recipe.parent}/runs",
    ]
    command = [sys.executable, "-c", FULL_DISK, str(size), *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended.stderr
    said = [line for line in ended.stderr.splitlines() if line.startswith("agentrl: ")]
    assert len(said) == 1 and what in said[0] and "cannot write" in said[0] and "Traceback" not in ended.stderr
    assert "inline_container" not in said[0] and "os error" not in said[0]
    left = [p.name for p in (recipe.parent / "runs").rglob("*")]
    assert not [name for name in left if "part" in name]
    assert main([*words, "--resume"]) == 0


@SLOW
def test_a_finished_run_given_more_iterations_learns_on_and_is_evaluated_at_its_new_end(recipe):
    folder = run(recipe, "a", "optim.schedule=cosine")
    run(recipe, "a", "optim.schedule=cosine", "--resume", "run.iterations=4")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in rows if r.get("name") == "end"] == [3, 3, 4, 4]
    scale = [r["lr_scale"] for r in rows if r["stage"] == "train"]
    assert scale[2] == pytest.approx(0.25)  # (1 + cos(2 pi / 3)) / 2, the last of 3
    assert scale[3] == pytest.approx(0.5 - 0.5**1.5)  # (1 + cos(3 pi / 4)) / 2, the last of 4


@pytest.mark.parametrize(
    "name", ["progress.json", "policy.optimiser.pt", "policy/model.safetensors", "policy/config.json"]
)
@pytest.mark.parametrize("size", [0, 100])
def test_resuming_from_a_damaged_checkpoint_is_one_sentence(whole, capsys, name, size):
    file = whole / "checkpoints" / "000003" / name
    content, before = file.read_bytes(), (whole / "metrics.jsonl").read_bytes()
    file.write_bytes(content[:size])
    capsys.readouterr()
    words = ("train", whole.parents[1] / "tiny.toml", "run.name=whole", f"run.folder={whole.parent}")
    said = complaint(capsys, *words, "--resume")
    file.write_bytes(content)
    assert "checkpoints/000003" in said and len(said) < 500
    assert (whole / "metrics.jsonl").read_bytes() == before


def test_resuming_from_a_checkpoint_of_another_model_is_refused(recipe, copied, capsys):
    config = copied / "config.toml"
    config.write_text(config.read_text().replace("intermediate = 64", "intermediate = 96"))
    capsys.readouterr()
    words = ("train", recipe, "run.name=whole", f"run.folder={copied.parent}", "--resume", "model.new.intermediate=96")
    assert "its intermediate_size is 64, model.new.intermediate is 96" in complaint(capsys, *words)


def test_evaluating_a_run_repeats_its_last_evaluation(whole, capsys):
    capsys.readouterr()
    words = ["eval", "alfworld", "--policy", str(whole), "--tasks", "6", "--temperature", "0", "--json"]
    assert main(words) == 0
    report = json.loads(capsys.readouterr().out)
    stored = json.loads((whole / "evaluations" / "end-greedy.json").read_text())
    for name in ("benchmark", "panel", "episodes", "success_rate", "per_type", "mean_steps", "tokens"):
        assert report[name] == stored[name]


def test_a_checkpoint_of_another_model_is_refused(copied, capsys):
    weights = copied / "checkpoints" / "000003" / "policy" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    capsys.readouterr()
    said = complaint(capsys, "eval", "alfworld", "--policy", copied, "--tasks", "2")
    assert "cannot be loaded" in said and "remove that checkpoint" in said
