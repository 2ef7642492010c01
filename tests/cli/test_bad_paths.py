"""Bad input of further families at all verbs: paths, names, numbers, options of every section, and whole runs.

`test_bad_input.py` has damaged contents of files; here are things in each other's place.
"""

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import BaseModel
from safetensors.numpy import load_file, save_file

from agentrl.cli import main
from agentrl.settings.sections import Tables
from tests.cli.bad_words import complaint
from tests.toys.runs import TOY, recipe

WALK = ("tests.toys.walk", "--policy", "random")
RECIPE = recipe(
    TOY,
    run={"iterations": 1},
    env={"name": "tests.toys.walk"},
    eval={"env": {"first": 99}, "tasks": 1, "modes": ["greedy"]},
    limits={"turns": 3},
    batch={"tasks": 2, "copies": 2},
    warmup={"expert": "straight"},
)
# Commands that read or write a path, which stands at `{}`.
PATHS: tuple[tuple[str, ...], ...] = (
    ("train", "{}"),
    ("train", "{}", "--dry-run"),
    ("credit", "grpo", "--steps", "{}"),
    ("credit", "--compare", "grpo,rloo", "--steps", "{}"),
    ("view", "{}"),
    ("view", "{}", "--group", "0"),
    ("play", "tests.toys.walk", "--actions", "{}.json"),
    ("play", "alfworld", "--game", "{}"),
    ("eval", *WALK, "--panel", "{}"),
    ("eval", *WALK[:2], "scripted:{}.json", "--tasks", "1"),
    ("eval", *WALK[:2], "./{}", "--tasks", "1"),
    ("eval", "alfworld", *WALK[1:], "--games", "{}"),
    ("compare", "{}", "report.json"),
    ("compare", "report.json", "{}"),
    ("replay", "{}"),
    ("replay", "{}", "--rescore"),
    ("branch", "{}", "--episode", "0", "--turn", "0"),
    ("branch", "run", "--episode", "0", "--turn", "0", "--policy", "./{}"),
    ("serve", "retriever", "--corpus", "{}", "--port", "0"),
    ("envs", "webshop", "prepare", "--data", "{}", "--out", "shop"),
    ("envs", "webshop", "search", "--query", "x", "--data", "{}"),
)
# Commands that write below a path.
PLACES: tuple[tuple[str, ...], ...] = (
    ("eval", *WALK, "--tasks", "1", "--out", "{}/report.json"),
    ("new", "env", "mine", "--into", "{}"),
    ("new", "tool", "mine", "--into", "{}"),
    ("envs", "alfworld", "write", "{}/games", "--count", "1"),
    ("train", "good.toml", "run.folder={}/runs"),
)
THINGS = (
    "nowhere",
    "empty",
    "binary",
    "text",
    "folder",
    "loop",
    "x" * 300,
    "nul\0",
    "\ud800",
    "deep/" * 60,
    "line\nline",
)
FILES = ("empty", "binary", "text", "loop")
NAMES = ("", ".", "..", "a/b", "../x", "x" * 300, "nul\0", "\ud800", "a\nb", " ")
WORDS = (
    "nope",
    "",
    "a\nb",
    "\ud800",
    "\x1b[31m",
    "\u202e",
    "tests.toys",
    "json",
    "os.path",
    "..",
    "x" * 2000,
    "__main__",
)
NUMBERS = ("nan", "inf", "-1", "1e400", "9" * 400, "'x'", "[]", "{}", "true", "0", "1.5", "null", "\ud800", "[[1]]")


def of_paths() -> Iterator[tuple[str, ...]]:
    for things, commands in ((THINGS, PATHS), (FILES, PLACES)):
        for thing in things:
            for command in commands:
                yield tuple(word.replace("{}", thing) for word in command)


