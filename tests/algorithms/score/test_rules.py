"""Scores by rules: each by hand, by a law, and against a slow loop."""

import itertools
import random
from collections import Counter

import numpy as np
import pytest

from agentrl.algorithms.score import agreement, length_rules, tool_match
from agentrl.algorithms.score.tool_match import GoldCall, match
from agentrl.tool import action as tool_action
from tests.scoring.stages import chain, signals_of, turn


def called(*calls: tuple[str, dict]) -> str:
    return tool_action.calls(calls)


# --- length_rules


def test_lengths_by_hand():
    # words 3, 5 and 9 of which the first two are right; bounds 4 to 6, margin 2
    chains = [
        chain(turn("a b c"), success=True),
        chain(turn("a b"), turn("c d e"), success=True),
        chain(turn("a b a b a b a b c")),
    ]
    table = {"name": "length_rules", "rules": ["short", "long", "repeats", "relative"], "min_length": 4,
             "max_length": 6, "margin": 2, "ngram": 2}  # fmt: skip
    found = signals_of(table, *chains)
    assert [one["length_short"] for one in found] == [-0.5, 0, 0]
    assert [one["length_long"] for one in found] == [0, 0, -1]
    # 8 pairs of words: ab ba ab ba ab ba ab bc, of which 5 were said before
    assert [one["length_repeats"] for one in found] == [0, 0, -5 / 8]
    # lambda = 0.5 - (len - 3) / 6: 0.5, 1/6, -0.5; the last is wrong: min(0, -0.5)
    assert [one["length_relative"] for one in found] == pytest.approx([0.5, 1 / 6, -0.5])
    assert signals_of(table | {"unit": "tokens"}, chain(turn("a", tokens=3)))[0]["length_short"] == -0.5


@pytest.mark.parametrize("seed", range(20))
def test_the_relative_length_never_pays_a_wrong_answer_and_prefers_the_shorter(seed):
    rng = np.random.default_rng(seed)
    length, right = rng.integers(1, 50, size=8).astype(float), rng.random(8) < 0.5
    found = length_rules.relative(length, right)
    assert (np.abs(found) <= 0.5).all() and (found[~right] <= 0).all()
    for i, j in itertools.permutations(range(8), 2):
        if right[i] == right[j] and length[i] <= length[j]:
            assert found[i] >= found[j]
    np.testing.assert_allclose(
        found, length_rules.relative(3 * length + 7, right)
    )  # the unit of length does not matter


@pytest.mark.parametrize("seed", range(20))
def test_repeats_against_a_slow_loop(seed):
    rng = random.Random(seed)
    answers = [" ".join(rng.choices("ab", k=rng.randrange(12))) for _ in range(3)]
    again = total = 0
    for words in (answer.split() for answer in answers):
        for i in range(len(words) - 2):
            total += 1
            again += any(words[k : k + 3] == words[i : i + 3] for k in range(i))
    assert length_rules.repeated(answers, 3) == (again / total if total else 0.0)


# --- agreement


def test_agreement_by_hand():
    said = ["<answer>Rome</answer>", "<answer> rome </answer>", "<answer>Oslo</answer>", "<search>x</search>"]
    found = signals_of({"name": "agreement"}, *(chain(turn("thoughts", action=one)) for one in said))
    assert [one["agreement"] for one in found] == [1, 1, 0, 0]
    assert {one["agreement_share"] for one in found} == {0.5}
    least = signals_of({"name": "agreement", "min_share": 0.6}, *(chain(turn(one)) for one in said))
    assert [one["agreement"] for one in least] == [0, 0, 0, 0]


def test_agreement_reads_final_answers_of_tool_environments():
    said = [tool_action.answer("42"), tool_action.answer(" 42 "), called(("add", {"a": 42})), "42"]
    found = signals_of({"name": "agreement"}, *(chain(turn(one)) for one in said))
    assert [one["agreement"] for one in found] == [1, 1, 0, 1]


@pytest.mark.parametrize("seed", range(20))
def test_agreement_laws(seed):
    rng = random.Random(seed)
    answers = rng.choices(["a", "b", "c", ""], k=7)
    paid, share = agreement.majority(answers, tie="first")
    order = rng.sample(range(7), 7)
    # the order of the copies changes nothing without ties, and copies of one answer are paid alike
    counts = Counter(one for one in answers if one).most_common()
    if counts and (len(counts) == 1 or counts[0][1] > counts[1][1]):
        again, _ = agreement.majority([answers[i] for i in order])
        assert again == [paid[i] for i in order]
        assert sum(paid) == counts[0][1] == round(share * 7)
    elif counts:
        assert agreement.majority(answers)[0] == [0.0] * 7 and sum(paid) == counts[0][1]
    assert all(not one for one, answer in zip(paid, answers, strict=True) if not answer)
    # slow loop: an answer is paid if no other answer is more frequent, and none as frequent came before it
    for i, answer in enumerate(answers):
        mine = answers.count(answer)
        rivals = [one for one in set(answers) - {answer, ""} if answers.count(one) >= mine]
        beaten = any(answers.count(one) > mine or answers.index(one) < answers.index(answer) for one in rivals)
        assert paid[i] == float(bool(answer) and not beaten)


# --- tool_match

