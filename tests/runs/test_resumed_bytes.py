"""A resumed run is the uninterrupted one, byte for byte, whatever keeps something between iterations."""

from pathlib import Path

import pytest

from agentrl.cli import main
from tests.toys.runs import ALFWORLD, recipe

TREES = {
    "rollout": {"name": "tree"},
    "credit": {"name": "tree_grpo"},
    "sampler": {"name": "curriculum"},
    "update": {"kl_coef": 0.05, "kl_in": "reward"},
    "batch": {"tasks": 2, "copies": 2},
}
STREAM = {"credit": {"name": "single_stream"}, "batch": {"tasks": 4, "copies": 1}}
CONFIGURATIONS = [
    pytest.param(TREES, id="trees", marks=pytest.mark.slow),
    pytest.param(STREAM, id="stream", marks=pytest.mark.slow),
]
ITERATIONS = 4


@pytest.mark.parametrize("sections", CONFIGURATIONS)
def test_resumed_bytes_are_the_uninterrupted_ones(sections, tmp_path):
    path, folder = tmp_path / "tiny.toml", tmp_path / "runs"
    model = {"new": {"layers": 2, "hidden": 40, "heads": 2, "intermediate": 72, "max_positions": 512}}
    warmup = {"expert": "wander", "updates": 2, "episodes": 4}
    keep = {"iterations": ITERATIONS, "keep": 9, "graphs_every": 1}
    path.write_text(recipe(ALFWORLD, **sections, run=keep, model=model, warmup=warmup, eval={"tasks": 1}))

    def run(name: str, *more: str) -> Path:
        assert main(["train", str(path), f"run.name={name}", f"run.folder={folder}", *more]) == 0
        return folder / name

    whole = run("whole")
    run("cut", "run.iterations=1")
    cut = run("cut", "--resume")
    names = [f"graphs/{i:06d}.safetensors" for i in range(ITERATIONS)]
    names += [f"checkpoints/{i:06d}/policy/model.safetensors" for i in range(1, ITERATIONS + 1)]
    for name in names:
        assert (whole / name).read_bytes() == (cut / name).read_bytes(), name
