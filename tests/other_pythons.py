"""Pythons with packages that agentrl does without, for slow tests against the real ones."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
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


def folder_with(package: str, version: str) -> Path:
    """A folder with one version of a package, without what it needs, which the tests' own Python has.

    A Python whose path begins with this folder has this version instead of the installed one. The folder is made once.
    """
    folder = ROOT / ".venv-foreign" / f"{package}-{version}"
    if not (folder / "ready").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder]
        subprocess.run([*command, f"{package}=={version}"], check=True)
        (folder / "ready").touch()
    return folder
