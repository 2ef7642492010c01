"""Several processes that share a learner change it as one process does: FSDP2 over gloo, two or three ranks on the CPU.

Rank 0 is the test's own process, so that only the others have to import torch.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from agentrl.cluster.learner_group import RankPlace, joined
from agentrl.trainer import LearnerConfig, Ranks
from tests.trainer.ranks_of_learners import CASES, Case, play_all

ROOT = Path(__file__).parents[2]
CHEAP = "band"  # the other cases are slow
ALIKE = {"offload": "tied", "checkpointing": "tied"}  # cases that must give what another one gives in one process
NEAR = {"muon": 1e-5, "head": 1e-6, "own": 1e-6, "half": 1e-2}  # Newton-Schulz and the critic's head are in float32
EXACT = 1e-12
# Its head is the embedding, as in `tied`, and it leaves the learner in two forms more. Further cases are slow.
STREAMED = "lora"
HALF_WAY = "half_way:lora"  # half_way:tied goes on from two processes to one in a slow test


@contextmanager
def shared(tmp_path: Path, size: int, names: tuple[str, ...], out: Path) -> Iterator[Ranks]:
    """This process as rank 0, and others that play the same cases; all have to end well."""
    store = tmp_path / f"store-{size}-{len(list(tmp_path.iterdir()))}"
    command = [sys.executable, "-m", "tests.trainer.ranks_of_learners", str(store)]
    others = [
        subprocess.Popen(
            [*command, str(rank), str(size), str(out), *names], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        for rank in range(1, size)
    ]
    try:
        yield joined(torch.device("cpu"), RankPlace(0, size, 0), dist.FileStore(str(store), size))
        for other in others:
            said = other.communicate(timeout=600)[1]
            assert other.returncode == 0, said[-2000:]
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        for other in others:
            other.kill()
            other.wait()


def played(tmp_path: Path, size: int, names: tuple[str, ...], out: Path | None = None) -> Path:
    """The folder in which the cases were stored by so many processes."""
    torch.set_num_threads(1)
    out = out or tmp_path / f"out-{size}"
    out.mkdir(exist_ok=True)
    if size == 1:
        play_all(Ranks(), out, names)
    else:
        with shared(tmp_path, size, names, out) as ranks:
            play_all(ranks, out, names)
    return out


def apart(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    assert a.keys() == b.keys()
    return max((float((a[key].double() - b[key].double()).abs().max()) for key in a), default=0.0)


def check_equal(name: str, alone: Path, together: Path) -> dict[str, Any]:
    one = torch.load(alone / f"{ALIKE.get(name, name)}.pt", weights_only=False)
    two = torch.load(together / f"{name}.pt", weights_only=False)
    limit = NEAR.get(name, EXACT)
    assert len(one["gradients"]) == len(two["gradients"]) == 14
    assert apart(one["weights"], two["weights"]) <= limit
    assert apart(one["critic"], two["critic"]) <= limit
    if name != "half":  # in one process the float32 copies hold the gradients
        assert max(apart(a, b) for a, b in zip(one["gradients"], two["gradients"], strict=True)) <= limit
        assert max(float(x.abs().max()) for step in one["gradients"] for x in step.values()) > 1e-2
    for a, b in zip(one["metrics"], two["metrics"], strict=True):
        assert a == pytest.approx(b, rel=100 * limit, abs=100 * limit)
    if one["metrics"][-1]:
        assert two["metrics"][-1]["apart"] <= limit
    for key, states in one["band"].items():
        assert states["updates"] == two["band"][key]["updates"]
        assert states["total"] == pytest.approx(two["band"][key]["total"], abs=EXACT)
    return two


@pytest.fixture(scope="module")
def cheap(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("ranks")
    alone = played(place, 1, (CHEAP,))
    return alone, played(place, 2, (CHEAP, HALF_WAY, f"streamed:{STREAMED}"))


def test_two_processes_are_one(cheap):
    """Weights, gradients, metrics, the critic and what a regularizer remembers, after 14 optimiser steps in float64."""
    two = check_equal(CHEAP, *cheap)
    assert two["idle"][0] > 0  # a rank had fewer micro-batches, and ran dummies


def test_weights_gathered_one_by_one_are_those_of_an_undivided_copy(cheap):
    """In every form in which weights leave a learner, byte for byte: no process needs the undivided model."""
    check_streams(STREAMED, cheap[1])


def check_streams(name: str, out: Path) -> None:
    copied = out / f"{name}-copied"
    files = sorted(path.relative_to(copied) for path in copied.rglob("*") if path.is_file())
    assert len([file for file in files if file.suffix == ".safetensors"]) == (5 if name == "lora" else 2)
    for other in ("streamed", "held"):
        folder = out / f"{name}-{other}"
        assert sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file()) == files
        for file in files if other == "streamed" else [file for file in files if file.suffix == ".safetensors"]:
            assert (copied / file).read_bytes() == (folder / file).read_bytes(), (other, file)
    found = json.loads((out / f"{name}-streamed.json").read_text())
    assert found["apart"] <= (NEAR[name] if name == "half" else EXACT)
    assert found["most"] <= 3  # a weight and the two matrices of its adapter


def test_one_process_goes_on_from_the_checkpoint_of_two(cheap):
    """With the same reference, a copy of the adapter."""
    _, together = cheap
    played(together.parent, 1, (HALF_WAY,), together)
    ended = torch.load(together / "lora-end.pt", weights_only=True)
    whole = played(together.parent, 1, ("lora",), together.parent)
    through = torch.load(whole / "lora.pt", weights_only=False)
    assert apart(ended["weights"], through["weights"]) <= EXACT


def test_the_parts_of_a_checkpoint_are_safetensors(cheap):
    _, together = cheap
    names = sorted(path.name for path in (together / "lora" / "parts").iterdir())
    assert len(names) == 2 and all(name.endswith(".safetensors") for name in names)


def test_one_process_can_compute_its_layers_again():
    """Activations that are computed again change nothing."""
    plain, _ = Case().make(Ranks())
    again, _ = Case(checkpointing=True).make(Ranks())
    first = next(iter(Case().play(plain, *_none(), range(1))))
    second = next(iter(Case().play(again, *_none(), range(1))))
    assert first == second
    assert apart(dict(plain.model.state_dict()), dict(again.model.state_dict())) == 0.0
    assert again.network.model.is_gradient_checkpointing


def _none() -> tuple[Any]:
    from agentrl.trainer import Regularizers

    return (Regularizers(),)


def test_the_defaults_divide_nothing():
    assert not LearnerConfig().divided and LearnerConfig(offload=True).divided and LearnerConfig(processes=2).divided


@pytest.mark.slow
def test_all_cases_under_two_processes(tmp_path):
    names = tuple(name for name in CASES if name != CHEAP)
    alone = played(tmp_path, 1, tuple(name for name in names if name != "offload"))
    together = played(tmp_path, 2, names)
    for name in names:
        check_equal(name, alone, together)


@pytest.mark.slow
def test_weights_of_further_models_are_gathered_one_by_one(tmp_path):
    names = ("tied", "untied", "half", "offload", "checkpointing")
    out = played(tmp_path, 2, tuple(f"streamed:{name}" for name in names))
    for name in names:
        check_streams(name, out)


@pytest.mark.slow
def test_a_learner_that_is_offloaded_needs_no_second_process(tmp_path):
    alone = played(tmp_path, 1, ("tied",))
    out = tmp_path / "offloaded"
    out.mkdir()
    with shared(tmp_path, 1, (), out) as ranks:
        play_all(ranks, out, ("offload",))
    check_equal("offload", alone, out)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "then"), [(1, 2), (2, 1), (2, 3), (3, 2)])
def test_a_learner_goes_on_under_another_number_of_processes(first, then, tmp_path):
    names = ("half_way:tied", "half_way:own", "half_way:half", "half_way:muon")
    whole = ("tied", "own", "half", "muon")
    out = tmp_path / "half"
    played(tmp_path, first, names, out)
    played(tmp_path, then, names, out)
    through = played(tmp_path, 1, whole)
    for name in whole:
        ended = torch.load(out / f"{name}-end.pt", weights_only=True)
        assert apart(ended["weights"], torch.load(through / f"{name}.pt", weights_only=False)["weights"]) <= NEAR.get(
            name, EXACT
        )
