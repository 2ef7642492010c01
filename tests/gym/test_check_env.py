"""The checker finds each broken promise, and nothing in an environment that keeps them all."""

import re

import pytest

from agentrl.gym import check_env
from tests.rollout.playing import WALK, entry
from tests.toys import walk

LIES = {
    "leftover": r"task liar/0: the same task played again in one instance differs at step 0: .*Episode 1",
    "chance": r"differs at step 0: .*Weather",
    "observation": r"reset returned str, not an Observation",
    "after the end": r"a step after the end raised RuntimeError: it is over; return an observation instead",
    "garbage": r"the action 'no such action' raised KeyError",
    "reward": r"step returned reward nan",
    "refuses": r"the listed action '(left|right)' was refused at step 0",
    "errands": r"the environment sends errands and has no method `returned\(replies\)`",
    "snapshot": r"restore leads to another state than a replay of the same \d+ actions",
    "restored": r"restore shows another observation than at the snapshot",
    "blind": r"restore returns no observation",
    "pickle": r"raised TypeError: cannot pickle a lock",
    "round trip": r"parse\(answer\('left'\)\) gives \('LEFT', True",
    "parse raises": r"raised UnicodeError: ascii only",
    "expert": r"an expert: raised NotImplementedError: straight",
    "params": r"the task list: the params of task 'liar/0' do not survive JSON: use texts as keys",
    "keys": r"the task list: two tasks have the key 'same'",
    "list": r"the task list: tasks\(config\) gives another list the second time",
}


@pytest.mark.parametrize("lie", LIES)
def test_each_lie_is_found_and_said(lie):
    found = check_env(entry("tests.toys.liar", lie=lie), tasks=2)
    assert any(re.search(LIES[lie], finding) for finding in found), found
    assert all("\n" not in finding for finding in found)


def test_the_truth_has_no_findings():
    assert check_env(entry("tests.toys.liar")) == []
    assert check_env("tests.toys.foreman") == []  # whose agent calls another, which is answered for as lost
    assert check_env(walk) == check_env(WALK) == check_env(walk, walk.Config(goal=2)) == []


def test_alfworld_keeps_its_promises():
    assert check_env("alfworld", tasks=2, steps=15) == []
