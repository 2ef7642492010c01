"""`agentrl train RECIPE --dry-run --memory`: what is refused, where shapes are from, and what the lines say."""

import json
from pathlib import Path

import pytest

from agentrl.cli import main
from agentrl.model import ModelConfig
from agentrl.run.memory_forecast import shape_of
from tests.toys.runs import ALFWORLD, recipe


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.toml"
    file.write_text(recipe(ALFWORLD, update={"max_tokens": 512}))
    return file


def test_an_unknown_card_is_named_before_anything_is_printed(path, capsys):
    assert main(["train", str(path), "--dry-run", "--memory", "h100"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("agentrl: --memory: unknown card 'h100'") and "h100-80" in err


def test_a_model_whose_shape_is_not_here_is_named(path, capsys):
    assert main(["train", str(path), "--dry-run", "model={path='no/such-model'}", "--memory"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "needs the shape of model.path='no/such-model'" in err and "fetch its config.json" in err


def test_shapes_come_from_the_table_or_a_folder(tmp_path):
    published = shape_of(ModelConfig(path="Qwen/Qwen2.5-1.5B-Instruct"))
    assert published.source == "agentrl's table of published shapes"
    assert (published.config.hidden_size, published.config.num_hidden_layers) == (1536, 28)
    published.config.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["hidden_size"] == 1536
    assert shape_of(ModelConfig(path=str(tmp_path))).source == str(tmp_path / "config.json")


@pytest.mark.slow
def test_the_lines_of_a_toy(path, capsys):
    assert main(["train", str(path), "--dry-run", "--memory", "rtx4090-24"]) == 0
    lines = capsys.readouterr().out.split("# memory of a GPU")[1].splitlines()
    assert sum("GiB (weights" in line for line in lines) == 3
    assert any("rtx4090-24 (24 GiB, 90% of it usable)" in line and "fits; the largest" in line for line in lines)
