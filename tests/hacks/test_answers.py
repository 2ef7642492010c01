"""Answers that are not right are not paid, whatever they look like: at least 24 tries against each grader of texts."""

import pytest

from agentrl.envs import calculator, code_math, deep_research, search_qa
from agentrl.envs.calculator import notebook
from agentrl.envs.search_qa import scores
from agentrl.tool import action as tool_action
from tests.hacks.answers import NAMES, NUMBERS, filled, name_words, number_words

# What the convention of the calculator, the last number of the answer, reads as the right answer.
TAKEN_AT_ITS_LAST_NUMBER = (
    "a wrong box, and then an open one", "an empty box after it", "plus or minus", "under a fraction",
)  # fmt: skip
MATH = {
    "exact": code_math.Config(count=2),
    "units": code_math.Config(count=2, units="ignore"),
    "torl": code_math.Config(count=2, reward="torl"),
}


@pytest.mark.parametrize("form", MATH)
@pytest.mark.parametrize("name", NUMBERS)
def test_code_math_pays_no(name, form):
    config = MATH[form]
    task = code_math.tasks(config)[1]
    right = int(task.params["target"])
    env = code_math.make(config)
    env.reset(task)
    result = env.step(tool_action.answer(filled(NUMBERS[name], number_words(right, right + 3))))
    env.close()
    assert result.terminated and result.reward <= 0 and not result.info["success"]


def test_what_code_prints_is_no_answer():
    config = MATH["exact"]
    task = code_math.tasks(config)[1]
    boxed = f"\\boxed{{{task.params['target']}}}"
    for words in ("See above.", "", "The output.", "```output\n```"):
        env = code_math.make(config)
        env.reset(task)
        env.step(tool_action.call("code_interpreter", code=f"print({boxed!r})"))
        assert env.step(tool_action.answer(words)).reward == 0.0
        env.close()


@pytest.mark.parametrize("show", ["whole", "lines"])
@pytest.mark.parametrize("name", [name for name in NUMBERS if name not in TAKEN_AT_ITS_LAST_NUMBER])
def test_the_calculator_pays_no(name, show):
    config = calculator.Config(show=show, count=2)
    task = calculator.tasks(config)[0]
    right = int(task.params["target"])
    made = (notebook.Notebook if show == "lines" else calculator.environment.Calculator)(config)
    made.reset(task.params["story"], task.params["target"])
    assert made.reward(filled(NUMBERS[name], number_words(right, right + 3))) == 0.0


@pytest.mark.parametrize(
    ("answer", "target", "paid"),
    [
        ("1,234", "1234", 1.0), ("12,34", "1234", 0.0), ("1,2", "12", 0.0), ("so 3 + 4 = 7.", "7", 1.0),
        ("3+4", "4", 0.0), ("7²", "7", 0.0), ("1e7", "7", 0.0), ("14/7", "7", 0.0), ("x7", "7", 0.0),
        ("7 km", "7", 1.0), ("7km", "7", 1.0), ("$7", "7", 1.0), ("-7", "7", 0.0), ("-7", "-7", 1.0), ("7.0", "7", 0.0),
        ("٧", "7", 0.0),
    ],
)  # fmt: skip
def test_the_last_number_by_hand(answer, target, paid):
    made = calculator.environment.Calculator(calculator.Config())
    made.reset("1 and 2?", target)
    assert made.reward(answer) == paid


def asked(hooks, config):
    """(environment after reset, right answer, words of NAMES) of a question whose answer is a name."""
    task = next(task for task in hooks.tasks(config) if not str(task.params["answers"][0])[0].isdigit())
    right = str(task.params["answers"][0])
    others = [one for one in deep_research.entities(deep_research.Config(world="tiny")) if one != right]
    wrong = next(one for one in others if not one.isdigit())
    env = hooks.make(config)
    env.reset(task)
    return env, right, name_words(right, wrong, task.params["question"], [*others[:40], right])


QA = {
    "search_qa": (search_qa, search_qa.Config(world="tiny")),
    "deep_research": (deep_research, deep_research.Config(world="tiny", hops=())),
}


