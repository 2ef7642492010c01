"""Answers: the table of pairs, a second opinion by SymPy, laws, and the answer in a text."""

import itertools
import math
import random
import re

import pytest
import sympy

from agentrl.envs.code_math.answers import boxed, compare, final_answer, gold_answer, same
from tests.envs.code_math.pairs import ONE_WAY, PAIRS

ALL = [(family, *pair) for family, pairs in PAIRS.items() for pair in pairs]


def test_the_table_has_at_least_250_pairs_and_half_of_them_differ():
    assert len({pair[1:3] for pair in ALL}) == len(ALL) >= 250
    assert 0.4 < sum(not equal for *_, equal in ALL) / len(ALL) < 0.6
    assert all({equal for *_, equal in pairs} == {True, False} for pairs in PAIRS.values())


@pytest.mark.parametrize("family", PAIRS)
def test_pairs(family):
    for given, expected, equal in PAIRS[family]:
        assert same(given, expected) is equal, (given, expected)
        back = equal != ((given, expected) in ONE_WAY)
        assert same(expected, given) is back, (expected, given)


# A second opinion, which shares no code with the comparison: Python's own arithmetic on expressions that a small
# translation of LaTeX gives, at random points.
PLAIN = re.compile(r"[-+*/^()0-9.\sa-z\\{}]*")
FUNCTIONS = {"sqrt": sympy.sqrt, "sin": sympy.sin, "cos": sympy.cos, "pi": sympy.pi, "e": sympy.E, "i": sympy.I}


def translated(text):
    """The SymPy expression of LaTeX without commands but \\frac, \\sqrt, \\cdot, \\times, \\pi; None for any other."""
    text = text.replace("\\dfrac", "\\frac").replace("\\times", "*").replace("\\cdot", "*").replace("\\pi", " pi ")
    for _ in range(3):
        text = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"((\1)/(\2))", text)
        text = re.sub(r"\\sqrt\{([^{}]*)\}", r"sqrt(\1)", text)
        text = re.sub(r"\^\{([^{}]*)\}", r"**(\1)", text)
    text = re.sub(r"\^(\d+|[a-z])", r"**(\1)", text)
    if not PLAIN.fullmatch(text) or re.search(r"\\|[{}]|\d\s+\d|\d\s*\(\(|\de\d", text):
        return None
    words = re.findall(r"[a-z]+", text)
    if any(len(word) > 1 and word not in FUNCTIONS for word in words):
        return None
    names = {word: sympy.Symbol(word) for word in words if word not in FUNCTIONS}
    text = re.sub(r"(?<=[0-9)])\s*(?=[a-z(])|(?<=[a-z])\s+(?=[a-z(])|(?<=\))\s*(?=\d)", "*", text.strip())
    try:
        return sympy.sympify(text, locals={**FUNCTIONS, **names}, rational=True)
    except (sympy.SympifyError, TypeError, SyntaxError, AttributeError):
        return None


def values(expression, other, rng):
    """The values of two expressions at one random point."""
    names = sorted(expression.free_symbols | other.free_symbols, key=str)
    point = {name: rng.choice((-1, 1)) * sympy.Rational(rng.randint(11, 99), rng.randint(11, 99)) for name in names}
    return [complex(one.subs(point).evalf(30)) for one in (expression, other)]


def test_random_points_agree_with_the_table():
    rng, compared = random.Random(7), 0
    for family, given, expected, equal in ALL:
        a, b = translated(given), translated(expected)
        if family == "decimals" or "\\pm" in given or None in (a, b) or False in (a.is_finite, b.is_finite):
            continue
        if (given, expected) in ONE_WAY:  # equal in value, and refused, because work is left
            continue
        close = (
            (a == b)
            if a.is_Rational and b.is_Rational
            else all(
                abs(x - y) <= 1e-9 * max(abs(x), abs(y), 1e-300)
                for x, y in (values(a, b, rng) for _ in range(3))
                if math.isfinite(abs(x) + abs(y))
            )
        )
        assert close == equal, (given, expected)
        compared += 1
    assert compared >= 60


VALUES = [  # answers with different meanings
    "0", "1", "-1", "2", "12", "21", "1/2", "2/3", "0.25", "1000", "10^{-3}", "\\sqrt{2}", "\\sqrt{3}",
    "2\\sqrt{3}", "\\pi",
    "2\\pi", "e", "x", "x^2", "x^{2x}", "2^{n-1}", "2^n-1", "\\sqrt{x+1}", "\\sqrt{x}+1", "\\frac{x}{2}",
    "\\frac{2}{x}", "n!",
    "3+4i", "3-4i", "i", "(1,2)", "(2,1)", "[1,2]", "[1,2)", "\\{1,2\\}", "\\{1,3\\}", "1,2,3", "x<5", "x\\leq 5",
    "x>5",
    "x^2+y^2=1", "(-\\infty,1)", "(-\\infty,1)\\cup(2,\\infty)", "\\begin{pmatrix}1&2\\end{pmatrix}", "\\emptyset",
    "\\infty",
    "-\\infty", "B", "C", "Monday", "no solution", "10 north", "10 south", "5\\text{ million}", "100_8", "a_{n+1}",
    "a_n+1",
    "\\log_2 x", "\\sin x", "\\cos x", "|x-1|", "x-1", "\\overline{AB}", "7 km",
]  # fmt: skip


