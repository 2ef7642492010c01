"""The encoding in which values pass between the two sandboxes of a test program."""

# ruff: noqa: E501  a table is read best in few lines
import json
import math
import random
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

import numpy as np
import pytest

from agentrl.envs.code_repair.crossing import DEPTH, Reader, Refused, Writer


def refused(*arguments, **named):
    raise Refused("not in the list")


def passed(value):
    return Reader(refused).value(
        json.loads(json.dumps(Writer(lambda *a, first=False: None if first else refused()).value(value)))
    )


LEAVES = [
    lambda r: r.randint(-(10**r.randint(0, 40)), 10**40), lambda r: r.gauss(0, 1e9), lambda r: math.inf, lambda r: -0.0,
    lambda r: "".join(chr(r.randint(0, 0x2FFF)) for _ in range(5)), lambda r: "\ud800", lambda r: r.randbytes(4),
    lambda r: bytearray(r.randbytes(3)), lambda r: None, lambda r: r.random() < 0.5, lambda r: complex(r.random(), -0.0),
    lambda r: range(r.randint(0, 9), 20, 3), lambda r: Decimal(r.randint(0, 99)) / 7, lambda r: Fraction(r.randint(0, 99), 7),
    lambda r: date(2020, 1, r.randint(1, 28)), lambda r: time(1, 2, 3, r.randint(0, 9)), lambda r: timedelta(seconds=r.random()),
    lambda r: datetime(2020, 1, 2, 3, tzinfo=timezone(timedelta(hours=r.randint(-9, 9)))), lambda r: UUID(int=r.getrandbits(128)),
    lambda r: ..., lambda r: int, lambda r: len, lambda r: math.sqrt, lambda r: slice(1, None, 2),
]  # fmt: skip
BRANCHES = [
    list, tuple, deque, lambda items: deque(items, maxlen=3), lambda items: dict(enumerate(items)),
    lambda items: OrderedDict(reversed(list(enumerate(items)))), lambda items: {str(one) for one in items},
    lambda items: frozenset(map(repr, items)), lambda items: Counter(map(str, items)), lambda items: array("d", [1.5, 2]),
    lambda items: defaultdict(list, enumerate(items)),
]  # fmt: skip


def made(rng, depth):
    if depth == 0 or rng.random() < 0.3:
        return rng.choice(LEAVES)(rng)
    return rng.choice(BRANCHES)([made(rng, depth - 1) for _ in range(rng.randint(0, 4))])


def same(one, other):
    """Equal, and of the same types at every depth."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        pairs = zip(one.items(), other.items(), strict=True)
        return len(one) == len(other) and all(same(a, b) for a, b in pairs)
    if isinstance(one, list | tuple | deque):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other and (isinstance(one, set | frozenset) or repr(one) == repr(other))  # -0.0 is not 0.0


@pytest.mark.parametrize("seed", range(200))
def test_values_of_the_list_pass_as_they_are(seed):
    value = made(random.Random(seed), 4)
    assert same(passed(value), value)


def test_what_is_shared_stays_shared():
    inner, loop = [1], []
    loop.append(loop)
    first, second, (itself,) = passed([inner, inner, loop])
    assert first is second and itself[0] is itself
    kept = defaultdict(list)
    kept["a"].append(kept)
    assert passed(kept)["a"][0]["a"] != [] and passed(kept).default_factory is list


def test_views_and_numpy_by_hand():
    assert passed({1: 2}.items()) == {1: 2}.items() and passed({1: 2}.keys()) == {1}
    array_ = np.array([[1, 2], [3, 4]], "int16")
    found = passed({"a": array_, "b": np.float32(0.5), "c": np.bool_(True)})
    assert found["a"].dtype == array_.dtype and found["a"].tolist() == array_.tolist()
    assert type(found["b"]) is np.float32 and found["b"] == 0.5 and found["c"] is not None


class Always(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


@pytest.mark.parametrize("value", [Always(5), [Always(5)], {"a": (Always(5),)}])
def test_a_derived_class_passes_as_its_base(value):
    found = passed(value)
    while not isinstance(found, int):
        (found,) = found.values() if isinstance(found, dict) else found
    assert type(found) is int and found == 5 and found != 6


def test_too_deep_too_wide_and_unknown_are_refused():
    deep = []
    for _ in range(DEPTH + 1):
        deep = [deep]
    for value, words in (
        (deep, "nested more"),
        ([[]] * 500_000, "more than 400000 parts"),
        (object(), "not in the list"),
    ):
        with pytest.raises(Refused, match=words):
            passed(value)


@pytest.mark.parametrize("seed", range(100))
def test_no_text_raises_anything_but_a_refusal(seed):
    # a right encoding, of which parts are exchanged, repeated or left out
    rng = random.Random(seed)
    written = Writer(lambda *a, first=False: None if first else refused()).value([made(rng, 3) for _ in range(4)])
    tags = ["made", "type", "function", "named", "view", "again", "int", "numpy", "single", "builtins.set", "no tag"]

    def spoil(node):
        if not isinstance(node, list) or not node:
            return rng.choice([node, node, None, -1, "x", [], ["again", -1]])
        node = [spoil(one) if rng.random() < 0.3 else one for one in node]
        if rng.random() < 0.2:
            node[0] = rng.choice(tags)
        return node if rng.random() < 0.9 else node[:-1]

    for _ in range(30):
        try:
            Reader(lambda *a: refused()).value(spoil(written))
        except Refused:
            continue