def of_names() -> Iterator[tuple[str, ...]]:
    for name in NAMES:
        yield ("train", "good.toml", f"run.name={name}", "--dry-run")
        yield ("new", "env", name)
    for word in WORDS:
        yield ("eval", word, "--policy", "random", "--tasks", "1")
        yield ("eval", "tests.toys.walk", "--policy", word, "--tasks", "1")
        yield ("check", word)
        yield ("check", "--hooks", word or "nope")
        yield ("play", word, "--actions", "actions.json")
        yield ("play", "tests.toys.walk", "--task", word or "nope", "--actions", "actions.json")
        yield ("credit", word, "--steps", "steps.jsonl")
        yield ("credit", "--compare", f"grpo,{word}", "--steps", "steps.jsonl")
        yield ("credit", "grpo", "--steps", "steps.jsonl", f"{word}=1")
        yield ("serve", word)
        yield ("serve", "mcp", word)
        yield ("serve", "retriever", f"backend={word}")
        yield ("envs", word, "x")
        yield (word or "nope",)
        for section in ("env", "credit", "loss", "context", "rollout", "sampler", "engine", "reward"):
            yield ("train", "good.toml", f"{section}.name={word}", "--dry-run")


def of_numbers(chance: random.Random) -> Iterator[tuple[str, ...]]:
    """Every option of every section, with values of which most are wrong: exit code 0 or 2."""
    for section, field in Tables.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            for key in kind.model_fields:
                for value in chance.sample(NUMBERS, 2):
                    yield ("train", "good.toml", f"{section}.{key}={value}", "--dry-run")
        for value in chance.sample(NUMBERS, 1):
            yield ("train", "good.toml", f"{section}={value}", "--dry-run")
    for value in NUMBERS:
        for flag in ("--tasks", "--turns", "--seed", "--temperature"):
            yield ("eval", *WALK, "--panel", "panel.json", f"{flag}={value}")
        for flag in ("--group", "--episode"):
            yield ("view", "run/graphs/000000.safetensors", f"{flag}={value}")
        for flag in ("--episode", "--turn", "-n", "--iteration", "--seed", "--temperature"):
            yield ("branch", "run", "--episode=0", "--turn=0", "-n=1", "--policy=random", f"{flag}={value}0000000")
        yield ("replay", "run", f"--graphs={value}")
        yield ("serve", "retriever", "--corpus", "text", f"--port={value}")
        yield ("serve", "mcp", "tests.toys.sums", "--http", f"h:{value}")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a trained toy run, and with things that are something else than a command takes them for."""
    folder = tmp_path_factory.mktemp("place")
    before = Path.cwd()
    os.chdir(folder)
    try:
        (folder / "good.toml").write_text(RECIPE)
        assert main(["train", "good.toml", "run.folder=.", "run.name=run"]) == 0
    finally:
        os.chdir(before)
    (folder / "empty").touch()
    (folder / "binary").write_bytes(b"\xff\xfe\x00\x01" * 10)
    (folder / "text").write_text("once upon a time")
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    for name in ("empty", "binary", "text"):
        shutil.copy(folder / name, folder / f"{name}.json")
    (folder / "folder.json").mkdir()
    (folder / "loop.json").symlink_to("loop.json")
    (folder / "report.json").write_text(
        json.dumps({"panel": "p", "benchmark": "b", "outcomes": [{"task": "t", "success": True, "ending": "done"}]})
    )
    (folder / "panel.json").write_text('["walk/0"]')
    (folder / "actions.json").write_text('["left"]')
    steps = [{"group": "a", "episode": e, "turn": t, "reward": 0.5} for e in (0, 1) for t in (0, 1)]
    (folder / "steps.jsonl").write_text("\n".join(map(json.dumps, steps)))
    return folder


def listed(wrong: list[str], count: int) -> None:
    assert not wrong, f"{len(wrong)} of {count}:\n" + "\n".join(wrong[:20])


@pytest.mark.fault
@pytest.mark.parametrize("family", [of_paths, of_names])
def test_things_in_the_place_of_others_are_each_one_sentence(family, place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    commands = list(family())
    listed([why for words in commands if (why := complaint(words, place, capsys))], len(commands))


@pytest.mark.fault
def test_no_value_of_any_option_ends_in_a_traceback(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    commands = list(of_numbers(random.Random(0)))
    listed([why for words in commands if (why := complaint(words, place, capsys, (0, 2)))], len(commands))


def changed(file: Path, change: Any) -> None:
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def with_nan(tensors: dict[str, np.ndarray]) -> None:
    next(iter(tensors.values())).flat[0] = np.nan


def with_other_shape(tensors: dict[str, np.ndarray]) -> None:
    name = next(iter(tensors))
    tensors[name] = np.zeros((3, 3), np.float32)


def without_one(tensors: dict[str, np.ndarray]) -> None:
    del tensors[sorted(tensors)[0]]


def with_values(**values: Any) -> Any:
    return lambda file: file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def as_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def with_shapes_of_another_model(file: Path) -> None:
    def grown(state: Any) -> Any:
        if isinstance(state, torch.Tensor):
            return torch.zeros(7, 7)
        if isinstance(state, dict):
            return {key: grown(value) for key, value in state.items()}
        return list(map(grown, state)) if isinstance(state, list | tuple) else state

    torch.save(grown(torch.load(file, weights_only=True)), file)


TEXT = {
    "empty": lambda file: file.write_bytes(b""),
    "cut": cut,
    "binary": lambda file: file.write_bytes(b"\xff\xfe\x00\x01" * 20),
    "folder": as_folder,
    "missing": Path.unlink,
}
JSON = {
    **TEXT,
    "list": lambda file: file.write_text("[1]"),
    "null": lambda file: file.write_text("null"),
    "deep": lambda file: file.write_text("[" * 100_000),
    "digits": lambda file: file.write_text("9" * 5000),
}
TORCH = {**TEXT, "other shapes": with_shapes_of_another_model, "other object": lambda file: torch.save([1], file)}
RESUME = ("train", "good.toml", "run.folder=.", "run.name=copy", "run.iterations=2", "--resume")
PLAY = ("eval", *WALK[:2], "./copy", "--tasks", "1")
LAST = "copy/checkpoints/000001"
# file of a run, ways to damage it, commands that read it
DAMAGES: tuple[tuple[str, dict[str, Any], tuple[tuple[str, ...], ...]], ...] = (
    (f"{LAST}/progress.json", JSON, (RESUME,)),
    (
        f"{LAST}/progress.json",
        {
            f"{key} {value!r:.20}": with_values(**{key: value})
            for key, value in (
                ("step", "1"), ("step", -1), ("step", 1.5), ("step", None), ("step", 10**30), ("step", True),
                ("stage", "nope"), ("stage", 3), ("evaluated", 3), ("evaluated", [1]), ("metric_lines", -1),
                ("metric_lines", 10**6), ("tokens", {}), ("actions", "x"), ("format", 99), ("format", "2"),
                ("format", []),
            )
        },
        (RESUME,),
    ),
    (f"{LAST}/policy.optimiser.pt", TORCH, (RESUME,)),
    (f"{LAST}/state.pt", TORCH, (RESUME,)),
    (
        f"{LAST}/policy/model.safetensors",
        {
            **TEXT,
            "NaN": lambda file: changed(file, with_nan),
            "other shape": lambda file: changed(file, with_other_shape),
            "without one": lambda file: changed(file, without_one),
        },
        (RESUME, PLAY),
    ),
    (f"{LAST}/policy/config.json", JSON, (PLAY,)),
    (f"{LAST}/policy/tokenizer.json", JSON, (PLAY,)),
    ("copy/metrics.jsonl", {"empty": TEXT["empty"], "missing": Path.unlink, "folder": as_folder}, (RESUME,)),
    ("copy/config.toml", TEXT, (PLAY, ("replay", "copy"), ("branch", "copy", "--episode", "0", "--turn", "0"))),
    ("copy/graphs/000000.safetensors", {k: v for k, v in TEXT.items() if k != "missing"}, (("replay", "copy"),)),
    ("copy/graphs/000000.safetensors", {"cut": cut, "folder": as_folder}, (("credit", "grpo", "--steps", "copy"),)),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.fault
def test_damaged_files_of_a_run_are_each_one_sentence(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    wrong, count = [], 0
    for name, ways, commands in DAMAGES:
        for way, damage in ways.items():
            for words in commands:
                shutil.rmtree("copy", ignore_errors=True)
                shutil.copytree("run", "copy")
                damage(place / name)
                count += 1
                if why := complaint(words, place, capsys):
                    wrong.append(f"{name} {way}: {why}")
    listed(wrong, count)
