"""Execution accuracy: by hand, and against a slow scorer."""

import random

import pytest

from agentrl.envs.sql.compare import same_result, same_set
from tests.envs.sql.slow_compare import slow_same

AB, BA = [("a", 1), ("b", 2)], [("b", 2), ("a", 1)]


@pytest.mark.parametrize(
    ("gold", "given", "ordered", "same"),
    [
        (AB, AB, True, True),
        (AB, BA, False, True),
        (AB, BA, True, False),
        (AB, [(1, "a"), (2, "b")], True, True),  # columns in another order
        (AB, [(2, "a"), (1, "b")], False, False),  # the same columns, other pairs
        ([("a",), ("a",)], [("a",)], False, False),  # a multiset
        ([("a",), ("a",), ("b",)], [("a",), ("b",), ("b",)], False, False),
        ([(1,)], [(1.0,)], False, True),
        ([(1 / 3,)], [(0.3333333,)], False, True),
        ([(1 / 3,)], [(0.3333,)], False, False),
        ([(0.0,)], [(1e-12,)], False, True),
        ([(10**15,)], [(10**15 + 1,)], False, False),  # whole numbers are exact
        ([("1",)], [(1,)], False, False),
        ([(None,)], [(None,)], False, True),
        ([(None,)], [(0,)], False, False),
        ([(None,)], [("",)], False, False),
        ([(b"x",)], [("x",)], False, False),
        ([], [], False, True),
        ([], [(None,)], False, False),
        ([(1, 2)], [(1,)], False, False),
        ([(1.0, "a"), (1.0000001, "b")], [(1.0000001, "a"), (1.0, "b")], False, True),
        ([(0.5, 3.0), (0.50000001, 1.0)], [(0.5, 1.0), (0.50000001, 3.0)], False, True),
    ],
)
def test_by_hand(gold, given, ordered, same):
    assert same_result(gold, given, ordered=ordered) == same == slow_same(gold, given, ordered)


@pytest.mark.parametrize("seed", range(150))
def test_it_agrees_with_the_slow_scorer(seed):
    rng = random.Random(seed)
    cells = [None, 0, 1, 2, 1.0, 0.5, 0.50000001, "a", "b", "1"]
    width, count = rng.randint(1, 3), rng.randint(0, 4)
    gold = [tuple(rng.choice(cells) for _ in range(width)) for _ in range(count)]
    columns = rng.sample(range(width), width)
    given = [tuple(row[i] for i in columns) for row in rng.sample(gold, count)]
    if given and rng.random() < 0.5:
        at = rng.randrange(count)
        given[at] = tuple(rng.choice(cells) for _ in range(width))
    for ordered in (False, True):
        assert same_result(gold, given, ordered=ordered) == slow_same(gold, given, ordered), (gold, given)


def test_birds_own_rule_is_of_sets_with_columns_in_place():
    assert same_set([("a",), ("a",)], [("a",)])
    assert not same_set(AB, [(1, "a"), (2, "b")])


def test_many_columns_alike_end_soon():
    row = tuple(range(12))
    gold = [row, row[::-1]] * 6
    given = [tuple(sorted(one)) for one in gold[:-1]] + [(99, *row[1:])]
    assert not same_result(gold, given, ordered=False)
    flat = [(0,) * 12] * 5 + [(1, *(0,) * 11)]
    assert same_result(flat, [(*one[1:], one[0]) for one in flat], ordered=False)
