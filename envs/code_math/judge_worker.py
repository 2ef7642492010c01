"""The program of the process that judges expressions: it reads pairs from its input and writes one verdict per pair.

`judge.Judge` starts it by its path. It imports math-verify and the standard library only, so that a start costs 0.4 CPU
seconds and no torch. Lines in: `[given, expected]` as JSON. Lines out: "ready" once, then per pair "equal", "different"
or "unjudged" (the pair took more than CPU_S of CPU time or more memory than MEMORY).

An expression becomes a SymPy expression by the parser of math-verify (`latex2sympy2_extended`), and
`math_verify.verify(expected, given)` compares the two; the order matters to it, because it follows the form of the
expected answer. Four things are done around it:

- Decimals are replaced by the fractions that they write, because math-verify rounds to 6 places, so 10^-7 and 2*10^-7
  would be equal. A decimal with at least 6 places and 6 digits equals a constant that rounds or truncates to it.
- `i` is the imaginary unit, `\\gamma` and `I` are variables, and the case of a letter counts.
- Both expressions are evaluated at three points before math-verify is asked; a difference of more than 1e-9 of their
  size refutes them. (Its own numerical comparison takes all values below 1e-15 for zero.)
- Two equations must be the same up to a factor: solving them, as math-verify does, takes y = sqrt(x) for y^2 = x.
"""

import json
import math
import os
import re
import resource
import signal
import sys
import time
from fractions import Fraction
from typing import Any

CPU_S = 5.0  # CPU seconds per pair
C_CALL_S = 2.0  # CPU seconds beyond CPU_S after which the kernel ends the process
MEMORY = 2 << 30  # bytes of address space
BITS = 20_000  # powers and factorials with more bits are not evaluated
PLACES = 6  # decimals with fewer places or digits are exact, and no approximations
DECIMAL = re.compile(r"-? ?\d+\.\d+")
NEARLY = 1e-9  # relative difference of two values that are equal but for rounding


class OutOfTimeError(BaseException):
    """The pair has used its CPU time. No `except Exception` of a library may catch it."""


