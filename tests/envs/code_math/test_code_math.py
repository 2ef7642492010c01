"""Problems with an interpreter: answers, conventions, rewards, files, lost sandboxes."""

import json
import pickle

import pytest

from agentrl.cli import main
from agentrl.config import Entry, validate
from agentrl.env import kind_of, tasks_of
from agentrl.envs import code_math
from agentrl.envs.code_math import Config, problem
from agentrl.envs.code_math.answers import same
from agentrl.envs.code_math.environment import operations
from agentrl.envs.code_math.problems import LEVELS, generate
from agentrl.gym import check_env
from agentrl.tool import CodeResult, ToolFault, action as tool_action, describe_code, fenced_code, with_print

EQUAL = [
    ("42", "42"), ("42.0", "42"), ("1,234", "1234"), ("\\frac{1}{2}", "0.5"), ("\\dfrac12", "1/2"),
    ("1/2", "\\frac{2}{4}"), ("$5", "5"), ("5 dollars", "5"), ("50%", "50"), ("x=3", "3"), ("(1,2)", "(1, 2)"),
    ("\\{1,2\\}", "\\{2,1\\}"), ("3 1/2", "3.5"), ("-\\frac{3}{4}", "-0.75"), ("\\text{Monday}", "monday"),
    ("10\\text{ cm}", "10"), ("2\\sqrt{3}", "2 \\sqrt{3}"), ("90^\\circ", "90"), ("0.333333333333", "1/3"),
    ("[1,2)", "[1,2)"), ("1e3", "1000"), ("x^{2}", "x^2"), ("−5", "-5"), ("5.", "5"),
    ("{2,1,1}", "{1,2,1}"), ("{1/3,(1.0,2),(1,3)}", "{(1,2),0.333333333333,(1,3)}"), ("(1,2),(3,4)", "(1, 2), (3, 4)"),
    ("5 km", "5"), ("5\\%", "5"), ("5 percent", "5%"), ("\\$5", "5 dollars"), ("90 degrees", "90^{\\circ}."),
    ("10\\text{ cm}", "10 centimeters"), ("8\\text{ students}", "8\\text{ people}"), ("5 units", "5 cm"),
    ("-\\frac{3}{4}", "-(3/4)"), ("1.0e400", "1e400"),
]  # fmt: skip
DIFFERENT = [
    ("42", "43"), ("", ""), ("0.33", "1/3"), ("(1,2)", "(2,1)"), ("[1,2)", "(1,2)"), ("1", "10"), ("abc", "abd"),
    ("{1,1}", "{1,2}"), ("{1,2,2}", "{1,1,2}"), ("{1,1}", "{1}"), ("[1,2)", "[1,2]"), ("(1,2)", "1,2"),
    ("5 km", "5 m"), ("5%", "5 km"), ("5%", "0.05"), ("\\$5", "5 cents"), ("1 km", "1000 m"), ("{5 km,1}", "{5 m,1}"),
    ("10\\text{ cm}", "10\\text{ m}"), ("1.0e400", "2"), ("(1/2)/(3/4)", "3/8"), ("a/" * 490, "1"),
    ("1,2", "12"), ("9" * 2000, "9" * 1999), ("1e999999", "1"), ("1,3", "13"), ("1/0", "0"), ("(" * 900, "1"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "expected"), EQUAL)
def test_equal_answers(given, expected):
    assert same(given, expected) and same(expected, given), (given, expected)


@pytest.mark.parametrize(("given", "expected"), DIFFERENT)
def test_different_answers(given, expected):
    assert not same(given, expected) and not same(expected, given)


