"""Finds rows with equal or nearly equal questions: duplicates, and leaks of held-out rows into the training rows."""

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from agentrl.preflight.rows.finding import RowFinding, listed
from agentrl.preflight.rows.split import Split, contents

WORDS, BANDS, PER_BAND = 3, 32, 4  # words per piece, bands, hashes per band
PRIME = np.uint64(2**31 - 1)
# In each bucket, a text is compared with at most this many texts before it. The texts of a larger bucket usually share
# only a template.
NEIGHBOURS = 50
TOKEN = re.compile(r"\w+")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def near_pairs(texts: Sequence[str], least: float) -> dict[tuple[int, int], float]:
    """(i, j), i < j -> resemblance, for the pairs of texts with a resemblance of `least` or more.

    Two texts that contain different numbers are never a pair: they are different problems, even if all other words are
    equal.

    Source: MinHash with banding, then an exact comparison. Broder, "On the resemblance and containment of documents"
    (1997); banding as in Leskovec, Rajaraman, Ullman, "Mining of Massive Datasets", section 3.4. The resemblance of two
    texts is the Jaccard similarity of their sets of three-word pieces. With 32 bands of 4 hashes, a pair of resemblance
    0.8 is found with a probability of 1 - (1 - 0.8^4)^32 > 0.9999. If more than NEIGHBOURS texts share a bucket, the
    probability is smaller.
    """
    pieces = [_pieces(text) for text in texts]
    numbers = [sorted(NUMBER.findall(text)) for text in texts]
    found: dict[tuple[int, int], float] = {}
    seen: set[tuple[int, int]] = set()
    slope, shift = _functions()
    for pair in _candidates([_signature(one, slope, shift) for one in pieces]):
        if pair in seen:
            continue
        seen.add(pair)
        a, b = (pieces[i] for i in pair)
        shared = len(a & b)
        resemblance = shared / (len(a) + len(b) - shared)
        if resemblance >= least and numbers[pair[0]] == numbers[pair[1]]:
            found[pair] = resemblance
    return dict(sorted(found.items()))


def _pieces(text: str) -> frozenset[int]:
    """Hashes below 2^31 of a text's three-word pieces; a text of fewer words is one piece."""
    words = TOKEN.findall(text.casefold())
    parts = [" ".join(words[i : i + WORDS]) for i in range(max(1, len(words) - WORDS + 1))]
    digests = (hashlib.blake2b(part.encode("utf-8", "replace"), digest_size=8).digest() for part in parts)
    return frozenset(int.from_bytes(digest) % int(PRIME) for digest in digests)


def _signature(pieces: frozenset[int], slope: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """[BANDS * PER_BAND] uint64, for each hash function the smallest hash of the pieces."""
    values = np.fromiter(pieces, np.uint64, len(pieces))  # [P]
    least: np.ndarray = ((slope[:, None] * values + shift[:, None]) % PRIME).min(1)
    return least


def _functions() -> tuple[np.ndarray, np.ndarray]:
    """(slopes, shifts), each [BANDS * PER_BAND] uint64 below 2^31, so that no product overflows 64 bits."""
    rng = np.random.default_rng(20250711)
    return (
        rng.integers(1, 2**31 - 1, BANDS * PER_BAND).astype(np.uint64),
        rng.integers(0, 2**31 - 1, BANDS * PER_BAND).astype(np.uint64),
    )


def _candidates(signatures: Sequence[np.ndarray]) -> Iterator[tuple[int, int]]:
    """Pairs (i, j), i < j, of texts that agree in all hashes of a band; at most NEIGHBOURS pairs per j and band.

    A pair occurs once per band in which its texts agree.
    """
    buckets = (_buckets(signatures, band) for band in range(BANDS))
    for members in chain.from_iterable(buckets):
        for place, j in enumerate(members):
            yield from ((i, j) for i in members[max(0, place - NEIGHBOURS) : place])


def _buckets(signatures: Sequence[np.ndarray], band: int) -> list[list[int]]:
    found: dict[bytes, list[int]] = defaultdict(list)
    for i, signature in enumerate(signatures):
        found[signature[band * PER_BAND : (band + 1) * PER_BAND].tobytes()].append(i)
    return [members for members in found.values() if len(members) > 1]


LEAST = 0.8  # two questions of at least this resemblance count as nearly the same


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
