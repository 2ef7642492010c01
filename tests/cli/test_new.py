"""`agentrl new`: what it writes passes its own tests and, installed, is known by name."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl import catalogue
from agentrl.cli import main


@pytest.fixture
def written(tmp_path, capsys):
    """Both packages, in a folder of their own."""
    for kind, name in (("env", "guess_it"), ("tool", "words_of")):
        assert main(["new", kind, name, "--into", str(tmp_path)]) == 0
    assert "pip install" in capsys.readouterr().out
    return tmp_path


def run(folder: Path, *words: str, **more: str) -> str:
    env = {**os.environ, "OMP_NUM_THREADS": "1", **more}
    done = subprocess.run([sys.executable, "-m", *words], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_written_tests_pass(written, monkeypatch):
    others = (("env", "config"), ("env", "none"), ("tool", "field"), ("tool", "base_model"))  # the files' own words
    for kind, name in others:
        assert main(["new", kind, name, "--into", str(written)]) == 0
    for name in ("guess_it", "words_of", *(name for _, name in others)):
        monkeypatch.syspath_prepend(written / name)
        written_tests = vars(importlib.import_module(f"test_{name}"))
        tests = [value for key, value in written_tests.items() if key.startswith("test_")]
        assert len(tests) >= 2
        for test in tests:
            test()


def test_an_entry_point_makes_them_known_by_name(written, monkeypatch, capsys):
    """As pip would leave it: a dist-info folder beside the module."""
    for name, group in (("guess_it", "envs"), ("words_of", "tools")):
        info = written / name / f"agentrl_{name}-0.1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: agentrl-{name}\nVersion: 0.1.0\n")
        (info / "entry_points.txt").write_text(f"[agentrl.{group}]\n{name} = agentrl_{name}\n")
        monkeypatch.syspath_prepend(written / name)
    catalogue.forget()
    try:
        assert "words_of" in catalogue.names("tools")
        assert main(["envs", "--json"]) == 0
        listed = {row["name"]: row["about"] for row in json.loads(capsys.readouterr().out)}
        assert listed["guess_it"].startswith("GuessIt:")
        assert main(["eval", "guess_it", "--policy", "random", "--tasks", "3"]) == 0
        assert "guess_it" in capsys.readouterr().out
    finally:
        catalogue.forget()


@pytest.mark.slow
def test_installed_with_pip_they_are_listed(written):
    target = written / "site"
    install = ("pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(target))
    run(written, *install, "./guess_it", "./words_of")
    assert "guess_it" in run(written, "agentrl", "envs", PYTHONPATH=str(target))
    assert "all holds" in run(written, "agentrl", "check", "guess_it", PYTHONPATH=str(target))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["new", "env", "Bad-Name"], "'Bad-Name' is no name"),
        (["new", "env", "alfworld"], "env 'alfworld' exists already"),
        (["new", "tool", "calculator"], "tool 'calculator' exists already"),
        (["new", "thing", "x"], "invalid choice: 'thing'"),
    ],
)
def test_names_that_cannot_be_are_refused(words, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert sentence in capsys.readouterr().err and list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    assert main(["new", "env", "mine", "--into", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err and list((tmp_path / "mine").iterdir()) == []