def test_units_are_ignored_on_request():
    for given, expected in [("5 km", "5 m"), ("{5 km,1}", "{1,5 m}"), ("5%", "5\\text{ cm}")]:
        assert same(given, expected, "ignore") and not same(given, expected)
    assert not same("5 km", "6 m", "ignore")
    task = code_math.tasks(Config())[0]
    for units, paid in (("agree", 0.0), ("ignore", 1.0)):
        config = Config(units=units)
        env = code_math.make(config)
        env.reset(task)
        env.inner.instance._target += " km"
        answer = tool_action.answer(f"\\boxed{{{task.params['target']} m}}")
        assert env.step(answer).reward == paid
        env.close()


@pytest.mark.parametrize("level", LEVELS)
def test_problems_are_theirs_seeds_and_their_expressions_value(level):
    for seed in range(30):
        made = generate(level, seed)
        assert made == generate(level, seed) and made.question
        assert str(eval(made.expression)) == made.answer
    assert len({generate(level, seed).question for seed in range(100)}) > 95


def test_a_task_is_the_problem_of_its_level_and_seed():
    tasks = code_math.tasks(Config(level=0, count=3, seed=5, split="all"))
    named = {task.key.removeprefix("code_math/"): task.params["question"] for task in tasks}
    assert named == {f"{level}/{seed}": generate(level, seed).question for level in LEVELS for seed in (5, 6, 7)}


def test_operations_by_hand():
    # ( 2 + 3 ) * 4: first 2 + 3 = 5, then 5 * 4.
    assert list(operations("( 2 + 3 ) * 4")) == ["2 + 3", "5 * 4"]
    assert list(operations("7 * 2 + 9 // 4")) == ["7 * 2", "9 // 4", "14 + 2"]
    assert list(operations("sum(range(3))")) == ["sum(range(3))"]


def play(config, answers, seed=0):
    """(last result, texts) of actions on the first problem."""
    env = code_math.make(config)
    texts = [env.reset(code_math.tasks(config)[seed]).text]
    for action in answers:
        result = env.step(action)
        texts.append(result.observation.text)
    env.close()
    return result, texts


def run(code):
    return tool_action.call("code_interpreter", code=code)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow),  # tests/contracts checks the default options in five steps
        pytest.param({"prompt": "compact", "level": 2}, marks=pytest.mark.slow),
        pytest.param({"convention": "torl", "level": 4}, marks=pytest.mark.slow),
        pytest.param({"stateful": True, "level": 0}, marks=pytest.mark.slow),
    ],
)
def test_promises(options):
    assert check_env(code_math, Config(**options), tasks=1, steps=3) == []


@pytest.mark.parametrize(
    ("level", "form"),
    [(1, "compact"), (2, "compact"), (3, "compact"), pytest.param(4, "chat", marks=pytest.mark.slow), (3, "chat")],
)
def test_the_expert_is_right_and_plays_listed_actions(level, form):
    config = Config(level=level, prompt=form)
    env, listed = code_math.make(config), code_math.tasks(config)
    for task in [listed[i] for i in range(3)]:
        player, observation = code_math.expert(env, "expert", 0), env.reset(task)
        player.reset(task)
        for _ in range(6):
            action = player.act(observation).action
            assert form == "chat" or action in observation.actions
            result = env.step(action)
            observation = result.observation
            if result.terminated:
                break
        assert result.reward == 1.0 and result.info["success"]
    env.close()


def test_compact_words():
    config = Config(prompt="compact")
    words = code_math.prompt(config)
    observation = code_math.make(config).reset(code_math.tasks(config)[0])
    assert words.answer(run("12 * 7")) == "run 12 * 7" and words.answer(tool_action.answer("84")) == "answer 84"
    assert words.parse("run 12 * 7", observation).action == run("12 * 7")
    assert not words.parse("hm", observation).valid
    # Two numbers: 2 ordered pairs times 5 operators, and 2 answers.
    assert len(observation.actions) == 2 * 5 + 2


def test_stateless_and_stateful():
    code = [run("x = 5"), run("x + 1")]
    assert "NameError" in play(Config(), code)[1][2]
    assert play(Config(stateful=True), code)[1][2] == "6"


