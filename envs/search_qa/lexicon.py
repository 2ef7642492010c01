"""The encyclopaedia's own search: BM25 over a few thousand passages, in memory. A word of a title counts three times.

Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, with Lucene's idf.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from agentrl.envs.search_qa.encyclopaedia import world
from agentrl.tool import Passage

K1, B, TITLE = 0.9, 0.4, 3
CACHED_QUERIES, CACHED_CHARS = 50_000, 200  # results of longer queries, which a model may write, are not cached
_WORD = re.compile(r"\w+")


class Lexicon:
    """An inverted index in memory; a `Retriever`."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = tuple(passages)
        counts = [Counter(_words(p.title) * TITLE + _words(p.text)) for p in self.passages]
        lengths = [c.total() for c in counts]
        mean = sum(lengths) / len(lengths)
        rows: dict[str, list[int]] = {}
        for row, words in enumerate(counts):
            for word in words:
                rows.setdefault(word, []).append(row)
        self._postings: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for word, where in rows.items():
            idf = math.log(1 + (len(counts) - len(where) + 0.5) / (len(where) + 0.5))
            tf = np.array([counts[row][word] for row in where], float)  # [P]
            norm = K1 * (1 - B + B * np.array([lengths[row] for row in where]) / mean)  # [P]
            self._postings[word] = np.array(where), idf * tf / (tf + norm)
        self._one = lru_cache(maxsize=CACHED_QUERIES)(self._search)

    def search(self, queries: list[str], k: int) -> list[list[Passage]]:
        """See `agentrl.tool.retrieval.Retriever`; ties in corpus order."""
        return [list((self._one if len(query) <= CACHED_CHARS else self._search)(query, k)) for query in queries]

    def _search(self, query: str, k: int) -> tuple[Passage, ...]:
        scores = np.zeros(len(self.passages))  # [N]
        for word in _words(query):
            if word in self._postings:
                rows, impacts = self._postings[word]
                scores[rows] += impacts
        found = np.flatnonzero(scores)  # [M]
        best = found[np.argsort(-scores[found], kind="stable")][:k]
        return tuple(self.passages[row]._replace(score=float(scores[row])) for row in best.tolist())


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


@lru_cache(maxsize=4)
def lexicon(name: str, seed: int) -> Lexicon:
    """The index of one world, shared by every instance of the process."""
    return Lexicon(world(name, seed).passages)
