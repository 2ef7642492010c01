"""Test programs run as Python runs them: forms of MBPP and HumanEval, values that are no literals, classes."""

# ruff: noqa: E501  rows and programs are read best in one line
import json
import re

import pytest

from agentrl.envs import code_repair
from agentrl.envs.code_repair import Config
from agentrl.envs.code_repair.functions import read_function
from agentrl.envs.code_repair.two_sandboxes import Program, check_program
from agentrl.envs.code_repair.workspace import runner_of
from agentrl.tool import action as tool_action
from tests.envs.code_repair.forms import HUMANEVAL, MBPP


def blocks(text):
    """(name, parts) of each block."""
    for block in re.split(r"^=== ", text, flags=re.M)[1:]:
        name, _, body = block.partition("\n")
        yield name, re.split(r"\n---\n", body.rstrip("\n"))


def mbpp_rows():
    for name, (code, *tests) in blocks(MBPP):
        setup = tests.pop(0) if name.endswith("(setup)") else ""
        yield name, {"task_id": name, "text": "?", "code": code, "test_list": tests, "test_setup_code": setup}


def humaneval_rows():
    for name, (prompt, solution, test) in blocks(HUMANEVAL):
        entry = name.rpartition(": ")[2]
        made = {"prompt": prompt + "\n", "canonical_solution": solution + "\n", "test": test, "entry_point": entry}
        yield name, {"task_id": name, **made}


ROWS = {**dict(mbpp_rows()), **dict(humaneval_rows())}
OWN = [name for name, row in ROWS.items() if "class " in str(row.get("code", "class "))]  # need their own classes


ALONE = ("pytest style", "module import as", "global state")  # need the module itself


def verdict(row, code=None, timeout_s=20.0):
    function = read_function(row)
    program = Program(**{name: function.hidden[name] for name in Program._fields})
    files = {"solution.py": function.source if code is None else code}
    return check_program(runner_of(Config()), files, program, function.hidden["tests"], timeout_s)


def test_right_answers_without_classes_pass_in_one_pair_of_sandboxes():
    files, tests, names = {}, [], []
    for number, (name, row) in enumerate(ROWS.items()):
        if name not in OWN and name not in ALONE:
            files[f"m{number}.py"] = row["code"]
            names.append(f"m{number}")
            hidden = read_function(row).hidden
            bound = "".join(f"{one} = m{number}.{one}\n" for one in hidden["names"])
            imports = "" if "from __future__" in hidden["context"] else hidden["context"]
            tests += [f"{imports}\n{bound}{test}" for test in hidden["tests"]]
    files["solution.py"] = f"import {', '.join(names)}\n"
    assert len(names) >= 60
    found = check_program(runner_of(Config()), files, Program("solution", names), tests, 20.0)
    assert found.solved, found.failures


QUICK = [name for name in OWN if re.match(r"dataclass|enum$|vector|tree \(|he |raises c", name)]


@pytest.mark.parametrize("name", QUICK)
def test_right_answers_with_classes_pass(name):
    found = verdict(ROWS[name])
    assert found.solved, found.failures


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_every_right_answer_passes_alone_and_a_stub_does_not(name):
    row = ROWS[name]
    found = verdict(row)
    assert found.solved, found.failures
    names = read_function(row).hidden["names"]
    assert not verdict(row, "".join(f"def {one}(*a, **k):\n    raise NotImplementedError\n" for one in names)).solved


def test_a_helper_of_the_prompt_is_not_the_answers():
    # HumanEval/32: check asks poly(xs, find_zero(xs)) to be near 0; an answer may bring a poly that is always 0
    row = {
        "task_id": "HumanEval/32-like",
        "prompt": "import math\n\n\ndef poly(xs: list, x: float):\n    return sum(c * math.pow(x, i) for i, c in"
        ' enumerate(xs))\n\n\ndef find_zero(xs: list):\n    """A zero of poly(xs, x) of degree one."""\n',
        "canonical_solution": "    return -xs[0] / xs[1]\n",
        "test": "def check(candidate):\n    import random\n    for _ in range(100):\n"
        "        xs = [random.randint(-9, 9), random.randint(1, 9)]\n"
        "        assert math.fabs(poly(xs, candidate(xs))) < 1e-4\n",
        "entry_point": "find_zero",
    }
    assert verdict(row).solved
    assert not verdict(row, "def poly(xs, x): return 0\ndef find_zero(xs): return 1.0\n").solved


def test_the_shown_test_counts_for_the_verdict_and_not_for_the_share():
    row = {
        "task_id": 1,
        "text": "?",
        "code": "def f(x): return x * x",
        "test_list": ["assert f(3) == 9", "assert f(1) == 1"],
    }
    found = verdict(row, "def f(x): return x")
    assert (found.solved, found.share) == (False, 0.5)  # the environment passes `shown`; this call does not
    files = read_function(row)
    assert files.hidden["shown"] == 1
    program = Program(**{name: files.hidden[name] for name in Program._fields})
    code = {"solution.py": "def f(x): return x"}
    found = check_program(runner_of(Config()), code, program, files.hidden["tests"], 5.0, shown=1)
    assert (found.solved, found.share) == (False, 1.0)


def test_rows_of_all_columns_are_read_and_played(tmp_path):
    rows = [
        {"task_id": 1, "prompt": "Angle.", "code": "import cmath\ndef angle(a, b):\n    return cmath.phase(complex(a, b))",
         "test_list": ["assert math.isclose(angle(0, 1), 1.5707963267948966)"], "test_imports": ["import math"]},
        {"task_id": 2, "text": "Texts.", "code": "def lines(x):\n    return x.split('\\n')",
         "test_list": ["assert lines('''a\nb''') == ['a', 'b']", "assert lines('') == ['']"]},
        {"task_id": 3, "text": "One text.", "code": "def two(): return 2", "test_list": "assert two() == 2"},
        {"task_id": 4, "text": "JSON.", "code": "def two(): return 2", "test_list": '["assert two() == 2", "assert two()"]'},
    ]  # fmt: skip
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = Config(rows=str(path))
    for task in code_repair.tasks(config):
        env = code_repair.make(config)
        env.reset(task)
        env.step(tool_action.call("write_file", path="solution.py", content=task.params["fixes"][0][2]))
        assert "1 passed, 0 failed" in env.step("run_tests()").observation.text
        result = env.step("submit()")
        env.close()
        assert result.reward == 1.0, task.key


def test_a_row_without_tests_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"task_id": 1, "text": "?", "code": "def f(): pass", "test_list": []}))
    with pytest.raises(ValueError, match=r"row 0 of .* is no task \(ValueError: test_list has no test\)"):
        code_repair.tasks(Config(rows=str(path)))


def test_the_last_step_says_why_checks_failed(tmp_path):
    row = {"task_id": 1, "text": "?", "code": "def f():\n    return 5", "test_list": ["assert f() == 5"]}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row))
    config = Config(rows=str(path))
    (task,) = code_repair.tasks(config)
    env = code_repair.make(config)
    env.reset(task)
    code = "class Five:\n    def __eq__(self, other): return True\ndef f(): return Five()\n"
    env.step(tool_action.call("write_file", path="solution.py", content=code))
    result = env.step("submit()")
    env.close()
    assert result.reward == 0.0 and result.info["refused_checks"] == 1
    assert "an object of the agent's class Five was compared with an object of int" in result.info["result"]
