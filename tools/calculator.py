"""Exact arithmetic with whole numbers, fractions and decimals.

Two things are rounded: decimals are read with at most 17 significant digits, and roots (`sqrt`, and powers whose
exponent is a fraction) are computed in floating point.
"""

import ast
import math
import operator
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

from pydantic import BaseModel, Field

MOST_CHARS = 1000  # largest number of characters of an expression
MOST_BITS = 4096  # largest number of bits of every intermediate result: 9**9**9 must not stop the process
MOST_PLACES = 1000  # largest number of decimal places that `round` takes
OPERATIONS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {"abs": abs, "min": min, "max": max, "round": round, "sqrt": math.sqrt}


class Config(BaseModel, frozen=True, extra="forbid"):
    """digits: largest number of significant digits of results that are not whole numbers."""

    digits: int = Field(12, ge=1, le=30)


class Calculator:
    """The tool."""

    name = "calculator"

    def __init__(self, config: Config) -> None:
        self._digits = config.digits

    def __call__(self, expression: str) -> str:
        """Work out an arithmetic expression.

        Args:
            expression: numbers, + - * / // % **, brackets, and abs, min, max, round, sqrt
        """
        return shown(worked_out(expression), self._digits)


def worked_out(expression: str) -> Fraction:
    """The value of an arithmetic expression.

    Raises:
        ValueError: the text is too long or no arithmetic expression, divides by zero, takes a root of a negative
            number, or has too large a result.
    """
    if len(expression) > MOST_CHARS:
        raise ValueError(f"the expression has {len(expression)} characters, at most {MOST_CHARS} are read")
    try:
        return _value(ast.parse(expression.strip().replace("^", "**"), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{expression[:60]!r} is no arithmetic expression") from None
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except OverflowError:  # of a power with a fraction as its exponent, which is computed in floats
        raise ValueError("the result is too large") from None


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool) and math.isfinite(number):
            return Fraction(str(number))
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _value(inner)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in OPERATIONS:
            return _bounded(OPERATIONS[type(sign)](_value(left), _value(right)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS and arguments:
            return _function(name, [_value(one) for one in arguments])
    raise ValueError(f"{ast.unparse(node)[:60]!r} is no arithmetic: use numbers, + - * / // % ** and brackets")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if size * abs(exponent) > MOST_BITS:
        raise ValueError(f"the power is too large: results have at most {MOST_BITS} bits")
    if exponent.denominator != 1 and base < 0:
        raise ValueError("a root of a negative number")
    return _bounded(Fraction(base**exponent))


def _bounded(value: Any) -> Fraction:
    number = Fraction(value)
    if max(number.numerator.bit_length(), number.denominator.bit_length()) > MOST_BITS:
        raise ValueError(f"the result is too large: at most {MOST_BITS} bits")
    return number


def _function(name: str, arguments: list[Fraction]) -> Fraction:
    try:
        if name == "round" and len(arguments) == 2:
            if abs(arguments[1]) > MOST_PLACES:  # round computes 10**places, which must not stop the process either
                raise ValueError(f"at most {MOST_PLACES} places")
            return _bounded(round(arguments[0], int(arguments[1])))
        return _bounded(FUNCTIONS[name](*arguments))
    except (TypeError, OverflowError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from None


def shown(value: Fraction, digits: int = 12) -> str:
    """A whole number in full, any other number as a decimal with `digits` significant digits."""
    if value.denominator == 1:
        return str(value.numerator)
    with localcontext() as context:
        context.prec = digits
        number = Decimal(value.numerator) / Decimal(value.denominator)
    plain = format(number, "f") if -digits < number.adjusted() < digits else str(number)
    return plain.rstrip("0").rstrip(".") if "." in plain and "E" not in plain else plain


def make(config: Config) -> Calculator:
    """The tool."""
    return Calculator(config)
