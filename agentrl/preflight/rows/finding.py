"""A finding: something that a check has found wrong with rows."""

from collections.abc import Sequence
from dataclasses import dataclass

SHOWN = 6  # largest number of places that `listed` names


@dataclass(frozen=True, kw_only=True)
class RowFinding:
    """Something that is wrong with some rows.

    Attributes:
        kind: unreadable, type, number, empty, missing, duplicate, contradiction, near, leak, split, long, reset,
            unanswerable. docs/data.md explains each kind.
        rows: the places of the rows, such as "line 7" or "row 6 of test"; empty if the finding is about all rows.
        text: one sentence that says what is wrong and what to do.
    """

    kind: str
    rows: tuple[str, ...]
    text: str


def listed(places: Sequence[str]) -> str:
    """Places in words: "line 2, line 5 and line 9".

    If there are more than SHOWN places, the others are only counted, as in "and 7 more".
    """
    shown = list(places[:SHOWN])
    if len(places) > SHOWN:
        return f"{', '.join(shown)} and {len(places) - SHOWN} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
