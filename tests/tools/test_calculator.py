"""The calculator tool."""

import re
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

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
        ("round(1/3, 1000000000)", "at most 1000 places"),  # would work out 10**1000000000
        ("round(1/3, -10**300)", "at most 1000 places"),
        ("1e300**1.5", "too large"),
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
