"""Repairing small programs: mistakes that are real, verdicts that cannot be talked into, files that are read."""

import json
import pickle

import pytest

from agentrl.envs import code_repair
from agentrl.envs.code_repair import Config, judge, workspace
from agentrl.envs.code_repair.functions import read_function
from agentrl.envs.code_repair.mutate import apply, mutations
from agentrl.envs.code_repair.programs import VISIBLE, programs
from agentrl.envs.code_repair.tasks import held_out, offered_edit, solvable
from agentrl.envs.code_repair.two_sandboxes import Program, check_program
from agentrl.envs.code_repair.verify import outcomes, tasks_of, verified
from agentrl.envs.code_repair.workspace import runner_of, unique_edit
from agentrl.gym import check_env
from agentrl.tool import CodeResult, ToolFault, action as tool_action

HUMANEVAL = {
    "task_id": "HumanEval/900",
    "prompt": 'def add(x: int, y: int):\n    """Add two numbers.\n    >>> add(2, 3)\n    5\n    """\n',
    "canonical_solution": "    return x + y\n",
    "test": "import random\n\ndef check(candidate):\n    assert candidate(2, 3) == 5\n    for _ in range(5):\n"
    "        x, y = random.randint(0, 9), random.randint(0, 9)\n        assert candidate(x, y) == x + y\n",
    "entry_point": "add",
}
MBPP = {
    "task_id": 601,
    "text": "Write a function to double each number.",
    "code": "def twice(values):\r\n    return [2 * v for v in values]",
    "test_list": ["assert twice([1]) == [2]", "assert twice([]) == []", "assert twice([0, -1]) == [0, -2]"],
    "test_setup_code": "",
    "challenge_test_list": [],
}


@pytest.fixture(scope="module")
def runner():
    return runner_of(Config())


def play(task, actions, config=None):
    """(last result, all texts) of some calls."""
    env = code_repair.make(config or Config())
    texts = [env.reset(task).text]
    for action in actions:
        result = env.step(action)
        texts.append(result.observation.text)
        if result.terminated:
            break
    env.close()
    return result, texts


def find(key, config=None):
    return next(task for task in code_repair.tasks(config or Config()) if task.key == key)


def test_the_values_of_visible_tests_written_into_the_code_earn_no_share(runner):
    program = programs()["median"]
    task = next(task for task in code_repair.tasks(Config()) if "/median/" in task.key)
    code = "def median(values):\n" + "".join(
        f"    if values == {call.expression.partition('(')[2][:-1]}: return {call.expected}\n"
        for call in program.calls[:VISIBLE]
    )
    visible, hidden = [program.test_file()], task.params["hidden"]["calls"]
    files = {"median.py": code}
    plain = judge.check_calls(runner, files, hidden, 5.0)
    assert plain.passed >= VISIBLE and plain.share > 0  # what it earned before
    verdict = judge.check_calls(runner, files, hidden, 5.0, visible)
    assert (verdict.passed, verdict.share, verdict.solved) == (VISIBLE, 0.0, False)
    shared, _ = play(
        task,
        [tool_action.call("write_file", path="median.py", content=code), tool_action.call("submit")],
        Config(reward="share"),
    )
    assert shared.reward == 0.0 and not shared.info["success"]
    right = judge.check_calls(runner, {"median.py": program.source}, hidden, 5.0, visible)
    assert right.solved and right.share == 1.0
    only_visible = [call for call in hidden if call[1] in visible[0]]
    assert judge.check_calls(runner, files, only_visible, 5.0, visible).share == 1.0  # nothing is unseen: solved or not


@pytest.mark.parametrize("depth", [10, 5_000])
def test_programs_that_nest_deeply_or_hold_odd_line_ends_are_read(depth):
    assert isinstance(mutations(f"x = {'not ' * depth}1\ny = {'(' * depth}1{')' * depth}"), list)
    source = 's = "a\u2028b\x0cc\x85d"\r\nt = 1 < 2\n'
    assert {apply(source, m) for m in mutations(source)} >= {source.replace("1 < 2", "1 <= 2")}


def test_mutations_by_hand():
    source = "def f(a, b):\n    return a < b and not a\n"
    told = {(m.kind, apply(source, m).split("return ")[1].strip()) for m in mutations(source)}
    assert told == {
        ("relation", "a <= b and not a"),
        ("relation", "a > b and not a"),
        ("logic", "a < b or not a"),
        ("negation", "a < b and a"),
    }
    assert mutations("def f(:") == []


