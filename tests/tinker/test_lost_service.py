"""A run whose training service loses something ends with a sentence, and goes on from its checkpoint."""

import pytest
import tomli_w

from agentrl.cli import main
from agentrl.run import read_metrics
from tests.toys.training_service import training_service

pytest.importorskip("tinker")


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.parametrize("route", ["asample", "optim_step", "save_weights"])
def test_a_run_that_its_service_forgets_can_be_resumed(tmp_path, capsys, route):
    with training_service(tmp_path) as running:
        path = tmp_path / "recipe.toml"
        tables = {
            "run": {"name": "run", "folder": str(tmp_path), "iterations": 1, "checkpoint_every": 1, "seed": 5},
            "env": {"name": "benchmarks.reliability.odd_answers", "count": 8},
            "eval": {"tasks": 1, "modes": ["sampled"], "env": {"first": 8}},
            "model": {"path": running.model},
            "learner": {"name": "tinker", "url": running.url, "rank": 2, "sums": "tokens"},
            "engine": {"name": "tinker", "max_context": 256},
            "sampling": {"max_tokens": 4},
            "limits": {"turns": 2, "turn_tokens": 4},
            "warmup": {"updates": 0},
            "batch": {"tasks": 2, "copies": 4},
            "credit": {"name": "grpo"},
        }
        path.write_text(tomli_w.dumps(tables))
        assert main(["train", str(path)]) == 0
        capsys.readouterr()
        further = ["train", str(path), "--resume", "run.iterations=2"]
        running.faults.add(route, 404)
        assert main(further) == 75  # a supervisor may start it again
        said = capsys.readouterr().err
        assert f"agentrl: the training service at {running.url} no longer has what" in said
        assert "it may have been started again" in said and "--resume" in said
        assert "free some space" not in said and not list((tmp_path / "run" / "checkpoints").glob(".*"))
        assert "Traceback" not in said and "tinker.lib" not in said
        assert not running.faults.waiting
        assert main(further) == 0
        rows = read_metrics(tmp_path / "run" / "metrics.jsonl").rows
        assert [row["step"] for row in rows if row["stage"] == "train"] == [0, 1]