def test_a_copy_of_a_stateful_episode_goes_on_alike():
    config = Config(stateful=True)
    env = code_math.make(config)
    env.reset(code_math.tasks(config)[0])
    env.step(run("x = 41"))
    saved = pickle.loads(pickle.dumps(env.snapshot()))
    env.step(run("x = 0"))
    env.restore(saved)
    assert env.step(run("x + 1")).observation.text == "42"
    env.close()


def test_torl_words():
    config = Config(convention="torl")
    assert config.call_format == "fenced" and Config(convention="torl", call_format="hermes").call_format == "hermes"
    _, texts = play(config, [run("print('a' * 200 + 'b' * 200)"), run("1/0"), run("pass")])
    assert texts[1] == "```output\n" + "a" * 128 + "..." + "b" * 128 + "\n```"
    assert texts[2] == "```output\nZeroDivisionError: division by zero\n```"
    assert "TimeoutError" in texts[3]


def test_retool_words():
    config = Config(convention="retool", timeout_s=3.0)
    _, texts = play(config, [run("```python\nprint(3)\n```"), run("1/0"), run("import time; time.sleep(60)")])
    assert texts[1] == "3\n" and texts[2].startswith("Traceback") and texts[3] == "no stdout here"
    assert with_print("a = 1\na + 1") == "a = 1\nprint(a + 1)" and with_print("print(2)") == "print(2)"
    assert fenced_code("so\n```py\nx\n```\n```\ny\n```") == "x\n" and fenced_code("x") is None


def test_plain_words():
    assert describe_code(CodeResult(stdout="a\n", result_text="5")) == "a\n5"
    assert describe_code(CodeResult()) == "Finished, no output."
    assert describe_code(CodeResult(exit_code=3)) == "Finished with exit code 3."
    long = describe_code(CodeResult(stdout="x" * 10 + "y" * 10), limit=6)
    assert long == "xxx\n[... 14 characters left out ...]\nyyy"


@pytest.mark.parametrize(
    ("convention", "right", "calls", "reward"),
    [
        # ReTool: wrong pays min(-0.6, -1 + 0.1 * turns with calls): -1, -0.9, and never above -0.6.
        ("retool", True, ["1"], 1.0),
        ("retool", False, [], -1.0),
        ("retool", False, ["1"], -0.9),
        ("retool", False, ["1"] * 6, -0.6),
        # ToRL: +1 or -1, and -0.5 where code was run and none of it ran well.
        ("torl", True, [], 1.0),
        ("torl", False, ["1/0"], -1.5),
        ("torl", False, ["1/0", "1"], -1.0),
        ("exact", True, ["1/0"], 1.0),
        ("exact", False, [], 0.0),
    ],
)
def test_rewards_by_hand(convention, right, calls, reward):
    config = Config(reward=convention, sandbox={"name": "python_sandbox"})
    target = code_math.tasks(config)[0].params["target"]
    answer = f"\\boxed{{{target if right else '0.5'}}}"
    result, _ = play(config, [*map(run, calls), tool_action.answer(answer)])
    assert result.reward == pytest.approx(reward) and result.info["success"] == right
    assert result.info["signals"]["calls"] == len(calls)


def test_retool_wants_a_box():
    config = Config(reward="retool")
    target = code_math.tasks(config)[0].params["target"]
    assert play(config, [tool_action.answer(target)])[0].reward == -1.0
    assert play(Config(), [tool_action.answer(target)])[0].reward == 1.0


def test_calls_are_counted_and_limited():
    _, texts = play(Config(max_calls=1), [run("1"), run("2")])
    assert "no more code may be run, 1 runs were allowed" in texts[2]


