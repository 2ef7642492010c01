"""The health rule for decisions that became certain too early.

Nearly all copies of a task then decide alike, and credit has no other decision with which it could compare this one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentrl.evaluate.decisions import SituationRow, pooled

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A finding of a health rule on a run.

    Attributes:
        rule: name of the rule.
        severity: error (the run is broken), warning (the run is likely to learn nothing) or note.
        text: one sentence with numbers and advice.
        stage, iteration: `stage` and `step` of the line of metrics at which the rule was broken.
        subject: the thing that breaks the rule, such as a decision, if several things can break it; else empty.
    """

    rule: str
    severity: Severity
    text: str
    stage: str
    iteration: int
    subject: str = ""


CERTAIN_ITERATIONS = 10  # the first ten iterations of a run are compared with its latest ten
# Smallest number of groups with several decisions in one state: needed at the start, and in the latest iterations.
ENOUGH_GROUPS = 20
# In the states where copies differed at the start: the decision was made at least this number of times, and its
# alternatives together were made at least this number of times.
ENOUGH_DECISIONS = 20
CERTAIN, OPEN = 0.1, 0.3  # share of groups in which the decision varies: at most CERTAIN now, at least OPEN at first
SOLVED = 0.9  # a decision whose episodes reach this success rate is no finding

CERTAIN_IN_WORDS = (
    f"a decision that varied in at least {OPEN:.0%} of the groups of the first {CERTAIN_ITERATIONS} iterations varied "
    f"in at most {CERTAIN:.0%} of the groups of the last {CERTAIN_ITERATIONS}, although it did no better than "
    f"its alternatives and less than {SOLVED:.0%} of its episodes succeed"
)


def certain_too_early(rows: Sequence[SituationRow]) -> list[Finding]:
    """A finding for each kind of decision that has become certain although its episodes still fail too often.

    "Groups" are here the groups with two or more decisions in one state (`SituationRow.groups`). A group varies in a
    decision if, in one such state, some copies made the decision and other copies did not. A decision is a finding if
    all of these conditions hold:

    - in the last `CERTAIN_ITERATIONS` iterations, at most `CERTAIN` of the groups vary in the decision;
    - in the run's first `CERTAIN_ITERATIONS`, at least `OPEN` of the groups varied in the decision;
    - less than `SOLVED` of the episodes with the decision succeed now;
    - at the start, in the states where copies differed, the success rate of the episodes with the decision was no
      higher than that of the episodes with an alternative;
    - there were at least `ENOUGH_GROUPS` groups at the start, and at least `ENOUGH_GROUPS` groups now;
    - at the start, in the states where copies differed, the decision was made at least `ENOUGH_DECISIONS` times, and
      its alternatives together were made at least `ENOUGH_DECISIONS` times.

    So a decision without an alternative is no finding, because it never varied. A decision that is certain because it
    is right is no finding either, because its episodes succeeded more often while it varied.

    Args:
        rows: the rows of the iterations from the run's start to now, in any order.

    Returns:
        The findings, the most frequent decision first; none before 2 * CERTAIN_ITERATIONS iterations.
    """
    iterations = sorted({row.iteration for row in rows})
    if len(iterations) < 2 * CERTAIN_ITERATIONS:
        return []
    start, now = set(iterations[:CERTAIN_ITERATIONS]), set(iterations[-CERTAIN_ITERATIONS:])
    early = {row.situation: row for row in pooled(row for row in rows if row.iteration in start)}
    late = pooled(row for row in rows if row.iteration in now)
    return [
        Finding(
            rule="certain_too_early",
            severity="warning",
            text=_sentence(row, early[row.situation]),
            stage="train",
            iteration=max(now),
            subject=row.situation,
        )
        for row in late
        if row.situation in early and _became_certain(row, early[row.situation]) and _fails(row, early[row.situation])
    ]


def _became_certain(late: SituationRow, early: SituationRow) -> bool:
    enough = min(late.groups, early.groups) >= ENOUGH_GROUPS
    return enough and late.varied <= CERTAIN * late.groups and early.varied >= OPEN * early.groups


def _fails(late: SituationRow, early: SituationRow) -> bool:
    if min(early.chosen, early.instead) < ENOUGH_DECISIONS or late.won >= SOLVED * late.episodes:
        return False
    return early.chosen_won / early.chosen <= early.instead_won / early.instead


def _sentence(late: SituationRow, early: SituationRow) -> str:
    varied = f"{early.varied / early.groups:.0%} of groups at the start and in {late.varied / late.groups:.0%} now"
    chosen, instead = early.chosen_won / early.chosen, early.instead_won / early.instead
    return (
        f'the decision "{late.situation}" has become certain: copies that had the same choice differed in {varied}, '
        f"{late.won / late.episodes:.0%} of its episodes succeed now, and where copies differed at the start, "
        f"{chosen:.0%} of the episodes with it succeeded and {instead:.0%} of the episodes with an alternative; copies "
        "hardly try an alternative now, so no return can show whether one is better: show in the prompt, close to the "
        "answer, what this decision depends on, let the answer name it first, clone with smaller steps (lower "
        "warmup.optim.lr), or let the decision vary for longer (lower optim.lr, update.entropy_coef above 0)"
    )
