"""Pythons with packages that agentrl does without, for slow tests against the real ones."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(sys.prefix) / "other"


def python_with(*requirements: str) -> Path:
    """A Python of its own with some packages from the package index; made once, and kept beside the tests' own.

    Args:
        requirements: as pip takes them.
    """
    name = hashlib.sha256("\n".join((sys.version, *requirements)).encode()).hexdigest()[:16]
    folder = FOLDER / name
    python = folder / "bin" / "python"
    if not (folder / "ready").is_file():
        env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True, env=env)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *requirements], check=True, env=env)
        (folder / "ready").touch()
    return python
