"""Real packages, each in an environment of its own that uv builds once: `.venv-foreign/NAME`.

`make foreign` runs these tests; PyPI is needed for the first run.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PINS = {
    "inspect_ai": ["inspect-ai==0.3.285"],
    "openenv": ["openenv==0.10.0"],
    "reasoning_gym": ["reasoning-gym==0.1.25"],
    "textarena": ["textarena==0.7.4"],
    "verifiers": ["verifiers==0.4.0"],
}


def built(name: str) -> str:
    """The Python of a package's environment, which is built if it is not there or has other pins."""
    folder = ROOT / ".venv-foreign" / name
    python, mark = folder / "bin" / "python", folder / "pins"
    pins = hashlib.sha256("\n".join(PINS[name]).encode()).hexdigest()
    if mark.is_file() and mark.read_text() == pins:
        return str(python)
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    assert uv is not None, "uv builds the environments of foreign packages: make install has it"
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], check=True)
    install = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python)]
    subprocess.run([*install, *PINS[name]], check=True)
    mark.write_text(pins)
    return str(python)


@pytest.fixture(scope="session")
def reasoning_gym() -> str:
    """A Python that has reasoning_gym."""
    return built("reasoning_gym")


@pytest.fixture(scope="session")
def verifiers() -> str:
    """A Python that has verifiers."""
    return built("verifiers")


@pytest.fixture(scope="session")
def textarena() -> str:
    """A Python that has TextArena."""
    return built("textarena")


@pytest.fixture(scope="session")
def inspect_ai() -> str:
    """A Python that has inspect_ai."""
    return built("inspect_ai")


@pytest.fixture(scope="session")
def openenv() -> str:
    """A Python that has OpenEnv."""
    return built("openenv")
