"""What the commands that play and train nothing load, and the CPU seconds they take, each in a fresh process."""

import json
import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN

import pytest

from tests.cpu_seconds import least_seconds, spent

ROOT = Path(__file__).parents[2]
RECIPE = str(ROOT / "benchmarks" / "recipes" / "alfworld-cpu.toml")
COMMANDS = {
    "help": (("--help",), 0),
    "eval help": (("eval", "--help"), 0),
    "mistyped key": (("train", RECIPE, "update.minibatch=4"), 2),
    "dry run": (("train", RECIPE, "--dry-run"), 0),
}
# Largest CPU seconds of a command, in starts of an interpreter that does nothing: about 1.5 times what they take.
MOST_STARTS = {"help": 6, "eval help": 20, "mistyped key": 28, "dry run": 32}
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
RUN = """
import json, sys
from agentrl.cli import main
try:
    code = main({words!r})
except SystemExit as stop:
    code = stop.code
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
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


def fresh(code: str) -> str:
    """The last line that a new interpreter writes to standard error."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def start() -> float:
    """CPU seconds of an interpreter that does nothing."""
    return least_seconds("-c", "pass")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_runs_nothing_loads_no_heavy_library_and_takes_little_time(name, start):
    words, code = COMMANDS[name]
    most = MOST_STARTS[name] * start
    before = spent(RUSAGE_CHILDREN)
    found, modules = json.loads(fresh(RUN.format(words=list(words))))
    command = spent(RUSAGE_CHILDREN) - before
    assert (found, HEAVY & set(modules)) == (code, set())
    if command > most:
        command = least_seconds("-m", "agentrl", *words, enough=most)
    print(f"{command:.2f} CPU s, {command / start:.1f} starts: {name}")
    assert command <= most


def test_importing_a_catalogue_entry_loads_no_heavy_library():
    """A recipe may name any entry, and checking the recipe imports that entry."""
    loaded = json.loads(fresh(IMPORT))
    assert len(loaded) > 60
    assert {name: heavy for name, heavy in loaded.items() if heavy} == {}
