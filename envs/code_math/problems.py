"""Generated problems with one right answer, in four levels; and the columns of common files of problems.

Level 1 is one operation on two numbers, level 2 two operations, level 3 three operations in a short story. Level 4 asks
about many numbers or a large power (sums, counts, digits, remainders), which a loop can compute. The numbers are so
large that a model can hardly guess the result.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from agentrl.chat import text_of_content
from agentrl.envs.code_math.answers import gold_answer


class Problem(NamedTuple):
    """A question, its answer, and an expression that has the answer as its value (for demonstrators)."""

    kind: str
    question: str
    answer: str
    expression: str


THINGS = ("pens", "apples", "books", "stones", "cards", "cups", "keys", "coins")
PEOPLE = ("Anna", "Ben", "Carla", "David", "Emma", "Felix", "Greta", "Hugo")
HOLDERS = ("boxes", "bags", "shelves", "rows")


def _one(rng: np.random.Generator) -> Problem:
    """One operation."""
    a, b = (int(v) for v in rng.integers(12, 1000, 2))
    person, thing, holder = (str(rng.choice(words)) for words in (PEOPLE, THINGS, HOLDERS))
    kind = str(rng.choice(["add", "subtract", "multiply", "share"]))
    if kind == "add":
        return _made(kind, f"{person} has {a} {thing} and gets {b} more . How many {thing} now ?", f"{a} + {b}")
    if kind == "subtract":
        a, b = max(a, b) + 1, min(a, b)
        return _made(kind, f"{person} has {a} {thing} and gives away {b} . How many {thing} are left ?", f"{a} - {b}")
    if kind == "multiply":
        return _made(kind, f"{person} fills {a} {holder} with {b} {thing} each . How many {thing} ?", f"{a} * {b}")
    b = int(rng.integers(3, 30))
    text = f"{person} shares {a * b} {thing} equally among {b} {holder} . How many {thing} in each ?"
    return _made(kind, text, f"{a * b} // {b}")


def _two(rng: np.random.Generator) -> Problem:
    """Two operations."""
    a, b, c = int(rng.integers(12, 200)), int(rng.integers(12, 200)), int(rng.integers(12, 140))
    person, thing, holder = (str(rng.choice(words)) for words in (PEOPLE, THINGS, HOLDERS))
    kind = str(rng.choice(["fill and give", "fill and get", "two fillings"]))
    start = f"{person} fills {a} {holder} with {b} {thing} each"
    if kind == "fill and give":
        return _made(kind, f"{start} and gives away {c} . How many {thing} are left ?", f"{a} * {b} - {c}")
    if kind == "fill and get":
        return _made(kind, f"{start} and gets {c} more . How many {thing} now ?", f"{a} * {b} + {c}")
    text = f"{person} has {a} {holder} and gets {b} more , each with {c} {thing} . How many {thing} ?"
    return _made(kind, text, f"( {a} + {b} ) * {c}")


def _three(rng: np.random.Generator) -> Problem:
    """Three operations."""
    a, b, c, d = (int(v) for v in rng.integers(12, 120, 4))
    person, other = (str(name) for name in rng.choice(PEOPLE, 2, replace=False))
    thing, holder = str(rng.choice(THINGS)), str(rng.choice(HOLDERS))
    kind = str(rng.choice(["two people", "change", "remainder"]))
    if kind == "two people":
        text = (
            f"{person} has {a} {holder} with {b} {thing} each , {other} has {c} {holder} with {d} {thing} each . "
            f"How many {thing} do they have together ?"
        )
        return _made(kind, text, f"{a} * {b} + {c} * {d}")
    if kind == "change":
        paid = a * b + c * d + int(rng.integers(1, 500))
        text = (
            f"{person} buys {a} {thing} at {b} cents each and {c} others at {d} cents each , "
            f"and pays with {paid} cents . How many cents come back ?"
        )
        return _made(kind, text, f"{paid} - {a} * {b} - {c} * {d}")
    text = f"{person} packs {a} * {b} + {c} {thing} into {holder} of {d} . How many {thing} are left over ?"
    return _made(kind, text, f"( {a} * {b} + {c} ) % {d}")


def _loop(rng: np.random.Generator) -> Problem:
    """A question about many numbers, or about a large power."""
    n, k, m = int(rng.integers(200, 3000)), int(rng.integers(3, 20)), int(rng.integers(2, 12))
    primes = "sum(p for p in range(2, {n}) if all(p % d for d in range(2, int(p**0.5) + 1)))"
    asked: list[tuple[str, str, str]] = [
        ("primes", f"What is the sum of all primes below {n}?", primes.format(n=n)),
        (
            "divisible",
            f"How many integers from 1 to {n} are divisible by {k} but not by {m}?",
            f"sum(1 for i in range(1, {n} + 1) if i % {k} == 0 and i % {m} != 0)",
        ),
        (
            "digits",
            f"What is the sum of the decimal digits of {m}^{n % 200 + 20}?",
            f"sum(int(c) for c in str({m} ** {n % 200 + 20}))",
        ),
        ("modulus", f"What is the remainder of {k}^{n} divided by {n + m}?", f"pow({k}, {n}, {n + m})"),
        (
            "palindromes",
            f"How many integers from 1 to {n * 10} read the same backwards and are divisible by {m}?",
            f"sum(1 for i in range(1, {n * 10} + 1) if str(i) == str(i)[::-1] and i % {m} == 0)",
        ),
    ]
    return _made(*asked[int(rng.integers(len(asked)))])


LEVELS: Mapping[int, Callable[[np.random.Generator], Problem]] = {1: _one, 2: _two, 3: _three, 4: _loop}


def _made(kind: str, question: str, expression: str) -> Problem:
    value = eval(
        expression, {"__builtins__": {"sum": sum, "range": range, "all": all, "int": int, "str": str, "pow": pow}}
    )
    assert isinstance(value, int) and math.isfinite(value)
    return Problem(kind, question, str(value), expression)


def generate(level: int, seed: int) -> Problem:
    """The problem of a seed; ValueError if there is no such level."""
    if level not in LEVELS:
        raise ValueError(f"level = {level}: choose among {', '.join(map(str, LEVELS))}")
    return LEVELS[level](np.random.default_rng([level, seed]))


QUESTIONS = ("question", "problem", "prompt", "query", "input", "instruction")
ANSWERS = (
    "answer", "expected_answer", "final_answer", "ground_truth", "gold", "solution", "target", "response", "output",
)  # fmt: skip


def read(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The question, the right answer and the kind of one row of a file.

    Takes GSM8K (question, answer with ####), MATH (problem, solution with a box, or answer), DAPO and verl (prompt as
    chat messages, reward_model.ground_truth), MetaMathQA (query, response), and plain question and answer. Names of
    columns may have capital letters. The first column with a value counts; `answers.gold_answer` reads the answer.

    Raises:
        ValueError: the row has none of these forms, or an empty answer.
    """
    cells = {str(name).lower(): value for name, value in row.items()}
    question = next((cells[name] for name in QUESTIONS if cells.get(name)), None)
    if isinstance(question, list):
        asked = next((m["content"] for m in reversed(question) if m.get("role") == "user"), None)
        question = asked and text_of_content(asked, f"{where}: the content of its prompt")
    listed = [_ground_truth(cells.get("reward_model")), *(cells.get(name) for name in ANSWERS)]
    given = [answer for answer in listed if answer is not None]
    if not isinstance(question, str) or not given:
        raise ValueError(
            f"{where} is no problem: it has {', '.join(sorted(row))}; it needs question, problem or prompt, and answer,"
            " solution or reward_model.ground_truth"
        )
    expected = next(filter(None, map(gold_answer, given)), "")
    if not expected:
        raise ValueError(f"{where} has an empty answer")
    level = re.sub(r"\D", "", str(cells.get("level", "")))
    kind = next((str(cells[name]) for name in ("type", "subject", "data_source") if cells.get(name)), "math")
    return {"question": question, "target": expected, "kind": f"level {level}, {kind}" if level else kind}


def _ground_truth(model: Any) -> Any:
    """The right answer in verl's column `reward_model`, a mapping or its JSON."""
    if isinstance(model, str):
        try:
            model = json.loads(model)
        except ValueError:
            return None
    return model.get("ground_truth") if isinstance(model, Mapping) else None
