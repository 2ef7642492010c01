"""The measurements of `make gpu`, at toy sizes on the CPU: they run, and what they compare is comparable."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from packaging.version import Version

from benchmarks import gpu

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")


@pytest.mark.slow
def test_a_machine_without_a_gpu_is_told_so(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--out", str(tmp_path / "gpu.json")],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin"},
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "make gpu: torch finds no CUDA device here; run it on a machine with an NVIDIA GPU\n"
    assert not (tmp_path / "gpu.json").exists()


def test_the_tree_is_a_prompt_with_its_answers():
    layout = gpu.tree(3, 2, 2)
    assert layout.position.tolist() == [0, 1, 2, 3, 4, 3, 4]
    assert layout.predictor.tolist() == [-1, 0, 1, 2, 3, 2, 5]
    assert layout.subtree_end.tolist() == [7, 7, 7, 5, 5, 7, 7]


@pytest.mark.slow
def test_every_part_runs_at_toy_size():
    attention = gpu.attention(CPU, root=64, branches=3, length=32)
    assert attention["packed_tokens"] == 160 and attention["ratio"] > 0
    updated = gpu.updating(CPU, width=128, layers=2, tokens=512)
    assert 0 < updated["share_of_bound"] < 1 and updated["tokens_per_s"] > 0
    rolled = gpu.rollout(CPU, trajectories=4)
    assert rolled["engine_tokens_per_s"] > 0 and rolled["ratio"] > 0
    forecast = gpu.forecast(CPU, width=128, layers=2, tokens=512)
    assert 0 < forecast["checkpointing"]["forecast_gib"] < forecast["plain"]["forecast_gib"]


def test_a_part_that_fails_is_named_and_the_next_goes_on(monkeypatch, capsys):
    def broken(device: torch.device) -> dict[str, float]:
        raise RuntimeError("no kernel\nfor this device")

    monkeypatch.setitem(gpu.MEASURE, "update", broken)
    monkeypatch.setitem(gpu.MEASURE, "rollout", lambda device: {"ratio": 2.0})
    result = gpu.run(CPU, ["update", "rollout"], 1.0)
    assert result["update"]["failed"] == "RuntimeError: no kernel for this device"
    assert result["rollout"]["ratio"] == 2.0
    assert json.loads(capsys.readouterr().out.splitlines()[1].partition(" ")[2])["ratio"] == 2.0
    late = gpu.run(CPU, ["rollout"], 0.0)
    assert late["rollout"]["failed"] == "no time was left of 0 minutes"


def test_the_wheels_complete_a_machine_that_has_torch_and_transformers():
    there = {"torch", "transformers", "numpy", "networkx", "safetensors", "tokenizers", "jinja2"}
    lines = [line for line in (ROOT / "requirements-gpu.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = dict(line.split("==") for line in lines)  # every line is a pin
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for requirement in needed:
        name, _, least = requirement.partition(">=")
        assert name in there or Version(pinned[name]) >= Version(least)
    assert {"pytest", "pytest-timeout"} <= pinned.keys()


def test_the_files_with_tests_for_a_gpu_are_found(monkeypatch, tmp_path):
    found = [path.relative_to(ROOT / "tests").as_posix() for path in gpu.marked()]
    assert "model/test_tree_attention.py" in found and "engines/test_engine_laws.py" in found
    assert "tests/" not in "".join(found) and len(found) < 10
