"""The type of the findings of checks of rows."""

from collections.abc import Sequence
from dataclasses import dataclass

SHOWN = 6  # most rows that a sentence names


@dataclass(frozen=True, kw_only=True)
class RowFinding:
    """Something that is wrong with some rows.

    Attributes:
        kind: unreadable, type, number, empty, missing, duplicate, contradiction, near, leak, split, long, reset,
            unanswerable.
        rows: the places of the rows, such as "line 7" or "row 6 of test"; empty if all rows are concerned.
        text: one sentence, with advice.
    """

    kind: str
    rows: tuple[str, ...]
    text: str


def listed(places: Sequence[str]) -> str:
    """Places in words: "line 2, line 5 and 7 more"."""
    shown = list(places[:SHOWN])
    if len(places) > SHOWN:
        return f"{', '.join(shown)} and {len(places) - SHOWN} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
