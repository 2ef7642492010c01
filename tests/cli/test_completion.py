"""Proposals of a shell: verbs, options, recipes, keys, methods, runs."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from agentrl.cli import main


def proposed(lines: Iterable[str], folder: Path) -> list[set[str]]:
    """What bash would show for each line, through the function that the verb prints."""
    script = """
        eval "$(agentrl completion bash)"
        for line in "$@"; do
            COMP_LINE="$line" COMP_POINT=${#line} COMP_TYPE=63 COMP_WORDBREAKS=' '
            COMPREPLY=()
            _python_argcomplete agentrl
            printf '%s\\n' "${COMPREPLY[@]}" "end of a line"
        done
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    env = {**os.environ, "PATH": path}
    words = ["bash", "--norc", "-c", script, "bash", *lines]
    done = subprocess.run(words, env=env, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.stderr == ""
    *shown, rest = done.stdout.split("end of a line\n")
    assert rest == ""
    return [{word.strip() for word in words.splitlines()} - {""} for words in shown]


FITTING = {
    "agentrl tr": {"train"},
    "agentrl train alfworld-cpu optim.muon": {"optim.muon_lr="},
    "agentrl report runs/m": {"runs/mine", "runs/mine/"},
    "agentrl no-such-verb ": set(),
}
MORE = {
    "agentrl train mine.toml --re": {"--resume"},
    "agentrl eval alfworld-": {"alfworld-gen"},
    "agentrl credit gig": {"gigpo"},
    "agentrl check calculator-": {"calculator-cpu"},
    "agentrl check mi": {"mine.toml"},
}


@pytest.mark.parametrize("expected", [FITTING, pytest.param(MORE, marks=pytest.mark.slow)], ids=["few", "more"])
def test_a_shell_is_told_what_fits(expected, tmp_path):
    """One process per line, as in a shell."""
    run = tmp_path / "runs" / "mine"
    run.mkdir(parents=True)
    (run / "config.toml").touch()
    (tmp_path / "mine.toml").touch()
    recipes, *others = proposed(["agentrl train ", *expected], tmp_path)
    assert {"mine.toml", "alfworld-cpu"} <= recipes
    assert dict(zip(expected, others, strict=True)) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_its_lines(shell, capsys):
    assert main(["completion", shell]) == 0
    assert "agentrl" in capsys.readouterr().out


def test_an_unknown_shell_is_one_sentence(capsys):
    assert main(["completion", "tcsh"]) == 2
    error = capsys.readouterr().err
    assert "tcsh" in error and "bash" in error and len(error.splitlines()) == 1