@pytest.mark.parametrize("answer", VALUES)
def test_an_answer_equals_itself_in_the_dress_of_latex(answer):
    for dressed in (
        answer, f" {answer} ", f"${answer}$", f"$${answer}$$", f"\\({answer}\\)", f"\\[{answer}\\]", f"{answer}.",
        answer.replace("(", "\\left(").replace(")", "\\right)") if answer.count("(") == answer.count(")") else answer,
        answer.replace("\\frac", "\\dfrac"), answer.replace(",",
        ",\\,"), f"\\displaystyle {answer}", f"\\boxed{{{answer}}}",
    ):  # fmt: skip
        assert same(dressed, answer) and same(answer, dressed), (dressed, answer)


@pytest.mark.parametrize("count", [300, pytest.param(None, marks=pytest.mark.slow)])
def test_no_two_answers_of_different_meaning_are_equal(count):
    pairs = list(itertools.permutations(VALUES, 2))
    for a, b in random.Random(1).sample(pairs, count or len(pairs)):
        assert not same(a, b), (a, b)


def test_dress_changes_no_verdict():
    rng = random.Random(3)
    for _, given, expected, equal in rng.sample([one for one in ALL if "$" not in one[1] + one[2]], 60):
        assert same(f"${given}$", f"\\( {expected} \\)") is equal, (given, expected)


def test_a_pair_without_an_end_is_unjudged_and_not_paid():
    assert compare("9^{9^{9^{9}}}", "1") == "unjudged" and not same("9^{9^{9^{9}}}", "1")
    assert compare("(10^{9})!", "x") == "unjudged"
    assert compare("e^{e^{e^{e^{e^{e}}}}}", "x") == "unjudged"
    # Values at three points refute these at once.
    assert compare("(x+1)^{1000}", "x^2+1") == compare("x^{99999999999}", "5") == "different"
    assert compare("9^{9^{9^{9}}}", "9^{9^{9^{9}}}") == "equal"  # without working it out


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is: 42", "42"), ("The final answer is: $\\boxed 5$", "5"), ("**Answer:** 42", "42"),
        ("**Final Answer**: 42", "42"), ("The answer is 42. Let me know.", "42"), ("\\boxed {5}", "5"),
        ("<answer>42</answer>", "42"), ("**Answer: 42**", "42"), ("**The answer is 42.**", "42"), ("Answer: **42**",
        "42"),
        ("Answer: `42`", "42"), ("__Answer__: 42", "42"), ("Answer：42", "42"), ("ANSWER: 42", "42"),
        ("## Answer\n42", "42"),
        ("**Final Answer**\n\n42", "42"), ("**Final Answer:**\n\n$$\n42\n$$", "42"), ("Answer = 42", "42"),
        ("The answer is:\n\\[\n\\frac{1}{2}\n\\]", "1/2"), ("The answer is $5$ because 2 + 3 = 5.", "5"),
        ("The answer is 42 because 6 * 7 = 42", "42"), ("The answer is 3.5.", "3.5"), ("The answer is 3.5", "3.5"),
        ("Final Answer: The final answer is $5$. I hope it is correct.", "5"), ("答案是 42。", "42"),
        ("最终答案为：42", "42"),
        ("The answer is 1. But no: the answer is 2.", "2"), ("\\fbox{5}", "5"), ("so $\\boxed{5$.", "5"),
        ("\\boxed{5", "5"),
        ("x=\\boxed{1} or x=\\boxed{2}", "1,2"), ("$\\boxed{1}$ and $\\boxed{2}$.", "1,2"),
        ("\\boxed{5}, \\boxed{5}", "5"),
        ("\\boxed\\frac12", "1/2"), ("So \\boxed5 is it", "5"), ("\\boxed{\\left\\{1,2\\right\\}}", "\\{1,2\\}"),
        ("The answer to the question is 42.", "42"), ("The correct answer is (B).", "B"), ("The answer is x = 5.", "5"),
        ("The answer is 42 apples.", "42"), ("The answer is: $\\frac12$ units", "1/2"), ("The answers are 2 and 3.",
        "2,3"),
        ("#### 42\n", "42"), ("#### \\boxed{5}", "5"), ("<answer> 42", "42"),
        ("<answer>1</answer><answer>2</answer>", "2"),
        ("The answer is -5.", "-5"), ("The answer is $1,234$.", "1234"), ("The answer is 42<|im_end|>", "42"),
        ("\\text{Answer: } 42", "42"), ("<think>It is \\boxed{7}.</think>The answer is 5", "5"),
        ("[THINK]\\boxed{7}[/THINK]\\boxed{5}", "5"), ("Answer: \\frac{1}{2}", "0.5"), ("The answer is $\\$5$.", "5"),
        ("The answer is therefore 42.", "42"), ('The answer is "42".', "42"), ("**42**", "42"),
        ("The answer is option B.", "B"),
        ("The answer is B) 42", "B"), ("The answer is **(B) 42**.", "B"), ("La respuesta es 42", "42"),
        ("Die Antwort lautet: 42", "42"), ("答えは 42 です。", "42"), ("정답은 42입니다.", "42"),
        ("Answer \\( 9 \\)", "9"),
        ("Final Answer\n\n42", "42"), ("Final Answer: The largest $n$ is 34.", "34"), ("The answer is .5.", "0.5"),
        ("Final Answer: The final answer is $42$. I hope it is correct.", "42"), ("[ANSWER] 42 [/ANSWER]", "42"),
        ("Answer: The probability is \\frac{3}{4}.", "3/4"), ("<|begin_of_box|>42<|end_of_box|>", "42"),
        ("Answer: The solutions are 5 and 6", "5,6"), ("<final_answer>42</final_answer>", "42"),
        ("Ans: 42", "42"), ("The answer is 42, which is even.", "42"), ("The answer would be 42", "42"),
    ],
)  # fmt: skip
def test_the_answer_of_a_text(text, answer):
    found = final_answer(text)
    assert same(found, answer), found


