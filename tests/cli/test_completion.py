"""Proposals of a shell: verbs, options, recipes, keys, methods, runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl.cli import main


def proposed(line: str, folder: Path) -> set[str]:
    """What bash would show for a line, through the function that the verb prints."""
    script = """
        eval "$(agentrl completion bash)"
        COMP_LINE="$1" COMP_POINT=${#1} COMP_TYPE=63 COMP_WORDBREAKS=' '
        _python_argcomplete agentrl
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    env = {**os.environ, "PATH": path}
    words = ["bash", "--norc", "-c", script, "bash", line]
    done = subprocess.run(words, env=env, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.stderr == ""
    return {word.strip() for word in done.stdout.splitlines()} - {""}


def test_a_shell_is_told_what_fits(tmp_path):
    run = tmp_path / "runs" / "mine"
    run.mkdir(parents=True)
    (run / "config.toml").touch()
    (tmp_path / "mine.toml").touch()
    assert proposed("agentrl tr", tmp_path) == {"train"}
    assert {"mine.toml", "alfworld-cpu"} <= proposed("agentrl train ", tmp_path)
    assert proposed("agentrl train alfworld-cpu optim.muon", tmp_path) == {"optim.muon_lr="}
    assert proposed("agentrl train mine.toml --re", tmp_path) == {"--resume"}
    assert proposed("agentrl eval alfworld-", tmp_path) == {"alfworld-gen"}
    assert proposed("agentrl credit gig", tmp_path) == {"gigpo"}
    assert proposed("agentrl report runs/m", tmp_path) == {"runs/mine", "runs/mine/"}
    assert proposed("agentrl check calculator-", tmp_path) == {"calculator-cpu"}
    assert proposed("agentrl check mi", tmp_path) == {"mine.toml"}
    assert proposed("agentrl no-such-verb ", tmp_path) == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_its_lines(shell, capsys):
    assert main(["completion", shell]) == 0
    assert "agentrl" in capsys.readouterr().out


def test_an_unknown_shell_is_one_sentence(capsys):
    assert main(["completion", "tcsh"]) == 2
    error = capsys.readouterr().err
    assert "tcsh" in error and "bash" in error and len(error.splitlines()) == 1