@pytest.mark.parametrize("grader", QA)
@pytest.mark.parametrize("name", NAMES)
def test_questions_pay_no(name, grader):
    env, right, words = asked(*QA[grader])
    result = env.step(f"<answer>{filled(NAMES[name], words)}</answer>")
    assert result.terminated and result.reward == 0.0 and not result.info["success"]
    env, right, _ = asked(*QA[grader])
    assert env.step(f"<answer>{right}</answer>").reward == 1.0


# Replies whose every text stands outside what is carried out. `{right}` and `{wrong}` are answers.
BEHIND = {
    "a second answer": "<think>a</think><answer>{wrong}</answer><answer>{right}</answer>",
    "an answer behind a search": "<think>a</think><search>x</search><answer>{right}</answer>",
    "an answer without an end": "<answer>{wrong}</answer><answer>{right}",
    "an answer in other brackets": "[answer]{right}[/answer]",
    "an answer in capitals": "<ANSWER>{right}</ANSWER>",
    "an answer with an attribute": "<answer id=1>{right}</answer>",
    "an answer in a thought that ends": "<think>{right}</think>",
    "an answer outside": "{right}",
    "a boxed answer": "\\boxed{{{right}}}",
    "a delegated answer": "<delegate>{right}</delegate>",
}


@pytest.mark.parametrize(("grader", "name"), [(grader, name) for grader in QA for name in BEHIND])
def test_only_the_first_pair_of_tags_is_carried_out(name, grader):
    hooks, config = QA[grader]
    env, right, words = asked(hooks, config)
    reply = BEHIND[name].format(right=right, wrong=words["WRONG"])
    if grader == "deep_research":
        reply = reply.replace("<search>x</search>", "<delegate>x</delegate>")
    result = env.step(reply)
    assert result.reward == 0.0 and not result.info.get("success")


FORMAT = search_qa.Config(world="tiny", reward={"em_format": 1.0})
WELL_FORMED = "<think>a</think><answer>{wrong}</answer>"
EARNED = {  # replies, and what em_format may pay for them: 0.1 for any answer, 0.2 for a well-formed wrong one
    "a second answer": (["<think>a</think><answer>{wrong}</answer><answer>{right}</answer>"], 0.2),
    "results of its own, behind a search": (
        ["<think>a</think><search>x</search><information>{right}</information><think>a</think><search>y</search>",
         WELL_FORMED], 0.2),
    "results of its own, in a thought": (["<think><information>{right}</information></think><search>x</search>",
                                          WELL_FORMED], 0.1),
    "results of its own, in a search": (["<think>a</think><search><information>{right}</information></search>",
                                         WELL_FORMED], 0.1),
    "results of its own, in an answer": (
        ["<think>a</think><answer><information>{right}</information>{wrong}</answer>"], 0.1),
    "no answer": (["<think>{right}</think>"] * 6, 0.0),
    "tags alone": (["<think></think><answer></answer>"], 0.2),
    "a thought after the answer": (["<think>a</think><answer>{wrong}</answer><think>{right}</think>"], 0.2),
}  # fmt: skip


@pytest.mark.parametrize("name", EARNED)
def test_the_format_pays_for_what_happened(name):
    replies, most = EARNED[name]
    env, right, words = asked(search_qa, FORMAT)
    prompt = search_qa.prompt(FORMAT)
    for reply in replies:
        said = reply.format(right=right, wrong=words["WRONG"])
        result = env.step(prompt.parse(said, env.observation()).action)
    assert result.terminated and result.reward == pytest.approx(most) and not result.info["success"]


@pytest.mark.parametrize("golden", ["The The", "!!!", "a", " ", ""])
def test_an_answer_of_which_normalisation_leaves_nothing_is_compared_as_it_is(golden):
    for wrong in ("", " ", "the", "?", "x", "anything at all", "THE AN"):
        if wrong.lower() != golden.lower().strip():
            assert scores.exact(wrong, [golden]) == 0.0
        assert scores.contains("anything else", [golden]) in (0.0, float(golden.strip() == "a"))
        assert scores.f1(wrong, [golden]) == 0.0
    assert scores.exact(golden, [golden]) == float(bool(golden.strip()))
    assert not scores.retrieved("<information>xyz</information>", [golden])


def test_there_are_at_least_24_tries_against_each():
    assert len(NUMBERS) - len(TAKEN_AT_ITS_LAST_NUMBER) >= 24 and len(NAMES) >= 24
