"""The optional products: all of them can be deleted, and what is left trains (docs/architecture.md)."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTRACT = "the core imports no product"
COPIED = ("agentrl", "envs", "algorithms", "tools", "benchmarks/recipes", "tests/toys")
TRAIN = """
import sys
from pathlib import Path

import agentrl

assert Path(agentrl.__file__).parents[1] == Path.cwd(), agentrl.__file__

from agentrl.config import override
from agentrl.files import read_toml
from agentrl.settings import Settings
from agentrl.train import train

FEW = ["run.iterations=2", "batch.tasks=2", "eval.tasks=1", "env.goal=4", "limits.turns=6"]
run = train(Settings(override(read_toml(Path("tests/toys/corridor.toml")), FEW)))
print(run.state.step, sorted(path.name for path in run.folder.path.iterdir()))
"""


def products() -> list[str]:
    """Dotted names of the packages that the contract in pyproject.toml calls products."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = [one for one in linter["contracts"] if one["name"] == CONTRACT]
    return list(contract["forbidden_modules"])


def test_the_toy_run_trains_without_any_product(tmp_path):
    for folder in COPIED:  # with the bytecode
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True)
    for product in products():
        shutil.rmtree(tmp_path / Path(*product.split(".")))
    done = subprocess.run(
        [sys.executable, "-c", TRAIN],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    step, _, files = done.stdout.splitlines()[-1].partition(" ")
    assert step == "2" and "metrics.jsonl" in files and "checkpoints" in files


def test_every_package_of_the_core_is_in_the_contract():
    """A new package is either part of the core or a product, and architecture.md says which."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = [one for one in linter["contracts"] if one["name"] == CONTRACT]
    named = {name.split(".")[1] for name in [*contract["source_modules"], *contract["forbidden_modules"]]}
    files = [path for path in (ROOT / "agentrl").iterdir() if path.suffix in ("", ".py") and not path.is_symlink()]
    there = {path.stem for path in files if not path.stem.startswith("_")}
    assert there - named == {"train"}  # it hands in what crosses the border
