"""Finds rows with equal or nearly equal questions: duplicates, and leaks of held-out rows into the training rows."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentrl.audit.finding import RowFinding, listed
from agentrl.audit.near import near_pairs
from agentrl.audit.split import Split, contents

LEAST = 0.8  # two questions with this resemblance (see `agentrl.audit.near`) or more count as nearly the same


class _Row(NamedTuple):
    split: Split
    number: int
    question: str
    answers: tuple[str, ...]
    held_out: bool

    @property
    def place(self) -> str:
        return self.split.place(self.number)


def check_duplicates(splits: Sequence[Split], held_out_rows: frozenset[int] = frozenset()) -> Iterator[RowFinding]:
    """Findings on equal rows, equal questions and nearly equal questions, within a split and between splits.

    Args:
        splits: the splits, after `Split.readable` has filled their lists `asked`.
        held_out_rows: numbers of the held-out rows, if there is a single split and the environment divides it into
            train and test; else empty.
    """
    rows = [
        _Row(split, i, asked.question, asked.answers, split.held_out or i in held_out_rows)
        for split in splits
        for i, asked in enumerate(split.asked)
        if asked is not None
    ]
    exact = _equal([contents(row.split.rows[row.number]) for row in rows])
    same = _equal([normalised(row.question) for row in rows])
    # Equal rows also ask the same question. Only the first of them counts below, so they get no second finding.
    whole = {i: group[0] for group in exact for i in group}
    yield from _findings(rows, exact, "hold the same values")
    for group in same:
        distinct = [i for i in group if whole.get(i, i) == i]
        if len(distinct) > 1:
            yield from _findings(rows, [distinct], "ask the same question", answers=True)
    # Of rows with equal questions, the first held-out row and the first training row stand for the others.
    first = {
        next(i for i in group if rows[i].held_out == held)
        for group in same
        for held in {rows[i].held_out for i in group}
    }
    alone = sorted({*range(len(rows))} - {i for group in same for i in group} | first)
    pairs = near_pairs([rows[i].question for i in alone], LEAST)
    for (a, b), resemblance in pairs.items():
        if normalised(rows[alone[a]].question) == normalised(rows[alone[b]].question):
            continue  # found above
        words = f"ask nearly the same question ({resemblance:.0%} of their three-word pieces are equal)"
        yield from _findings(rows, [[alone[a], alone[b]]], words, near=True)


def normalised(text: str) -> str:
    """The text in lower case (`str.casefold`), with single spaces and in the Unicode form NFKC, for comparisons."""
    return re.sub(r"\s+", " ", unicodedata.normalize("NFKC", text)).strip().casefold()


def _equal(texts: Sequence[str]) -> list[list[int]]:
    """Groups of positions of equal texts; texts that occur once are left out."""
    found: dict[str, list[int]] = defaultdict(list)
    for i, text in enumerate(texts):
        found[text].append(i)
    return [group for group in found.values() if len(group) > 1]


def _findings(
    rows: Sequence[_Row], groups: Sequence[Sequence[int]], words: str, *, answers: bool = False, near: bool = False
) -> Iterator[RowFinding]:
    for group in groups:
        members = [rows[i] for i in group]
        places = tuple(row.place for row in members)
        held = [row.place for row in members if row.held_out]
        trained = [row.place for row in members if not row.held_out]
        given = list(dict.fromkeys(" | ".join(sorted(map(normalised, row.answers))) for row in members))
        differ = answers and len(given) > 1 and all(row.answers for row in members)
        if held and trained:
            kind, places = "leak", (*held, *trained)
            end = f"remove {listed(trained)} from the training rows"
        elif differ:
            kind = "contradiction"
            end = f"their answers differ ({given[0][:60]!r}, {given[1][:60]!r}): keep the right one"
        else:
            kind, end = ("near", "look at them, and keep one") if near else ("duplicate", "keep one of them")
        yield RowFinding(kind=kind, rows=places, text=f"{listed(places)} {words}; {end}")