@pytest.mark.parametrize(
    ("row", "question", "target"),
    [
        ({"question": "Q", "answer": "2+2=<<2+2=4>>4\n#### 4"}, "Q", "4"),
        (
            {"problem": "P", "solution": "so $\\boxed{\\frac{1}{2}}$", "level": "Level 3", "type": "Algebra"},
            "P",
            "\\frac{1}{2}",
        ),
        (
            {
                "prompt": [{"role": "user", "content": "D"}],
                "reward_model": {"ground_truth": "34"},
                "data_source": "dapo",
            },
            "D",
            "34",
        ),
        ({"problem": "A", "answer": 204}, "A", "204"),
        ({"query": "M", "response": "2 + 2 = 4. The answer is: 4", "type": "GSM_Rephrased"}, "M", "4"),
        ({"problem": "B", "answer": None, "solution": "Thus $x = \\boxed 5$."}, "B", "5"),
        ({"Problem": "C", "Answer": "**Answer:** 7"}, "C", "7"),
    ],
)
def test_files_of_problems(tmp_path, row, question, target):
    import pyarrow
    import pyarrow.parquet

    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "rows.parquet")
    for name in ("rows.jsonl", "rows.parquet"):
        config = Config(rows=str(tmp_path / name))
        (task,) = code_math.tasks(config)
        assert (task.params["question"], task.params["target"]) == (question, target)
        assert play(config, [tool_action.answer(f"\\boxed{{{target}}}")])[0].reward == 1.0


def test_bad_input_is_one_sentence(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "?"}\n')
    with pytest.raises(ValueError, match=r"row 0 of .* is no problem: it has text; it needs question"):
        code_math.tasks(Config(rows=str(tmp_path / "rows.jsonl")))
    with pytest.raises(ValueError, match=r"env\.sandbox\.name = 'calculator' runs no code"):
        code_math.make(Config(sandbox={"name": "calculator"}))
    with pytest.raises(ValueError, match=r"env\.level"):
        validate(Config, {"level": 9}, "env")


def test_results_and_reports_name_the_sandbox(capsys):
    env = code_math.make(Config())
    env.reset(code_math.tasks(Config())[0])
    backend = env.step(run("1")).info["sandbox"]
    env.close()
    assert backend in ("bwrap", "unshare", "landlock")
    assert main(["eval", "code_math", "--policy", "expert", "--tasks", "1"]) == 0
    assert f"policy=expert, sandbox={backend}" in capsys.readouterr().out
    assert main(["eval", "code_math", "--policy", "expert", "--tasks", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["facts"] == {"sandbox": backend}


def test_no_sandbox_is_said_before_anything_is_played(monkeypatch, capsys):
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    assert main(["eval", "code_math", "--policy", "expert", "--tasks", "1", "sandbox.name=e2b"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("agentrl: the e2b sandbox needs a key: set E2B_API_KEY") and told.count("\n") == 1


def test_problems_of_two_files_do_not_share_keys(tmp_path):
    keys = set()
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n' * 2)
        keys |= {task.key for task in code_math.tasks(Config(rows=str(tmp_path / f"{name}.jsonl")))}
    assert keys == {"code_math/a/0", "code_math/a/1", "code_math/b/0", "code_math/b/1"}


def test_a_lost_sandbox_is_an_environment_error(monkeypatch):
    class Lost:
        backend = "lost"

        def session(self, files=None, *, stateful=True):
            return self

        def run(self, code, timeout_s=None, *, stdin="", fetch=()):
            return CodeResult(infra_error="no room", backend="lost", exit_code=None)

        def close(self):
            pass

    monkeypatch.setattr(problem, "runner_of", lambda config: Lost())
    env = code_math.make(Config())
    env.reset(code_math.tasks(Config())[0])
    with pytest.raises(ToolFault, match="the lost sandbox failed: no room"):
        env.step(run("1"))


def test_kinds_name_the_level():
    config = Config(level=0, count=3)
    entry = Entry("code_math", code_math, config)
    assert len(tasks_of(entry)) == 12 and kind_of(entry, tasks_of(entry)[11]).startswith("level 4, ")
