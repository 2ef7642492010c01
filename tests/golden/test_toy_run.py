"""Ten iterations of a toy run against stored values: a change of the code that should change no result changes none.

`metrics.json` holds every metric of every line, at the 9 significant digits of metrics.jsonl; `weights.safetensors`
holds the weights after the last iteration. Both come from commit fd4195a, the last one before the core's files were
moved into packages (AMD EPYC, Python 3.11, torch 2.13.0, transformers 5.23.0). After a change that is meant to change
results, make them again and give the reason in the commit:

    python tests/golden/test_toy_run.py --write

With PYTHONPATH=TREE the values are those of another tree.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from agentrl.graph import read_graph, read_note

GOLDEN = Path(__file__).parent
RECIPE, METRICS, WEIGHTS = GOLDEN / "toy.toml", GOLDEN / "metrics.json", GOLDEN / "weights.safetensors"
LAST = "checkpoints/000010/policy/model.safetensors"
TOLERANCE = 1e-5  # absolute, of a weight; relative, of a metric
NEAR_ZERO = 1e-6  # absolute, of a metric: approx_kl is rounding error in an iteration of one optimiser step
MISMATCH = 1e-5  # absolute, of mismatch_max and mismatch_mean, which are rounding error in every iteration


def train_toy(folder: Path, *overrides: str, resume: bool = False) -> Path:
    """The folder of the toy run, trained under `folder`."""
    from agentrl.run import Progress
    from agentrl.settings import Settings
    from agentrl.train import train

    settings = Settings.load(RECIPE, [f"run.folder={folder}", *overrides])
    train(settings, resume=resume, progress=Progress(quiet=True))
    return settings.folder


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of every number, text and truth value inside tables and lists."""
    if isinstance(value, Mapping | list):
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from leaves(inner, f"{path}/{key}")
    else:
        yield path, value


def agrees(path: str, value: Any, stored: Any) -> bool:
    """Counts, texts and truth values are equal; measured numbers are equal but for rounding."""
    if not isinstance(stored, float):
        return bool(value == stored)
    near_zero = MISMATCH if "/mismatch_" in path else NEAR_ZERO
    return math.isclose(value, stored, rel_tol=TOLERANCE, abs_tol=near_zero)


def check_same_bytes(run: Path, other: Path) -> None:
    """Graphs and final weights are equal byte for byte."""
    graphs = sorted(path.name for path in (run / "graphs").iterdir())
    assert graphs == sorted(path.name for path in (other / "graphs").iterdir())
    for name in [*(f"graphs/{graph}" for graph in graphs), LAST]:
        assert (run / name).read_bytes() == (other / name).read_bytes(), name


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one toy run."""
    return train_toy(tmp_path_factory.mktemp("toy"))


def test_ten_iterations_give_the_stored_metrics_and_weights(toy):
    stored = dict(leaves(json.loads(METRICS.read_text())))
    metrics = dict(leaves(rows(toy)))
    assert metrics.keys() == stored.keys()
    assert {p: (metrics[p], stored[p]) for p in stored if not agrees(p, metrics[p], stored[p])} == {}
    weights, stored_weights = load_file(toy / LAST), load_file(WEIGHTS)
    assert weights.keys() == stored_weights.keys()
    for name, tensor in stored_weights.items():
        np.testing.assert_allclose(weights[name], tensor, rtol=0, atol=TOLERANCE, err_msg=name)
    types = read_note(toy / "graphs" / "000009.safetensors")["task_kinds"]
    assert set(types) == set(read_graph(toy / "graphs" / "000009.safetensors").names["group"])
    assert set(types.values()) == {"pick_and_place_simple"}


def test_five_iterations_and_five_more_are_ten_byte_for_byte(toy, tmp_path):
    train_toy(tmp_path, "run.iterations=5")
    run = train_toy(tmp_path, resume=True)
    at_five = {"name": "end"}  # the evaluation after iteration 5 was the last one of the shorter run
    expected = [row | at_five if row.get("name") == "iteration 5" else row for row in rows(toy)]
    assert rows(run) == expected
    check_same_bytes(toy, run)
    evaluations = sorted(path.name for path in (toy / "evaluations").glob("*.safetensors"))
    assert len(evaluations) == len(list((toy / "evaluations").glob("*.json"))) > 0
    there = [name for name in evaluations if (run / "evaluations" / name).exists()]
    assert {name.rpartition("-")[0] for name in {*evaluations} - {*there}} == {"iteration-5"}
    for name in there:
        assert (toy / "evaluations" / name).read_bytes() == (run / "evaluations" / name).read_bytes(), name


# What may differ between two runs of one seed: the order of sets of texts, and who plays and when. With another
# `engine.max_slots`, another number of threads or another machine the arithmetic is done in other pieces.
ORDERS = {
    "hash seed": ({"PYTHONHASHSEED": "1"}, ()),
    "another hash seed, processes": ({"PYTHONHASHSEED": "31337"}, ("pool.kind=processes", "pool.workers=3")),
    "threads": ({"PYTHONHASHSEED": "2"}, ("pool.kind=threads", "pool.workers=2")),
}


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.timeout(1200)
def test_neither_the_order_of_sets_nor_the_number_of_workers_changes_a_byte(order, toy, tmp_path):
    variables, overrides = ORDERS[order]
    command = [sys.executable, "-m", "agentrl", "train", str(RECIPE), f"run.folder={tmp_path}", *overrides]
    subprocess.run(command, env={**os.environ, **variables}, check=True, capture_output=True)
    assert (toy / "metrics.jsonl").read_bytes() == (tmp_path / "toy" / "metrics.jsonl").read_bytes()
    check_same_bytes(toy, tmp_path / "toy")


def write() -> None:
    """Store the values of the agentrl that Python finds."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "agentrl", "train", str(RECIPE), f"run.folder={folder}"]
        subprocess.run(command, check=True)
        run = Path(folder) / "toy"
        METRICS.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows(run)) + "\n]\n")
        shutil.copyfile(run / LAST, WEIGHTS)


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python tests/golden/test_toy_run.py --write")
    write()


@pytest.mark.slow
def test_entropies_and_seconds_are_stored_when_asked_and_change_nothing_else(toy, tmp_path):
    from agentrl.graph import token_rows
    from agentrl.report import run_data

    run = train_toy(tmp_path, "run.iterations=1", "log.entropies=true", "log.durations=true", "eval.modes=['sampled']")
    plain, told = (read_graph(folder / "graphs" / "000000.safetensors") for folder in (toy, run))
    assert set(told.columns) - set(plain.columns) == {"entropy", "answer_s", "env_s"}
    for name, column in plain.columns.items():
        np.testing.assert_array_equal(told.columns[name], column, err_msg=name)
    assert told.tokens is not None and plain.tokens is not None
    assert (told.columns["answer_s"] > 0).all() and (told.columns["env_s"] >= 0).all()
    # The entropy is the expectation of minus the log-probability of what was sampled.
    surprise = np.bincount(token_rows(told.tokens), -told.tokens.logprobs, len(told))  # [N]
    apart = told.columns["entropy"] - surprise  # [N]
    assert abs(apart.mean()) < 4 * apart.std() / math.sqrt(len(apart)) and told.columns["entropy"].mean() > 0.1
    held_out = read_graph(run / "evaluations" / "end-sampled.safetensors")
    assert {"entropy", "answer_s", "env_s"} <= set(held_out.columns)
    (part, *_) = run_data(run).parts
    assert len(part.seconds) == len(part.data.steps.row) and part.data.steps.values["entropy"][0] is not None