@pytest.mark.parametrize("name", list(programs()))
def test_every_mutation_changes_one_place_and_can_be_undone(name):
    source = programs()[name].source
    for m in mutations(source):
        broken = apply(source, m)
        compile(broken, name, "exec")
        old, new = unique_edit(broken, m.start, m.start + len(m.text), source[m.start : m.end])
        assert broken.count(old) == 1 and broken.replace(old, new) == source


def test_the_corpus_is_large_and_varied_enough():
    # 48 programs; 523 of their mutations were found to make a task.
    assert len(programs()) >= 40 and sum(map(len, verified().values())) >= 300
    assert all(len(program.calls) >= VISIBLE + 3 and program.purpose for program in programs().values())
    for level, count in ((1, 1), (2, 3), (3, 3)):
        task = code_repair.tasks(Config(level=level))[7]
        assert len(task.params["files"]) == 2 * count and len(task.params["fixes"]) == (2 if level == 3 else 1)


@pytest.mark.parametrize("name", ["median", "evaluate"])
def test_verified_mistakes_of_a_program_fail_and_the_original_passes(runner, name):
    assert list(tasks_of(runner, programs()[name])) == verified()[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", list(programs()))
def test_all_verified_mistakes(runner, name):
    program = programs()[name]
    assert all(outcomes(runner, program, program.source))
    assert list(tasks_of(runner, program)) == verified()[name]


def test_programs_are_split_without_overlap():
    names = {
        split: {t.key.split("/")[2] for t in code_repair.tasks(Config(programs=split))} for split in ("train", "test")
    }
    assert not names["train"] & names["test"] and len(names["train"] | names["test"]) == len(verified())
    assert all(held_out(name) for name in names["test"]) and len(names["test"]) >= 5


@pytest.mark.parametrize("config", [Config(), pytest.param(Config(level=3, prompt="compact"), marks=pytest.mark.slow)])
def test_promises(config):
    assert check_env(code_repair, config, tasks=1, steps=4) == []


@pytest.mark.parametrize("level", [1, 2, 3])
def test_the_expert_repairs_and_chance_does_not(level):
    config = Config(level=level)
    listed = code_repair.tasks(config)
    solved = {}
    for name in code_repair.EXPERTS:
        solved[name] = 0
        for task in [listed[i] for i in range(0, len(listed), len(listed) // 5)]:
            env = code_repair.make(config)
            player = code_repair.expert(env, name, 0)
            observation = env.reset(task)
            player.reset(task)
            for _ in range(6):
                result = env.step(player.act(observation).action)
                observation = result.observation
                if result.terminated:
                    break
            solved[name] += bool(result.info["success"])
            env.close()
    assert solved["expert"] >= 5 and solved["random"] <= 2


def test_in_the_compact_form_the_expert_plays_what_is_offered_also_where_that_does_not_solve_the_task():
    config = Config(prompt="compact")
    listed = code_repair.tasks(config)
    hard = next(i for i in range(len(listed)) if not solvable(listed[i]))
    for task, solved in ((listed[0], True), (listed[hard], False)):
        assert solvable(task) == solved
        env = code_repair.make(config)
        expert = code_repair.expert(env, "expert", 0)
        expert.reset(task)
        seen, ended, result = env.reset(task), False, None
        while not ended:
            action = expert.act(seen).action
            assert action in seen.actions
            result = env.step(action)
            seen, ended = result.observation, result.terminated
        assert (result.reward == 1) == solved
        env.close()


def test_an_offered_change_is_one_that_means_the_same():
    # `a < b` may become `a <= b` as one token or as the whole comparison; `100` for `1` is no single change
    source = "def f(a, b):\n    return a < b\n"
    pair = offered_edit("f.py", source, "    return a < b", "    return a <= b")
    assert pair is not None and source.replace(*pair) == "def f(a, b):\n    return a <= b\n"
    assert offered_edit("f.py", source, "    return a < b", "    return 100") is None


def test_tools_by_hand():
    task = find("code_repair/1/median/0")
    (path, old, new) = task.params["fixes"][0]
    result, texts = play(
        task,
        [
            "list_files()",
            tool_action.call("read_file", path="nothing.py"),
            tool_action.call("replace", path=path, old="no such text", new=""),
            tool_action.call("write_file", path="../outside.py", content=""),
            tool_action.call("write_file", path="/etc/passwd", content=""),
            "run_tests()",
            tool_action.call("replace", path=path, old=old, new=new),
            "run_tests()",
            "submit()",
        ],
    )
    assert texts[1] == "median.py\ntest_median.py"
    assert "there is no file 'nothing.py': the files are median.py, test_median.py" in texts[2]
    assert "is not in median.py" in texts[3] and "no path inside" in texts[4] and "no path inside" in texts[5]
    assert texts[6] == "test_median.py: test_3 failed: IndexError: list index out of range\n2 passed, 1 failed"
    assert texts[8] == "3 passed, 0 failed"
    assert result.terminated and result.reward == 1.0 and result.info["signals"]["share"] == 1.0


def test_giving_up_is_scored_by_what_the_files_do():
    task = find("code_repair/1/median/0")
    result, _ = play(task, [tool_action.answer("I give up")])
    assert result.terminated and result.reward == 0.0 and 0 <= result.info["signals"]["share"] < 1
    shared, _ = play(task, [tool_action.answer("I give up")], Config(reward="share"))
    assert shared.reward == result.info["signals"]["share"]


CHEATS = {
    "weaker tests": {"test_median.py": "def test_1():\n    pass\n"},
    "leave before the checks": {"median.py": "import os\nos._exit(0)\n"},
    "forge the values": {
        "median.py": "import atexit, json\natexit.register(lambda: print(json.dumps(['2'] * 99)))\n"
        "def median(values):\n    return 0\n"
    },
    "an object equal to all": {
        "median.py": "class Yes:\n    def __eq__(self, other):\n        return True\n\n"
        "def median(values):\n    return Yes()\n"
    },
    "replace json": {"median.py": "import json\njson.dumps = lambda value: '[]'\ndef median(values):\n    return 0\n"},
    "hang": {"median.py": "while True:\n    pass\n"},
    "use the network": {
        "median.py": "import socket\nsocket.create_connection(('127.0.0.1', 80))\ndef median(values):\n    return 2\n"
    },
    "binary": {"median.py": "\x00\x01"},
    "a syntax error": {"median.py": "def median(:"},
}


@pytest.mark.parametrize("name", CHEATS)
def test_no_cheat_is_paid(name):
    task = find("code_repair/1/median/0")
    writes = [tool_action.call("write_file", path=path, content=text) for path, text in CHEATS[name].items()]
    result, texts = play(task, [*writes, "run_tests()", "submit()"], Config(timeout_s=0.5))
    assert result.terminated and result.reward == 0.0 and not result.info["success"]
    assert all(isinstance(text, str) and len(text) < 3000 for text in texts)


def test_a_lost_sandbox_is_no_reward(monkeypatch):
    class Lost:
        backend = "lost"

        def session(self, files=None, *, stateful=True):
            return self

        def run(self, code, timeout_s=None, *, stdin="", fetch=()):
            return CodeResult(infra_error="no room", backend="lost", exit_code=None)

        def close(self):
            pass

    monkeypatch.setattr(workspace, "runner_of", lambda config: Lost())
    env = code_repair.make(Config())
    env.reset(find("code_repair/1/median/0"))
    for action in ("run_tests()", "submit()"):
        with pytest.raises(ToolFault, match="the lost sandbox failed: no room"):
            env.step(action)


def test_snapshots_keep_their_own_files():
    env = code_repair.make(Config())
    task = find("code_repair/1/median/0")
    env.reset(task)
    saved = pickle.loads(pickle.dumps(env.snapshot()))
    env.step(tool_action.call("write_file", path="median.py", content="x"))
    env.restore(saved)
    assert env.files == task.params["files"]


@pytest.mark.parametrize(
    "row", [pytest.param(HUMANEVAL, id="humaneval", marks=pytest.mark.slow), pytest.param(MBPP, id="mbpp")]
)
def test_files_of_functions(tmp_path, row):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n")
    config = Config(rows=str(path))
    (task,) = code_repair.tasks(config)
    name = "add" if row is HUMANEVAL else "twice"
    assert "solution.py" in task.params["statement"]
    assert play(task, ["submit()"], config)[0].reward == 0.0
    right = task.params["fixes"][0][2]
    write = [tool_action.call("write_file", path="solution.py", content=right), "submit()"]
    assert play(task, write, config)[0].reward == 1.0
    wrong = right.replace("x + y", "x - y").replace("2 * v", "v * v")
    write = [tool_action.call("write_file", path="solution.py", content=wrong), "submit()"]
    assert play(task, write, config)[0].reward == 0.0
    for body in (
        "raise SystemExit",
        "class SystemExit(Exception): pass\n    raise SystemExit()",
        "import sys; sys.exit(0)",
    ):
        cheat = f"def {name}(*a):\n    {body}\n"
        write = [tool_action.call("write_file", path="solution.py", content=cheat), "submit()"]
        assert play(task, write, config)[0].reward == 0.0, body
    assert check_env(code_repair, config, tasks=1, steps=3) == []


def test_repairing_the_solutions_of_a_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(HUMANEVAL) + "\n")
    config = Config(rows=str(path), mode="repair")
    (task,) = code_repair.tasks(config)
    assert task.params["files"]["solution.py"] != HUMANEVAL["prompt"] + HUMANEVAL["canonical_solution"]
    edit = dict(zip(("path", "old", "new"), task.params["fixes"][0], strict=True))
    assert play(task, [tool_action.call("replace", **edit), "submit()"], config)[0].reward == 1.0


def test_checks_of_a_program_are_counted(runner):
    solution = {"solution.py": "def f(x):\n    if x > 2:\n        raise KeyError(x)\n    return (x, [x])\n"}
    tests = [
        "assert f(1) == (1, [1])",
        "assert f(2) == (2, [3])",
        "try:\n    f(3)\nexcept KeyError:\n    pass\nelse:\n    assert False",
        "assert f(f(0)[0])[1][0] == 0",
    ]
    verdict = check_program(runner, solution, Program("solution", ["f"]), tests, 3.0)
    assert (verdict.passed, verdict.total, verdict.share) == (3, 4, 0.75)


def test_bad_files_are_one_sentence(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "?"}\n')
    with pytest.raises(ValueError, match=r"row 0 of .* is no task \(KeyError: 'code'\); it needs the columns of"):
        code_repair.tasks(Config(rows=str(path)))
    with pytest.raises(ValueError, match="no task has level 1"):
        code_repair.tasks(Config(kinds=("nonsense",)))


ADD = {"prompt": 'def add(a, b):\n    """Sum."""\n', "canonical_solution": "    return a + b\n", "entry_point": "add"}


@pytest.mark.parametrize(
    "test",
    [
        "def verify(f):\n    assert f(1, 2) == 3\n",
        "def check(candidate):\n    pass\n",
        "METADATA = {'author': 'jt'}\n",
        "def helper(f):\n    assert f(1, 2) == 3\ndef check(candidate):\n    helper(sum)\n",
    ],
)
def test_a_row_whose_test_never_runs_the_function_is_refused(test):
    with pytest.raises(ValueError, match="never runs add, so every answer would pass"):
        read_function({**ADD, "test": test})


@pytest.mark.parametrize(
    "test",
    [
        "def check(f):\n    assert f(1, 2) == 3\n",
        "def helper(f):\n    assert f(1, 2) == 3\ndef check(candidate):\n    helper(candidate)\n",
        "def verify():\n    assert add(1, 2) == 3\nverify()\n",
        "def test_add():\n    assert add(1, 2) == 3\n",
        "import solution\nassert solution.add(1, 2) == 3\n",
        "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(add(1, 2), 3)\n",
        "assert eval('add(1, 2)') == 3\n",
    ],
)
def test_a_row_whose_test_runs_the_function_is_read(test):
    assert read_function({**ADD, "test": test}).hidden["tests"]


def test_a_row_of_tests_about_nothing_is_refused():
    row = {
        "text": "Add.",
        "code": "def add(a, b):\n    return a + b\n",
        "test_list": ["assert True", "assert 1 + 1 == 2"],
    }
    with pytest.raises(ValueError, match="tests use nothing that its code defines"):
        read_function(row)
    assert read_function({**row, "test_list": ["import solution\nassert solution.add(1, 2) == 3"]}).hidden["tests"]
