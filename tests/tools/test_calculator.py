"""The calculator tool and its environment."""

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl import world
from agentrl.config import resolve
from agentrl.envs.calculator import solve, write
from agentrl.tools.calculator import Config, make, shown, worked_out


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("(3 + 4) * 2", "14"),
        ("1/3", "0.333333333333"),
        ("0.1 + 0.2", "0.3"),
        ("-7 % 3", "2"),  # as in Python: the sign of the divisor
        ("10 // 3 + 2^10", "1027"),
        ("2**-1", "0.5"),
        ("sqrt(16) + max(1, 2) - abs(-3)", "3"),
        ("round(2.567, 2)", "2.57"),
        ("10**20", "100000000000000000000"),
    ],
)
def test_results_are_exact(expression, result):
    assert make(Config())(expression) == result


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("1/0", "division by zero"),
        ("9**9**9", "too large"),
        ("10**10**4", "too large"),
        ("(" * 3000, "characters"),
        ("__import__('os')", "no arithmetic"),
        ("x + 1", "'x' is no arithmetic"),
        ("True", "no arithmetic"),
        ("1 +", "no arithmetic expression"),
        ("sqrt(-1)", "sqrt"),
        ("(-8)**0.5", "root of a negative"),
        ("1e999", "no arithmetic"),
        ("max(*[1])", "no arithmetic"),
    ],
)
def test_what_is_no_arithmetic_is_said(expression, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        make(Config())(expression)


@given(st.integers(-999, 999), st.integers(-999, 999), st.integers(1, 99))
def test_it_agrees_with_fractions(a, b, c):
    assert worked_out(f"{a} * ({b}) / {c} - {c}") == Fraction(a * b, c) - c
    assert abs(float(shown(Fraction(a, c))) - a / c) <= 1e-9 * abs(a / c)


@pytest.mark.parametrize("seed", range(30))
def test_stories_tell_their_steps(seed):
    """The answer worked out from the words alone."""
    story, parts = write(seed, 4, 30)
    total = 0
    for sentence in story.split(". ")[:-1]:
        numbers = [int(n) for n in re.findall(r"\d+", sentence)]
        if " has " in sentence and "times" not in sentence:
            total = numbers[0]
        elif "buys" in sentence:
            total += numbers[0]
        elif "boxes" in sentence:
            total += numbers[0] * numbers[1]
        elif "gives" in sentence:
            total -= numbers[0]
        else:
            total *= numbers[0]
    assert total == solve(parts) >= 0 and len(story.split(". ")) >= 5


def test_tasks_of_the_two_splits_differ_and_seeds_repeat():
    entry = resolve("envs", {"name": "calculator", "split": "test", "count": 50})
    again = resolve("envs", {"name": "calculator", "split": "train", "count": 50})
    test, train = ({t.key for t in world.tasks(e)} for e in (entry, again))
    assert not test & train and len(test | train) == 50
    env = entry.module.make(entry.config)
    task = world.tasks(entry)[0]
    assert env.reset(task) == env.reset(task)


@pytest.mark.parametrize(
    ("answer", "reward"),
    [("{}", 1.0), ("It is {}.", 1.0), ("first 5, then {}", 1.0), ("{} or 5", 0.0), ("", 0.0), ("{}.5", 0.0)],
)
def test_the_last_number_is_the_answer(answer, reward):
    entry = resolve("envs", {"name": "calculator"})
    env = entry.module.make(entry.config)
    task = world.tasks(entry)[3]
    env.reset(task)
    target = solve(write(task.params["seed"], 2, 50)[1])
    assert env.step(answer.format(target)).reward == reward