GOLD = [{"name": "find", "arguments": {"city": "Rome", "n": 2}}, {"name": "book", "arguments": {"id": 7}}]


def gold(*calls: tuple[str, dict]) -> list[GoldCall]:
    return [GoldCall(name, arguments) for name, arguments in calls]


def test_tool_match_by_hand():
    # names {find, book} and {find, wait}: 1/3. find: keys {city, day} and {city, n}: 1/3; one equal value: 1.
    # (1/3 + 1/3 + 1) / (1 + 2 + 3) = 5/18; 6 * 5/18 - 3 = -4/3
    made = called(("find", {"city": "Rome", "day": 1}), ("wait", {}))
    (found,) = signals_of({"name": "tool_match"}, chain(turn("", action=made), calls=GOLD))
    assert found == {"tool_match": pytest.approx(-4 / 3), "tool_match_extra": 0}
    right = [
        turn("", action=called(("book", {"id": 7.0}))),
        turn("", action=called(("find", {"n": 2, "city": "Rome"}))),
    ]
    (whole,) = signals_of({"name": "tool_match"}, chain(*right, calls=GOLD))
    assert whole["tool_match"] == 3  # the order of calls and parameters does not matter
    (none,) = signals_of({"name": "tool_match"}, chain(turn("", action=tool_action.answer("7")), calls=GOLD))
    assert none["tool_match"] == -3
    (unit,) = signals_of({"name": "tool_match", "range": "unit"}, chain(*right, right[0], calls=GOLD))
    assert unit == {"tool_match": 1, "tool_match_extra": 1}
    assert match(gold(("f", {"x": True})), gold(("f", {"x": 1}))) == pytest.approx((1 + 1) / 3)


def test_the_best_matching_beats_the_greedy_one():
    # The first gold call has two equal best partners, and takes the only one that fits the second.
    made = gold(("f", {"a": 1, "b": 2}), ("f", {"a": 1, "c": 3}))
    wanted = gold(("f", {"a": 1}), ("f", {"a": 1, "b": 2}))
    # best: (1/2 + 1) + (1 + 2) = 4.5 or, greedy: gold 0 takes call 0 (1.5), gold 1 takes call 1: 1/3 + 1
    assert match(made, wanted) == pytest.approx((1 + 1.5 + 3) / (1 + 2 + 3))
    assert match(made, wanted, matching="greedy") == pytest.approx((1 + 1.5 + 4 / 3) / (1 + 2 + 3))


@pytest.mark.parametrize("seed", range(30))
def test_tool_match_against_every_matching(seed):
    rng = random.Random(seed)

    def some(most: int) -> list[GoldCall]:
        keys = lambda: {key: rng.randrange(2) for key in "abc" if rng.random() < 0.6}  # noqa: E731
        return [GoldCall(rng.choice("fg"), keys()) for _ in range(rng.randrange(1, most))]

    made, wanted = some(5), some(4)

    def pair(i: int, j: int) -> float:
        p, g = made[i], wanted[j]
        if p.name != g.name:
            return 0.0
        union = {**p.arguments, **g.arguments}
        r_param = sum(k in p.arguments and k in g.arguments for k in union) / len(union) if union else 1.0
        return r_param + sum(k in p.arguments and p.arguments[k] == v for k, v in g.arguments.items())

    slots = [*range(len(made)), *[-1] * len(wanted)]
    best = max(
        sum(pair(i, j) for j, i in enumerate(order) if i >= 0) for order in itertools.permutations(slots, len(wanted))
    )
    names = {one.name for one in made}, {one.name for one in wanted}
    most = 1 + len(wanted) + sum(len(one.arguments) for one in wanted)
    expected = (len(names[0] & names[1]) / len(names[0] | names[1]) + best) / most
    assert match(made, wanted) == pytest.approx(expected)
    assert 0 <= match(made, wanted, matching="greedy") <= match(made, wanted) + 1e-12 <= 1 + 1e-12
    assert match(wanted, wanted) == pytest.approx(1)


def test_gold_calls_in_the_form_of_openai():
    listed = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}]
    (found,) = signals_of({"name": "tool_match"}, chain(turn(called(("f", {"x": 1}))), calls=listed))
    assert found["tool_match"] == 3


def test_gold_calls_that_are_none():
    with pytest.raises(ValueError, match=r"toy/0 has no entry 'calls' .*\(its entries: answer\): set score\.gold"):
        signals_of({"name": "tool_match"}, chain(turn(""), answer="7"))
    for damaged in ("{", [1], [{"name": 3}], {"name": "f"}):
        with pytest.raises(Exception, match="toy/0 are"):
            signals_of({"name": "tool_match"}, chain(turn(""), calls=damaged))
    text = '[{"name": "book", "parameters": {"id": 7}}]'
    (found,) = signals_of({"name": "tool_match"}, chain(turn(called(("book", {"id": 7}))), calls=text))
    assert found["tool_match"] == 3


def test_ten_thousand_calls_are_read_in_no_time():
    flood = called(*(("book", {"id": n}) for n in range(10_000)))
    (found,) = signals_of({"name": "tool_match"}, chain(turn(flood), calls=GOLD))
    assert found["tool_match_extra"] == 9998
    assert tool_match.UNREAD not in {"book", "find"}
