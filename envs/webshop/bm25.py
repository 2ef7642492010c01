"""BM25 as Lucene 8.11 computes it, with the same rounding, which decides which scores are equal and so the pages.

Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, in the form of Lucene's
BM25Similarity (k1 0.9, b 0.4 as in Anserini): no (k1 + 1) factor, document length kept in one byte.

Letters: D documents, P postings, V terms.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from agentrl.envs.webshop.analysis import terms

K1, B = np.float32(0.9), np.float32(0.4)


class Hit(NamedTuple):
    """A document's number and its score, rounded to four decimals as the original reports it."""

    document: int
    score: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Postings:
    """Which documents contain each term.

    Attributes:
        vocabulary: term -> its row.
        offsets: [V+1] int64, row t owns offsets[t]:offsets[t+1].
        documents: [P] int32, ascending within a row.
        saturation: [P] float32, 1 + tf / (k1 (1 - b + b L / mean L)): a posting adds weight - weight / saturation.
        order: [D] int32, the rank of each document's id among all ids: ties go by id.
        fielded: number of documents with at least one term; idf and the mean length count only these.
    """

    vocabulary: Mapping[str, int]
    offsets: np.ndarray
    documents: np.ndarray
    saturation: np.ndarray
    order: np.ndarray
    fielded: int


def short_length(length: int) -> int:
    """A length as Lucene's one-byte norm stores it: exact to 39, then three mantissa bits below the leading one."""
    if length < 24:
        return length
    rest = length - 24
    shift = max(rest.bit_length() - 4, 0)
    return 24 + (rest >> shift << shift)


def inverse_norms(lengths: np.ndarray, mean: float) -> np.ndarray:
    """[D] float32, 1 / (k1 (1 - b + b L / mean)) of documents with `lengths` [D] terms."""
    longest = int(lengths.max(initial=0))
    table = np.array([short_length(n) for n in range(longest + 1)], np.float32)  # [longest + 1]
    norm = K1 * ((np.float32(1) - B) + B * table / np.float32(mean))  # [longest + 1]
    inverse: np.ndarray = (np.float32(1) / norm)[lengths]  # [D]
    return inverse


def ranks(ids: Sequence[str]) -> np.ndarray:
    """[D] int32, each id's rank in ascending order (code points, as Lucene's bytes)."""
    rank = np.empty(len(ids), np.int32)  # [D]
    rank[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids), dtype=np.int32)
    return rank


def build(texts: Iterable[str], ids: Sequence[str]) -> Postings:
    """The index of a collection that fits in memory."""
    vocabulary: dict[str, int] = {}
    rows: list[int] = []
    documents: list[int] = []
    counts: list[int] = []
    lengths = np.zeros(len(ids), np.int64)  # [D]
    for document, text in enumerate(texts):
        found = terms(text)
        lengths[document] = len(found)
        for word, count in Counter(found).items():
            rows.append(vocabulary.setdefault(word, len(vocabulary)))
            documents.append(document)
            counts.append(count)
    fielded = int(np.count_nonzero(lengths))
    inverse = inverse_norms(lengths, lengths.sum() / max(fielded, 1))  # [D]
    row = np.array(rows, np.int64)  # [P]
    by_row = np.argsort(row, kind="stable")  # [P]
    document_of = np.array(documents, np.int32)[by_row]  # [P]
    tf = np.array(counts, np.float32)[by_row]  # [P]
    return Postings(
        vocabulary=vocabulary,
        offsets=np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(vocabulary)))]),
        documents=document_of,
        saturation=np.float32(1) + tf * inverse[document_of],
        order=ranks(ids),
        fielded=fielded,
    )


def search(postings: Postings, query: str, k: int) -> list[Hit]:
    """The best k documents, best first; ties by id. Scores are summed in double precision and compared in single."""
    total = np.zeros(len(postings.order))  # [D]
    for word, count in Counter(terms(query)).items():
        row = postings.vocabulary.get(word)
        if row is None:
            continue
        own = slice(int(postings.offsets[row]), int(postings.offsets[row + 1]))
        having = own.stop - own.start
        idf = np.float32(np.log(1 + (postings.fielded - having + 0.5) / (having + 0.5)))
        weight = np.float32(count) * idf
        total[postings.documents[own]] += weight - weight / postings.saturation[own]
    found = np.flatnonzero(total)  # [F]
    score = total[found].astype(np.float32)  # [F]
    if len(found) > k:
        least = np.partition(score, len(found) - k)[len(found) - k]
        found, score = found[score >= least], score[score >= least]
    best = np.lexsort((postings.order[found], -score))[:k]
    return [Hit(int(found[i]), round(float(score[i]), 4)) for i in best]
