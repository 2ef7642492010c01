"""The tutorials of docs/tutorials, followed from the first block to the last in an empty folder.

Files are written as shown, and commands are run in their order. Blocks after `<!-- slow: ... -->` are run in the slow
test only, where runs are smaller than on the page and a toy stands in for the fetched model.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl.cli import main
from tests.project.test_docs_blocks import FILES, commands, of_page
from tests.toys.language_model import model_folder

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials"
NAMES = sorted(page.stem for page in FOLDER.glob("*.md"))
WITH_A_MODEL = {"first-llm-run", "own-agent"}
FEW = {
    "tool-environment": [
        "run.iterations=1",
        "batch.tasks=2",
        "batch.copies=2",
        "warmup.episodes=2",
        "warmup.minibatches=1",
        "warmup.updates=1",
        "update.minibatches=1",
        "eval.tasks=2",
        "eval.modes=['sampled']",
        "model.new={layers=1, hidden=16, heads=2, kv_heads=1, intermediate=16}",
    ],
    "first-llm-run": ["limits.turn_tokens=4", "limits.turns=2"],
    "own-agent": ["limits.turn_tokens=4", "eval.modes=['greedy']"],
}


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An empty folder to work in, which is on the path as it is for `agentrl`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def follow(name: str, folder: Path, slow: bool) -> int:
    """Do what a tutorial says; how many commands were run."""
    ran = 0
    for block in of_page(FOLDER / f"{name}.md"):
        if block.left_out:
            continue
        if block.file and (block.language == "text" or block.file.rpartition(".")[2] == FILES.get(block.language)):
            (folder / block.file).write_text(block.text)
        elif not block.language and (slow or not block.slow):
            for words in commands(block.text):
                run(name, words)
                ran += 1
    return ran


def run(name: str, words: list[str]) -> None:
    """One command, made smaller."""
    if words[0] == "python":
        subprocess.run([sys.executable, *words[1:], "-p", "no:cacheprovider"], check=True)
        return
    words = words[1:]
    if words[0] == "train" and not {"--dry-run", "--explain"} & {*words}:
        words += FEW[name]
    if words[0] == "eval" and "models/smollm2" in words:
        words = [*words, "--turns", "2", "limits.turn_tokens=4"]
    elif words[0] == "eval":
        words = [*words, "--tasks", "4"]
    assert main(words) == 0, words


def test_the_environment_can_be_followed_until_it_trains(empty):
    assert follow("tool-environment", empty, slow=False) >= 6


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_tutorial_can_be_followed(name, empty):
    if name in WITH_A_MODEL:
        model_folder(empty / "models" / "smollm2", num_hidden_layers=10)  # the page adapts the last ten
    assert follow(name, empty, slow=True) >= 4


def test_the_numbers_of_the_credit_method_are_those_it_prints(empty, capsys):
    assert follow("credit-method", empty, slow=False) >= 5
    capsys.readouterr()
    assert main(["credit", "action_value", "--steps", "steps.jsonl", "gamma=1", "--json"]) == 0
    printed = [float(value) for value in re.findall(r'"advantage": ([-.\d]+)', capsys.readouterr().out)]
    page = (FOLDER / "credit-method.md").read_text().replace("−", "-")
    assert all(f"{value:+.2f}" in page for value in printed) and len(printed) == 5
