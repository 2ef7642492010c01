"""Interpreters with another trainer's package, each built once by uv in `.venv-foreign/NAME`, for `make foreign`.

GPU packages are left out: a host's other modules need none. prime-rl and slime are on no package index: the environment
variables PRIME_RL and SLIME name a checkout of the repository at the commit that the adapter states.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
HOSTS = Path(__file__).parent / "hosts"
TORCH = next(
    (line for line in (ROOT / "requirements-cpu.txt").read_text().splitlines() if line.startswith("torch==")), "torch"
)
OURS = ["numpy", "pydantic", "lazy-loader", "tomli-w", "docstring-parser"]
# Name -> (packages without their dependencies, packages with them, the variable that names a checkout, its folders).
NEEDS: dict[str, tuple[list[str], list[str], str, list[str]]] = {
    "tinker": (
        ["tinker-cookbook==0.6.1"],  # alone, because it asks for a tml-renderers that the index may lack
        ["tinker>=0.38", "chz", "termcolor", "pillow", "transformers<5.3", "datasets", "blobfile", "cloudpickle",
         "rich", "aiohttp", "tiktoken", "sympy", "pylatexenc", "math-verify"],
        "", [],
    ),
    "prime_rl": (
        [], ["verifiers==0.4.0", "msgspec", "wandb"], "PRIME_RL", ["src", "packages/prime-rl-configs/src"],
    ),
    "openrlhf": (
        ["openrlhf==0.11.0"],
        ["ray==2.55.0", "transformers==5.15.0", "tqdm", "einops", "accelerate", "peft", "datasets", "pylatexenc",
         "sympy", "torchdata", "loralib", "jsonlines", "optree", "aiohttp"],
        "", [],
    ),
    "areal": (
        ["areal==1.0.4"],
        ["ray", "transformers", "datasets", "torchdata", "aiohttp", "openai", "hydra-core==1.4.0.dev1",
         "omegaconf==2.4.0.dev2", "colorlog", "tenacity", "flask", "lark", "uvloop", "einops", "numba", "pillow",
         "orjson", "aiofiles", "swanlab", "trackio", "wandb", "tensorboardX", "tabulate", "pybase64", "math-verify",
         "pylatexenc", "requests"],
        "", [],
    ),
    "slime": (
        [], ["ray", "transformers", "pybase64", "aiohttp", "httpx", "wandb", "pillow"], "SLIME", ["."],
    ),
}  # fmt: skip


def built(name: str) -> Path:
    """The Python of a host's environment, which is built if it is not there or has other pins."""
    alone, rest, *_ = NEEDS[name]
    folder = ROOT / ".venv-foreign" / f"trainer-{name}"
    python, mark = folder / "bin" / "python", folder / "pins"
    pins = hashlib.sha256(json.dumps([TORCH, alone, rest]).encode()).hexdigest()
    if mark.is_file() and mark.read_text() == pins:
        return python
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    assert uv is not None, "uv builds the environments of foreign packages: make install has it"
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], check=True)
    install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    links = [f"--find-links={link}" for link in os.environ.get("PIP_FIND_LINKS", "").split()]
    subprocess.run([*install, *links, TORCH, *OURS, *rest], check=True)
    if alone:
        subprocess.run([*install, "--no-deps", *alone], check=True)
    mark.write_text(pins)
    return python


@cache
def found_by(name: str) -> dict[str, Any]:
    """What the script `hosts/NAME_run.py` prints in the host's interpreter."""
    *_, variable, folders = NEEDS[name]
    checkout = os.environ.get(variable, "") if variable else ""
    if variable and not checkout:
        pytest.skip(f"{name} is on no package index: set {variable} to a checkout of its repository")
    paths = [str(ROOT), *(str(Path(checkout) / folder) for folder in folders)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    command = [str(built(name)), str(HOSTS / f"{name}_run.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))
