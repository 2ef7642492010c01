"""Why a step has its credit: the arithmetic in words, and what options and parts of a method mean.

A method's credit is explained in words only if the arithmetic in the words gives the same credit. This is checked on
every step that has credit and whose group has at least two members.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel

from agentrl import catalogue
from agentrl.credit import Credit
from agentrl.graph import StepGraph, count, moments, step_votes
from agentrl.settings import meanings

PARTS = {
    "returns": "the sum of the rewards from this step on, or another number that the method computes instead",
    "episode_advantage": "the score of the whole episode, compared with the other episodes of its group",
    "step_advantage": "step_return of this step, compared with step_return of the other steps that left the same state",
    "step_return": "the discounted sum of the rewards from this step on, or the number that the method uses instead",
    "step_group": "the number of the set of steps with which this step is compared: all left the same state",
}
NO_DEVIATION = "the differences in a group are not divided by their standard deviation (std=none)"


def explained_options(method: str, options: Mapping[str, Any], parts: Sequence[str]) -> dict[str, str]:
    """The meaning of each option and part that has an explanation; the text of an option is that of `--explain`."""
    found: dict[str, str] = {}
    if method in catalogue.names("credit"):
        config = catalogue.load("credit", method).config
        if isinstance(config, type) and issubclass(config, BaseModel):
            found = {name: text for name, text in meanings(config).items() if name in options and text}
    return found | {name: PARTS[name] for name in parts if name in PARTS}


def about_under(about: str, options: Mapping[str, Any]) -> str:
    """The sentence about a method; with std=none, it also says that there is no division by a standard deviation."""
    if options.get("std") != "none":
        return about
    sentence = about.replace("normalised inside its group", "less the mean of its group").rstrip(".")
    return f"{sentence}; here {NO_DEVIATION}."


def adding_up(total: float, terms: Sequence[float]) -> tuple[str, str, list[str]]:
    """A sum as printed: the total, "=" or "is about", and its terms.

    The numbers have the fewest decimals, from three to six, with which the printed terms add up to the printed total.
    If no such number of decimals exists, they have three, and the sign is "is about".
    """
    for digits in range(3, 7):
        whole, *texts = _rounded((total, *terms), digits)
        if sum(map(Decimal, texts)) == Decimal(whole):
            return whole, "=", texts
    whole, *texts = _rounded((total, *terms), 3)
    return whole, "is about", texts


def _rounded(values: Sequence[float], digits: int) -> list[str]:
    """The values with this number of decimals, and without a sign on a zero."""
    return [f"{round(x, digits) + 0.0:.{digits}f}" for x in values]


def sum_in_words(advantage: float, terms: Sequence[tuple[str, float]]) -> str:
    """The credit and its parts, such as "-1.571 = episode_advantage -0.875 + step_advantage -0.696".

    If the parts do not add up to the credit, they are listed after it without a sum.
    """
    names = [name for name, _ in terms]
    if abs(advantage - sum(x for _, x in terms)) > 2e-5 * max(1.0, abs(advantage)):  # numbers of a page have six digits
        return ", ".join([f"{advantage:+.3f}", *(f"{name} {x:+.3f}" for name, x in terms)])
    whole, sign, texts = adding_up(advantage, [x for _, x in terms])
    return f"{whole} {sign} {' + '.join(f'{name} {text}' for name, text in zip(names, texts, strict=True))}"


def why(graph: StepGraph, credit: Credit, options: Mapping[str, Any], rows: np.ndarray) -> list[str]:
    """For each of `rows` the arithmetic of its credit, in words.

    The list is empty if neither the credit nor a part of it is a difference from the mean of a group.

    Args:
        graph: all steps.
        credit: the credit that one method gives the steps.
        options: the options of the method.
        rows: [M] the steps that are shown.
    """
    parts, by_step = credit.parts, options.get("unit") == "step"
    weight = graph.weight * graph.counted  # [N]
    votes = weight if by_step else weight * graph.first  # [N]
    name = "episode_advantage" if any(part.endswith("advantage") for part in parts) else "advantage"
    whom = f"{'steps' if by_step else 'episodes'} of its group"
    score = _Term(name, "score", whom, "0, because its group has no other episode", graph.score, graph.peers, votes)
    told = [_less_mean(score, parts.get(name, credit.advantage), credit.assigned, options, rows)]
    if {"step_advantage", "step_return", "step_group"} <= parts.keys():
        number = parts["step_group"]  # [N] NaN on steps without credit; below, all these steps form one group
        anchor = np.unique(number, return_inverse=True, equal_nan=True)[1]  # [N]
        alone = "0, because no other step left this state"
        has = np.isfinite(parts["step_return"])  # [N]
        returns = (np.where(has, parts["step_return"], 0.0), anchor, step_votes(graph, anchor) * has)
        step = _Term("step_advantage", "step_return", "steps that left this state", alone, *returns)
        told.append(_less_mean(step, parts["step_advantage"], credit.assigned, options, rows))
    told = [sentences for sentences in told if sentences]
    if told and len(parts) > 1:
        told = [[_sum(credit, row) for row in rows.tolist()], *told]
    return ["; ".join(filter(None, same)) for same in zip(*told, strict=True)]


def _sum(credit: Credit, row: int) -> str:
    if not credit.assigned[row]:
        return ""
    terms = [(name, float(part[row])) for name, part in credit.parts.items() if name.endswith("advantage")]
    return sum_in_words(float(credit.advantage[row]), terms)


class _Term(NamedTuple):
    """A part of the credit that may be a difference from a mean: its words, and arrays [N] of value, group, weight."""

    name: str
    what: str
    whom: str
    alone: str
    value: np.ndarray
    key: np.ndarray
    weight: np.ndarray


def _less_mean(
    term: _Term, given: np.ndarray, assigned: np.ndarray, options: Mapping[str, Any], rows: np.ndarray
) -> list[str]:
    """For each of `rows`, the arithmetic of a term in words, such as "name = its value - the mean of its group".

    If the option `std` asks for a division by the standard deviation, the words name it. The list is empty if `given`
    was not computed in this way.
    """
    m = moments(term.value, term.key, term.weight, options.get("std", "none"))
    size = count(term.key, (term.weight > 0).astype(np.float64))  # [N] members that count
    several = assigned & (size > 1)  # [N]
    due = (term.value - m.mean) / m.std  # [N]
    if not several.any() or not np.allclose(due[several], given[several], rtol=1e-4, atol=1e-6):
        return []
    found = []
    for row in rows.tolist():
        if not assigned[row] or (size[row] <= 1 and given[row] != 0):
            found.append("")
        elif size[row] <= 1:
            found.append(f"{term.name} is {term.alone}")
        else:
            whole, sign, (own, less) = adding_up(term.value[row] - m.mean[row], (term.value[row], -m.mean[row]))
            mean = less[1:] if less.startswith("-") else f"-{less}" if float(less) else less
            words = f"its {term.what} {own} - the mean {mean} of the {size[row]:.0f} {term.whom}"
            divided = f"{term.name} {given[row]:.3f} is about ({words}) / their standard deviation {m.std[row]:.3f}"
            found.append(f"{term.name} {whole} {sign} {words}" if m.std[row] == 1 else divided)
    return found
