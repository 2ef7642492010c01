"""BM25 over a corpus of your own, by bm25s; the index lies next to the corpus.

The scores are those of bm25s. Passages of equal score are in the order of the corpus, and passages without a word of
the query are no result, so a query always has the same result. bm25s does not round lengths as Lucene does. For
rankings equal to pyserini's, serve pyserini and use `backend = "http"`.
"""

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from agentrl.tool import Passage
from agentrl.tools.search.cache import StoredIndex
from agentrl.tools.search.corpus import find

WORD = r"(?u)\b\w+\b"


class Bm25Config(BaseModel, frozen=True, extra="forbid"):
    """Options of the backend bm25.

    Attributes:
        corpus: the JSONL file.
        index: folder of the stored index; empty for the corpus's path with `.bm25` added.
        k1: BM25's parameter for how fast repeated words saturate; the default is Anserini's.
        b: BM25's parameter for how much long passages lose; the default is Anserini's.
        stopwords: leave out the most common English words.
    """

    corpus: str = ""
    index: str = ""
    k1: float = Field(0.9, ge=0)
    b: float = Field(0.4, ge=0, le=1)
    stopwords: bool = True


class Bm25(StoredIndex):
    """An index in memory; a `Retriever`."""

    def __init__(self, config: Bm25Config) -> None:
        """Raises ValueError if bm25s is missing, the corpus cannot be read (`Corpus.scan`), or it has no words."""
        self._library, self.config = _library(), config
        path = find(config.corpus, "bm25.corpus")
        folder = Path(config.index).expanduser() if config.index else path.with_name(f"{path.name}.bm25")
        said = {"k1": config.k1, "b": config.b, "stopwords": config.stopwords, "bm25s": self._library.__version__}
        super().__init__(path, folder, said)

    def search(self, queries: list[str], k: int) -> list[list[Passage]]:
        """See `agentrl.tool.retrieval.Retriever`."""
        return [self._one(query, k) for query in queries]

    def _one(self, query: str, k: int) -> list[Passage]:
        words = self._split([query], return_ids=False)[0]
        known = [self._index.vocab_dict[word] for word in words if word in self._index.vocab_dict]
        if not known:
            return []
        scores: np.ndarray = self._index.get_scores_from_ids(known)  # [N]
        rows = _best(scores, k)
        return [self.corpus[row]._replace(score=float(scores[row])) for row in rows.tolist()]

    def _split(self, texts: Iterable[str], *, return_ids: bool) -> Any:
        """Each text's words, or their ids and the vocabulary."""
        left_out = "english" if self.config.stopwords else []
        return self._library.tokenize(
            texts, token_pattern=WORD, stopwords=left_out, return_ids=return_ids, show_progress=False
        )

    def build(self, path: Path) -> None:
        self._index = self._library.BM25(k1=self.config.k1, b=self.config.b, method="lucene")
        words = self._split((passage.contents for passage in self.corpus), return_ids=True)
        if not words.vocab:
            raise ValueError(f"the corpus {path} holds no word that can be searched for")
        self._index.index(words, show_progress=False)

    def write(self, folder: Path) -> None:
        self._index.save(str(folder), show_progress=False)

    def read(self, folder: Path) -> None:
        self._index = self._library.BM25.load(str(folder), show_progress=False)


def _best(scores: np.ndarray, k: int) -> np.ndarray:
    """[<= k] the rows of the highest scores above 0, ties in the order of rows."""
    found = np.flatnonzero(scores > 0)  # [M]
    if len(found) > k:
        least = np.partition(scores[found], len(found) - k)[len(found) - k]
        found = found[scores[found] >= least]  # [>= k]
    return found[np.argsort(-scores[found], kind="stable")][:k]


def _library() -> ModuleType:
    try:
        import bm25s
    except ImportError:
        raise ValueError("backend bm25 needs bm25s: pip install 'agentrl-stepgraph[search]'") from None
    module: ModuleType = bm25s
    return module