def main() -> None:
    """Answer pairs until the input ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whatever a library prints is no verdict
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer, which closes the input
    import logging

    logging.disable(logging.CRITICAL)
    expressions = Expressions()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, _out_of_time)
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        given, expected = json.loads(line)
        print(bounded(expressions, given, expected), file=out, flush=True)


def bounded(expressions: "Expressions", given: str, expected: str) -> str:
    """The verdict on one pair, within the limits.

    The timer ends work in Python. One long call in C does not see the timer: the kernel
    ends the process C_CALL_S later (RLIMIT_CPU), and the trainer starts another one.
    """
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + CPU_S + C_CALL_S), most))
    try:
        signal.setitimer(signal.ITIMER_PROF, CPU_S)
        verdict = expressions.same(given, expected)
        signal.setitimer(signal.ITIMER_PROF, 0)
    except (OutOfTimeError, MemoryError, RecursionError, UnboundedError):
        signal.setitimer(signal.ITIMER_PROF, 0)
        return "unjudged"
    except Exception:  # noqa: BLE001  SymPy raises many types on expressions that it does not understand
        signal.setitimer(signal.ITIMER_PROF, 0)
        return "different"
    return "equal" if verdict else "different"


def _out_of_time(number: int, frame: Any) -> None:
    raise OutOfTimeError


class UnboundedError(ValueError):
    """A value of the expression has too many digits."""


class Expressions:
    """math-verify, imported once."""

    def __init__(self) -> None:
        import math_verify
        import sympy
        from latex2sympy2_extended import latex2sympy2

        self.sympy, self.verify, self.convert = sympy, math_verify.verify, latex2sympy2.latex2sympy
        self.settings = latex2sympy2.ConversionConfig(lowercase_symbols=False)

    def read(self, text: str) -> Any:
        """The SymPy object of a text; an exception if it has none."""
        sympy = self.sympy
        found = self.convert(
            text, is_real=True, convert_degrees=False, normalization_config=None, conversion_config=self.settings
        )
        if not isinstance(found, sympy.Basic):
            return found
        self._bound(found)
        i = sympy.Symbol("i", real=True)
        renamed = {sympy.I: sympy.Symbol("I", real=True), sympy.EulerGamma: sympy.Symbol("gamma", real=True)}
        exact = {one: sympy.Rational(str(one)) for one in found.atoms(sympy.Float)}
        found = found.xreplace({**renamed, **exact})
        return found.xreplace({i: sympy.I})

    def _bound(self, found: Any) -> None:
        """Raises UnboundedError if a power or a factorial in the expression has more than BITS bits."""
        sympy = self.sympy
        for node in sympy.postorder_traversal(found):  # small powers before the powers of these
            if isinstance(node, sympy.exp) and node.args[0].is_number and _approximate(node.args[0]) > BITS:
                raise UnboundedError
            if isinstance(node, sympy.Pow) and node.exp.is_number and node.base.is_number:
                exponent, base = _approximate(node.exp), _approximate(node.base)
                if exponent * max(1.0, abs(math.log2(base)) if base else 1.0) > BITS:
                    raise UnboundedError
            elif isinstance(node, sympy.factorial | sympy.binomial) and _approximate(node.args[0]) > BITS / 10:
                raise UnboundedError

    def same(self, given: str, expected: str) -> bool:
        """Are two expressions equal?"""
        a, b = self.read(given), self.read(expected)
        for text, other in ((given, b), (expected, a)):
            if DECIMAL.fullmatch(text) and getattr(other, "is_number", False):
                return self._approximates(text, other)
        # The refutation comes first: it takes no time, and math-verify expands (x+1)^{1000}.
        return not self._refuted(a, b) and bool(self.verify(b, a, timeout_seconds=None))

    def _approximates(self, decimal: str, constant: Any) -> bool:
        """Is the decimal the constant, or is it the constant rounded or cut, with enough digits?"""
        exact = self.sympy.N(constant, 60)
        return bool(exact.is_real) and approximates(decimal, Fraction(decimal.replace(" ", "")), Fraction(str(exact)))

    def _refuted(self, a: Any, b: Any) -> bool:
        """Do the values of two expressions, or the ratio of two equations, show that they are not equal?"""
        sympy = self.sympy
        if isinstance(a, sympy.Eq) and isinstance(b, sympy.Eq):
            a, b = (sympy.fraction(sympy.together(one.lhs - one.rhs))[0] for one in (a, b))
            ratios = {_rounded(x / y) for x, y in self._values(a, b) if abs(y) > NEARLY}
            return len(ratios) != 1 or (0.0, 0.0) in ratios
        if not isinstance(a, sympy.Expr) or not isinstance(b, sympy.Expr):
            return False
        return any(abs(x - y) > NEARLY * max(abs(x), abs(y)) for x, y in self._values(a, b))

    def _values(self, a: Any, b: Any) -> Any:
        """The values of two expressions at three points, as pairs of complex numbers; points without values are left
        out."""
        names = sorted(a.free_symbols | b.free_symbols, key=str)
        for point in range(3):
            chosen = {one: self.sympy.Rational(7 * point + 5 * k + 11, 13 - 2 * point) for k, one in enumerate(names)}
            try:
                x, y = (complex(one.evalf(30, subs=chosen)) for one in (a, b))
                finite = math.isfinite(abs(x) + abs(y))
            except (TypeError, ValueError, ArithmeticError, AttributeError):
                continue
            if finite:
                yield x, y


def approximates(decimal: str, value: Fraction, exact: Fraction) -> bool:
    """Is `exact` equal to the decimal, or does it become the decimal by rounding or cutting after its last digit?

    A decimal is compared so only if it has at least PLACES places and as many digits that count.
    """
    whole, _, after = decimal.strip("+- ").partition(".")
    if value == exact:
        return True
    if len(after) < PLACES or len((whole + after).lstrip("0")) < PLACES:
        return False
    unit = Fraction(1, 10 ** len(after))
    return abs(value - exact) <= unit / 2 or ((value >= 0) == (exact >= 0) and 0 <= abs(exact) - abs(value) < unit)


def _approximate(number: Any) -> float:
    """The size of a number; 0 if it has letters, infinity if it cannot be worked out."""
    if not number.is_number:
        return 0.0
    try:
        return abs(complex(number.evalf(5, maxn=30)))
    except (TypeError, ValueError, OverflowError):
        return math.inf


def _rounded(number: complex) -> tuple[float, float]:
    return float(f"{number.real:.9g}"), float(f"{number.imag:.9g}") if abs(number.imag) > NEARLY else 0.0


if __name__ == "__main__":
    main()