@pytest.mark.parametrize(
    "text",
    [
        "The answer is 5 or 6.", "The answer is not 5.", "Answer: 5, 6", "Answer: 6, 5", "The answer is either 5 or 6",
        "<think>The answer is 5", "<think>\\boxed{5}", "<think>\\boxed{5}</think>", "5 \\boxed{}",
        "\\boxed{5} \\boxed{6}",
        "\\boxed{5} or \\boxed{6}", "\\boxed{6} and \\boxed{5}", "\\boxed{6} \\boxed{5", "#### 5 or 6",
        "The answer is 5, maybe 6.",
        "Answer: 1 2 3 4 5", "1, 2, 3, 4, 5", "The answer is 5. The answer is 6.",
        "<answer>5</answer> <answer>6</answer>",
        "I know the answer: it is not 5", "The answer is 5 or so", "The answer is about 5", "The answer is at least 5",
        "The answer is five minus 0: 5 - 0", "The answer is 4 + 1", "5 is not the answer", "\\boxed{5}{6} \\boxed{6}",
        "Final Answer: The number is not 5", "Answer: It is either 5 or 6", "Answer: The value of 5 is 6",
        "Answer: If n is 5 then 6", "Answer: The options are 5, 6", "Final Answer\nThe answer is 6",
    ],
)  # fmt: skip
def test_no_text_is_paid_for_five_that_does_not_say_five(text):
    assert not same(final_answer(text), "5")


def test_boxes_by_hand():
    assert boxed("\\boxed{1} so \\boxed{\\frac{1}{2}} and \\boxed{open") == "\\frac{1}{2}"
    assert boxed("no box") is None and boxed("} \\boxed{1 \\boxed{2} {") == "2" and boxed("\\boxed{\\boxed{1}}") == "1"
    assert (
        boxed("\\boxed{\\{1,2\\}}") == "\\{1,2\\}"
        and boxed("\\boxed{a\\}b}") == "a\\}b"
        and boxed("\\boxedx{5}") is None
    )
    assert boxed("\\boxed{1}, \\boxed{2} and \\boxed{3}") == "1, 2, 3" and boxed("\\boxed{1} \\boxed{2}") == "2"


@pytest.mark.parametrize(
    ("cell", "answer"),
    [
        ("Six times seven. The answer is: 42", "42"), ("So $x=\\boxed 5$.", "5"), (42, "42"), (4.5, "4.5"),
        (["42"], "42"),
        ('["34"]', "34"), ("['1', '2']", "1; 2"), ("[1,2]", "[1,2]"), ({"target": ["34"]}, "34"), ("72", "72"),
        (None, ""), ([], ""),
        ("3 <<1+2=3>>3\n#### 1,007", "1,007"), ("\\frac{1}{2}", "\\frac{1}{2}"), (["1,234", "5"], "1,234; 5"), ("", ""),
        ("<think>\\boxed{3}</think> \\boxed{4}", "4"), ("**Final Answer**\n\n\\boxed{7}", "7"), (True, "True"),
    ],
)  # fmt: skip
def test_the_answer_in_a_cell(cell, answer):
    assert gold_answer(cell) == answer
