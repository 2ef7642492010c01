"""docs/models.md: its Python block runs on a toy, and its tables say what the code does."""

import json
import re
from pathlib import Path
from typing import get_args

from agentrl import catalogue
from agentrl.cli import main
from agentrl.env import EnvironmentFile
from agentrl.model import fetching
from agentrl.trainer.sections import UpdateConfig
from tests.toys.language_model import model_folder

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text()


def test_the_python_block_runs(tmp_path, capsys):
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert "models/smollm2" in block
    exec(block.replace("models/smollm2", str(model_folder(tmp_path / "toy"))), {})
    said = capsys.readouterr().out.splitlines()
    comments = re.findall(r"print\(.*\)  # (.*)", block)
    assert len(said) == len(comments) == 2
    for line, comment in zip(said, comments, strict=True):
        assert line.startswith(comment.removesuffix("..."))


def test_the_eval_line_runs_on_a_toy(tmp_path, monkeypatch, capsys):
    (line,) = re.findall(r"^agentrl (eval .*)$", PAGE, re.M)
    monkeypatch.chdir(tmp_path)
    model_folder(tmp_path / "models" / "smollm2", num_hidden_layers=1, origin="a toy")
    words = line.replace("--tasks 20", "--tasks 1 --turns 1 --json limits.turn_tokens=4").split()
    assert main(words) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["episodes"] == 1 and summary["policy"]["origin"] == "a toy"


def test_the_table_of_models_is_the_codes():
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| `([^`]+)` ([\d.]+) \([^)]*\) \| `([^`]+)` \|", PAGE, re.M)
    known = {(name, s.hub, s.package, s.version, Path(s.file).name) for name, s in fetching.FETCHABLE.items()}
    assert set(rows) == known


def test_the_prompts_and_the_tolerances_that_are_named_exist():
    for prompt in ("instruct", "instruct_listed"):
        (named,) = re.findall(rf"^\| `{prompt}` \| ([^|]+) \|", PAGE, re.M)
        offered = set()
        for name in catalogue.names("envs"):
            field = catalogue.load(EnvironmentFile, name).config.model_fields.get("prompt")
            if field is not None and prompt in get_args(field.annotation):
                offered.add(name)
        assert set(re.findall(r"`(\w+)`", named)) == offered
    update = UpdateConfig()
    assert f"`update.mismatch_tolerance` ({update.mismatch_tolerance} nats)" in PAGE.replace("\n", " ")
    assert f"`update.mismatch_tolerance_half` ({update.mismatch_tolerance_half})" in PAGE.replace("\n", " ")
