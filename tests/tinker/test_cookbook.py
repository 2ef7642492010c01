"""Loops of tinker-cookbook 0.6.1, with the newest SDK, against `agentrl serve trainer`: make foreign."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.integrations.host_pythons import ROOT, built
from tests.toys.tiny_qwen3 import model_folder

pytestmark = [pytest.mark.slow, pytest.mark.foreign, pytest.mark.timeout(1200)]


class Serving(NamedTuple):
    """A running server, and its base model's name there."""

    url: str
    model: str


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """`agentrl serve trainer` with a tiny random Qwen3."""
    folder = tmp_path_factory.mktemp("served")
    model = str(model_folder(folder / "model"))
    command = [sys.executable, "-m", "agentrl", "serve", "trainer", model, "--port", "0"]
    command += ["--checkpoints", str(folder / "checkpoints")]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
    ) as one:
        try:
            assert one.stdout is not None
            yield Serving(one.stdout.readline().split()[-1], model)
        finally:
            one.terminate()


def cookbook(*words: str) -> str:
    """What a program of the cookbook's Python prints."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {
        "TINKER_API_KEY": "tml-dummy",
        "TINKER_TELEMETRY": "0",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run([str(built("tinker")), *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout + done.stderr


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_arithmetic_by_reinforcement_learning(serving, tmp_path):
    options = {
        "env": "arithmetic",
        "model_name": serving.model,
        "renderer_name": "role_colon",
        "base_url": serving.url,
        "group_size": "4",
        "groups_per_batch": "4",
        "max_steps": "3",
        "save_every": "2",
        "eval_every": "0",
        "lora_rank": "8",
        "learning_rate": "1e-3",
        "loss_fn": "importance_sampling",  # its default, stable_reinforce, is a loss of the hosted service
        "log_path": str(tmp_path / "log"),
    }
    words = [f"{name}={value}" for name, value in options.items()]
    assert "Training completed successfully" in cookbook("-m", "tinker_cookbook.recipes.math_rl.train", *words)
    batches = [row for row in lines(tmp_path / "log" / "metrics.jsonl") if "progress/batch" in row]
    assert len(batches) == 3
    for row in batches:  # the log-probs of the sampler and of the trainer
        assert abs(row["optim/kl_sample_train_v1"]) < 1e-5 and row["tokens/trained"] > 0
    assert [row["name"] for row in lines(tmp_path / "log" / "checkpoints.jsonl")] == ["000002", "final"]


def test_chats_by_supervised_learning(serving, tmp_path):
    chats = tmp_path / "chats.jsonl"
    asked = [("What is the first letter?", "a"), ("What is the last letter?", "z")]
    with chats.open("w") as file:
        for number in range(32):
            question, answer = asked[number % 2]
            turns = [{"role": "user", "content": f"{number}. {question}"}, {"role": "assistant", "content": answer}]
            file.write(json.dumps({"messages": turns}) + "\n")
    script = str(Path(__file__).with_name("cookbook_supervised.py"))
    said = cookbook(script, serving.url, serving.model, str(chats), str(tmp_path / "log"))
    losses = [row["train_mean_nll"] for row in lines(tmp_path / "log" / "metrics.jsonl") if "train_mean_nll" in row]
    assert len(losses) == 8 and losses[-1] < losses[0] / 2, said[-1000:]
    assert lines(tmp_path / "log" / "checkpoints.jsonl")[-1]["name"] == "final"
