"""Is an answer right? The final answer is found in a text (`extraction`), and compared with the right one.

`same` compares two answers. Numbers are compared by their exact values, lists by their parts, and expressions by
math-verify (Hugging Face; the grader of Open R1 and of lighteval) in a process with limits (`judge`). Our own rules
stand around it where the graders of the field differ, or where one of them pays for a wrong answer:

- Choices: `(B) 42`, `B. 42` and "option B" are B, and `(B) 42` is 42. An answer that names two choices is none.
- Order: pairs, intervals and matrices are compared part by part; a list without brackets and a set in any order. A
  pair is no list: `(1,2)` is not `1,2`. `1 \\pm 2` is a list of two.
- Names: `x = 5` is 5, and not `y = 5`. An equation or inequality that is still to be solved (`2x = 4`) is not its
  solution. Everything in a chain `x = a = b` must be right.
  An equation that states a value is the value (`m+n = 25`, `12*7 = 84`), but an expected equation of unknowns is not
  (25 is no answer to the line `x+y = 25`). `f(x) = 2x` is `y = 2x`. `\\frac13 \\approx 0.33` is 1/3.
- Inequalities: one with a name alone is the interval that it describes; `2x < 6` is not, because work is left.
- Decimals are exact, apart from the rounding of doubles (1e-12) and from decimals of 6 places or more that round or
  cut a fraction or a constant: 0.333333 = 1/3, 0.33 is not. (math-verify rounds both sides to 6 places.)
- Percent is a unit: 5% = 5, and not 0.05, as in the scorers of MATH and DAPO. (math-verify takes both.)
- Work that is left: a sum, a product (12*7), an integral or a limit is not the number that it makes, as in the scorers
  of MATH and DAPO. (math-verify works it out, so a question could be its own answer.) Powers, roots, fractions and
  factorials are numbers, and so is the scientific form. Limit: an expression that repeats the question ("simplify
  (x+1)(x-1)") is paid.
- Letters: case counts, but not in words of three letters or more, and not if a choice has brackets: (b) = B.
- Words behind an answer: see Units. A word that changes the answer must be the same in both: "5 million", "10 south",
  "5 or 6", "not 5". Two answers with different words differ. Multipliers are worked out: 5 million = 5,000,000.
- Blanks and braces: `2 3` is two numbers; `1 234` and `1\\,234` are one. Braces go only around one token.
- Decimal commas: `3{,}14`, and `3,14` if the other answer is a decimal.
- Thousands: `1,234` is 1234 outside brackets, and two numbers in them; it is two numbers too if the other answer is a
  list of these.

Units. A unit in front of or behind an answer is removed: signs of money, `%`, degrees, words in `\\text{}`, and the
words of `units.UNIT_WORDS` and longer ones without it. An answer without a unit equals the same answer with one,
because data sets seldom agree on units: "5" = "5 km". With `units = "agree"`, "5 km" and "5 m" differ; nothing is
converted, so "1 km" and "1000 m" differ too. With `units = "ignore"` they are equal, as in the released scorers of
MATH (Hendrycks et al., arXiv:2103.03874, `remove_right_units`), which remove units without comparing them.

Every function takes time linear in its text, or looks at no more than LONGEST characters, because a model may write
any text.
"""

from agentrl.envs.code_math.equality import Units, compare as _compare
from agentrl.envs.code_math.extraction import boxed, final_answer, gold_answer
from agentrl.envs.code_math.judge import Verdict, require

__all__ = ["LONGEST", "Units", "Verdict", "boxed", "compare", "final_answer", "gold_answer", "require", "same"]

LONGEST = 1000  # characters; if an answer is longer, the two answers are compared letter by letter


def same(given: str, expected: str, units: Units = "agree") -> bool:
    """Do two answers mean the same? `compare` without the reason."""
    return compare(given, expected, units) == "equal"


def compare(given: str, expected: str, units: Units = "agree") -> Verdict:
    """Do two answers mean the same? The order matters to a few pairs; the docstring of the module names them.

    Args:
        given: the answer of a model.
        expected: the right answer.
        units: see the module.

    Returns:
        "equal", "different", or "unjudged" if the comparison takes more time or memory than `judge_worker` allows. An
        answer that is unjudged is not paid.

    Raises:
        ValueError: math-verify is needed and not installed.
        EnvFault: the process of math-verify failed.
    """
    if given.strip() == expected.strip():
        return "equal" if given.strip() else "different"
    if max(len(given), len(expected)) > LONGEST:
        return "different"
    return _compare(given, expected, units)
