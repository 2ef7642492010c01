"""The package: light to import, its links and guards in place, and the wheel holds what the tree holds."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from agentrl.cli import main
from tests.cpu_seconds import least_seconds

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "agentrl": "agentrl",
    "envs": "agentrl/envs",
    "algorithms": "agentrl/algorithms",
    "tools": "agentrl/tools",
    "benchmarks/recipes": "agentrl/recipes",
}
LINKS = {"envs": "../envs", "algorithms": "../algorithms", "tools": "../tools", "recipes": "../benchmarks/recipes"}
NEED_NO_MODEL = ["catalogue", "chat", "config", "credit", "env", "evaluate", "graph"]
NEED_NO_MODEL += ["gym", "report", "rollout", "settings", "tool", "tool_env", "types"]


def python(code: str, *, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True)


def test_importing_agentrl_is_quick_and_loads_no_torch():
    code = "import agentrl, sys; print(*{'torch', 'transformers', 'gymnasium', 'openai'} & set(sys.modules))"
    most = 4 * least_seconds("-c", "pass")
    assert least_seconds("-c", code, enough=most) < most
    assert python(code).stdout == "\n"


def test_what_needs_no_model_loads_no_torch():
    code = (
        f"import importlib, sys\nfor name in {NEED_NO_MODEL}:\n    importlib.import_module('agentrl.' + name)\n"
        "    print(name, *{'torch', 'transformers'} & {*sys.modules})"
    )
    done = python(code)
    assert done.stdout.split() == NEED_NO_MODEL, done.stderr


@pytest.mark.parametrize("name", ["envs", "algorithms", "tools"])
def test_a_catalogue_is_a_link_and_its_bare_name_is_refused(name):
    link = ROOT / "agentrl" / name
    assert link.is_symlink() and os.readlink(link) == f"../{name}"
    done = python(f"import {name}")
    assert done.returncode != 0 and f"ImportError: import agentrl.{name}" in done.stderr
    assert python(f"import agentrl.{name}").returncode == 0


def sources(folder: Path) -> set[str]:
    """What a wheel should hold of a folder: every file but what is made."""
    found = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return {str(p) for p in found if not {"__pycache__", "agentrl", *LINKS} & set(p.parts[:-1])}


def test_the_recipes_are_a_link():
    assert os.readlink(ROOT / "agentrl" / "recipes") == LINKS["recipes"]


def built_wheel(tmp_path: Path) -> Path:
    """The wheel of a copy of the tree at `tmp_path / "tree"`."""
    copy = tmp_path / "tree"
    copy.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in FOLDERS:
        ignore = shutil.ignore_patterns("__pycache__", *(LINKS if name == "agentrl" else ()))
        shutil.copytree(ROOT / name, copy / name, ignore=ignore)
    for name, target in LINKS.items():
        (copy / "agentrl" / name).symlink_to(target)
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
        str(copy),
    ]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return built_wheel(tmp_path_factory.mktemp("wheel"))


def environment_with(*wheels: Path, folder: Path) -> Path:
    """The Python of a new environment that has the wheels, and beside them what agentrl depends on, but not agentrl."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    install = ["install", "-q", "--no-deps", "--no-index", "--no-compile", "--ignore-installed"]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, *install, *wheels], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    # A plain path: files .pth in it, such as that of an editable install of agentrl, are not followed.
    (site / "dependencies.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    return python


def test_the_wheel_holds_what_the_tree_holds(wheel):
    copy = wheel.parent / "tree"
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {f"{prefix}/{name}" for folder, prefix in FOLDERS.items() for name in sources(copy / folder)}
    assert held == expected
    assert "agentrl/envs/alfworld/scenes.json.gz" in held and "agentrl/py.typed" in held


@pytest.mark.slow
def test_a_package_of_agentrl_new_works_where_both_wheels_are_installed(wheel, tmp_path):
    """`agentrl new env` in a folder, its wheel built and installed in a new environment, used from an empty folder."""
    assert main(["new", "env", "guess_it", "--into", str(tmp_path)]) == 0
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, tmp_path / "guess_it"]
    subprocess.run(build, check=True, capture_output=True)
    (own,) = tmp_path.glob("agentrl_guess_it-*.whl")
    assert {"agentrl_guess_it.py"} == {n for n in zipfile.ZipFile(own).namelist() if ".dist-info/" not in n}
    python = environment_with(wheel, own, folder=tmp_path / "venv")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(tmp_path / "guess_it" / "test_guess_it.py", elsewhere)
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run(*words: str) -> str:
        command = [python, "-m", *words]
        done = subprocess.run(command, cwd=elsewhere, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "3 passed" in run("pytest", "-q", "-p", "no:cacheprovider", "test_guess_it.py")
    assert run("agentrl", "check", "guess_it", "--tasks", "2").startswith("guess_it: all holds")
    place = "import agentrl, agentrl_guess_it as own; print(agentrl.__file__, own.__file__)"
    done = subprocess.run([python, "-c", place], cwd=elsewhere, env=env, capture_output=True, text=True, check=True)
    assert all(file.startswith(str(tmp_path / "venv")) for file in done.stdout.split())


@pytest.mark.slow
def test_an_installed_wheel_knows_its_recipes_in_any_folder(wheel, tmp_path):
    venv, elsewhere = tmp_path / "venv", tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment_with(wheel, folder=venv)
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def agentrl(*words: str) -> str:
        done = subprocess.run(
            [venv / "bin" / "agentrl", *words], cwd=elsewhere, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    place = subprocess.run(
        [venv / "bin" / "python", "-c", "import agentrl; print(agentrl.__file__)"],
        cwd=elsewhere, env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert place.stdout.startswith(str(venv))
    for path in (ROOT / "benchmarks" / "recipes").glob("*.toml"):
        assert f"{path.stem} " in agentrl("recipes")
    assert 'name = "alfworld-cpu"' in agentrl("train", "alfworld-cpu", "--dry-run")
    assert not list(elsewhere.iterdir())


@pytest.mark.slow
def test_the_import_rules_hold():
    done = subprocess.run([Path(sys.executable).parent / "lint-imports"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
