"""What the commands that play and train nothing load, and the CPU seconds they take, each in a fresh process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
RECIPE = str(ROOT / "benchmarks" / "recipes" / "alfworld-cpu.toml")
COMMANDS = {
    "help": (("--help",), 0),
    "eval help": (("eval", "--help"), 0),
    "mistyped key": (("train", RECIPE, "update.minibatch=4"), 2),
    "dry run": (("train", RECIPE, "--dry-run"), 0),
}
HEAVY = {
    "torch",
    "transformers",
    "vllm",
    "ray",
    "peft",
    "openai",
    "mcp",
    "httpx",
    "matplotlib",
    "faiss",
    "bm25s",
    "msgpack",
    "pyarrow",
    "spacy",
    "networkx",
    "scipy",
    "gymnasium",
    "textworld",
    "alfworld",
    "e2b",
    "tensorboardX",
    "trackio",
    "wandb",
}
MOST_SECONDS = 0.6  # of the CPU, start of the interpreter included
RUN = """
import json, resource, sys
from agentrl.cli import main
try:
    code = main({words!r})
except SystemExit as stop:
    code = stop.code
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([code, used.ru_utime + used.ru_stime, sorted(sys.modules)]), file=sys.stderr)
"""
IMPORT = f"""
import importlib, json, sys
from agentrl.catalogue import KINDS, names
loaded = {{}}
for kind, (package, *_) in KINDS.items():
    for name in names(kind):
        before = set(sys.modules)
        importlib.import_module(package + "." + name)
        loaded[kind + "/" + name] = sorted({HEAVY} & (set(sys.modules) - before))
print(json.dumps(loaded), file=sys.stderr)
"""


class Ran(NamedTuple):
    """A command's exit code, CPU seconds, and the heavy libraries it loaded."""

    code: int
    seconds: float
    heavy: set[str]


def fresh(code: str, **variables: str) -> str:
    """The last line that a new interpreter writes to standard error."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()[-1]


def run(words: tuple[str, ...], **variables: str) -> Ran:
    code, seconds, modules = json.loads(fresh(RUN.format(words=list(words)), **variables))
    return Ran(code, seconds, HEAVY & set(modules))


@pytest.mark.parametrize(("words", "code"), COMMANDS.values(), ids=COMMANDS)
def test_a_command_that_runs_nothing_loads_no_heavy_library(words, code):
    ran = run(words)
    print(f"{ran.seconds:.2f} CPU s: agentrl {' '.join(words)}")
    assert (ran.code, ran.heavy) == (code, set())


@pytest.mark.slow  # a busy machine takes more CPU seconds for the same work
@pytest.mark.parametrize(("words", "code"), COMMANDS.values(), ids=COMMANDS)
def test_a_command_that_runs_nothing_takes_little_time(words, code, tmp_path):
    # The first of the runs compiles every module, if the checkout has no bytecode yet; the others find it.
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    seconds = [run(words, **bytecode).seconds for _ in range(4)]
    print(f"{min(seconds):.2f} CPU s: agentrl {' '.join(words)}")
    assert min(seconds[1:]) <= MOST_SECONDS


def test_importing_a_catalogue_entry_loads_no_heavy_library():
    """A recipe may name any entry, and checking the recipe imports that entry."""
    loaded = json.loads(fresh(IMPORT))
    assert len(loaded) > 60
    assert {name: heavy for name, heavy in loaded.items() if heavy} == {}
