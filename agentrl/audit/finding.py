"""What a check of rows found."""

from collections.abc import Sequence
from dataclasses import dataclass

SHOWN = 6  # rows that a sentence names


@dataclass(frozen=True, kw_only=True)
class RowFinding:
    """One finding.

    Attributes:
        kind: unreadable, type, number, empty, missing, duplicate, contradiction, near, leak, split, long, reset,
            unanswerable.
        rows: where it was found, such as "line 7" or "row 6 of test".
        text: one sentence, with the next move.
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
