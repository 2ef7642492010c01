"""Clusters of similar texts: the greedy first fit of the released GiGPO code, with bounds that skip nearly all
comparisons.

A text joins the first cluster of its group whose first member it resembles. If it resembles none, it opens a new
cluster. Two texts resemble each other if their Ratcliff-Obershelp ratio, 2 * matched characters / total characters,
reaches the threshold. The ratio is that of `difflib.SequenceMatcher` with its popular-character heuristic and the new
text as first argument. The ratio is not symmetric, and the partition depends on the order of the rows.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from functools import cached_property

import numpy as np

from agentrl.graph.called_chains import step_peers
from agentrl.graph.step_graph import StepGraph

CHARACTERS, GRAMS = 512, 8192  # bins of hashed counts


def similar_states(graph: StepGraph, threshold: float) -> np.ndarray:
    """[N] int64 cluster of each row's state; the clusters of each agent in each group are numbered from 0.

    Raises:
        ValueError: the graph does not hold the texts of its states.
    """
    if "state" not in graph.names:
        raise ValueError("similarity grouping needs the texts of the states, and these steps keep only their ids")
    order = np.argsort(graph.column("line"), kind="stable") if graph.has("line") else np.arange(len(graph))
    words = graph.names["state"]
    groups = step_peers(graph)[order].tolist()
    texts = [words[i] for i in graph.state[order].tolist()]
    cluster = np.empty(len(graph), np.int64)
    cluster[order] = first_fit(groups, texts, threshold)
    return cluster


def first_fit(groups: list[int], texts: list[str], threshold: float) -> np.ndarray:
    """[N] int64 cluster number of each text inside its group, in the given order.

    If a text occurs in its group again, it joins the same cluster as the first time: comparing it again would give the
    same result. Each distinct text is therefore compared only once.
    """
    known: dict[int, dict[str, int]] = defaultdict(dict)
    clusters: dict[int, list[Representative]] = defaultdict(list)
    out = np.empty(len(texts), np.int64)
    for i, (group, text) in enumerate(zip(groups, texts, strict=True)):
        cluster = known[group].get(text)
        if cluster is None:
            others = clusters[group]
            new = Representative(text)
            cluster = next((c for c, other in enumerate(others) if other.accepts(new, threshold)), len(others))
            if cluster == len(others):
                others.append(new)
            known[group][text] = cluster
        out[i] = cluster
    return out


class Representative:
    """A text prepared for comparison: hashed counts of its characters and trigrams, and its anchors.

    Hashing can merge counts of different characters or trigrams. This may raise an upper bound and never lowers it, so
    the bounds stay correct.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        encoded = text.encode("utf-32-le", "surrogatepass")
        self.code = np.frombuffer(encoded, np.uint32).astype(np.int64)  # [L]
        self.characters = np.bincount(self.code % CHARACTERS, minlength=CHARACTERS)  # [CHARACTERS]
        c = self.code
        gram = (c[:-2] * 1_000_003 + c[1:-1] * 8_191 + c[2:]) & (GRAMS - 1)  # [L-2]
        self.grams = np.bincount(gram, minlength=GRAMS).astype(np.int32)  # [GRAMS]

    @cached_property
    def anchors(self) -> dict[int, list[int]]:
        """Anchor -> its positions in the text. An anchor is a character that a match may start from.

        In a text of n >= 200 characters, a character that occurs more than n // 100 + 1 times is no anchor (difflib's
        popular characters).
        """
        common = len(self.text) // 100 + 1 if len(self.text) >= 200 else len(self.text)
        counts = Counter(self.code.tolist())
        places: dict[int, list[int]] = {code: [] for code, count in counts.items() if count <= common}
        for at in np.flatnonzero(np.isin(self.code, np.fromiter(places, np.int64, len(places)))).tolist():
            places[int(self.code[at])].append(at)
        return places

    @cached_property
    def rare(self) -> np.ndarray:
        """[CHARACTERS] bool, bins that hold an anchor."""
        rare = np.zeros(CHARACTERS, bool)
        rare[np.fromiter(self.anchors, np.int64, len(self.anchors)) % CHARACTERS] = True
        return rare

    def accepts(self, new: "Representative", threshold: float) -> bool:
        """Is ratio(new, self) >= threshold? Cheap upper bounds of the ratio are compared with the threshold first."""
        total = len(self.text) + len(new.text)
        if not total:
            return threshold <= 1.0
        if 2.0 * min(len(self.text), len(new.text)) / total < threshold:
            return False
        if 2.0 * self.matched_at_most(new) / total < threshold:
            return False
        return self.matches(new, threshold)

    def matched_at_most(self, new: "Representative") -> int:
        """Upper bound on the number of matched characters.

        First bound: the number of characters that the texts share, because every matched character is shared.

        Second bound: matched characters lie in disjoint blocks, and a block of n characters holds n - 2 shared
        trigrams. So there are at most as many matched characters as shared trigrams plus two per block. A block
        without an anchor can start only at the beginning of both texts or directly after another block. The second case
        does not occur, because each block is extended to the right as far as the texts agree. The number of blocks is
        therefore at most the number of shared anchors plus one.
        """
        shared = np.minimum(self.characters, new.characters)  # [CHARACTERS]
        blocks = int(shared[self.rare].sum()) + 1
        trigrams = int(np.minimum(self.grams, new.grams).sum())
        return min(int(shared.sum()), trigrams + 2 * blocks)

    def matches(self, new: "Representative", threshold: float) -> bool:
        """Ratcliff-Obershelp as difflib does it, block by block, until the threshold is reached or out of reach."""
        total = len(self.text) + len(new.text)
        starts = [(at, self.anchors.get(int(new.code[at]))) for at in np.flatnonzero(self.rare[new.code % CHARACTERS])]
        anchored = [(int(at), places) for at, places in starts if places]
        matched, possible = 0, min(len(self.text), len(new.text))
        todo = [(0, len(new.text), 0, len(self.text))]
        while todo:
            if 2.0 * matched / total >= threshold:
                return True
            if 2.0 * (matched + possible) / total < threshold:
                return False
            a, a_end, b, b_end = todo.pop()
            possible -= min(a_end - a, b_end - b)
            i, j, size = self.longest_block(new, anchored, (a, a_end, b, b_end))
            if not size:
                continue
            matched += size
            for part in ((a, i, b, j), (i + size, a_end, j + size, b_end)):
                if part[0] < part[1] and part[2] < part[3]:
                    todo.append(part)
                    possible += min(part[1] - part[0], part[3] - part[2])
        return 2.0 * matched / total >= threshold

    def longest_block(
        self, new: "Representative", anchored: list[tuple[int, list[int]]], window: tuple[int, int, int, int]
    ) -> tuple[int, int, int]:
        """(start in new, start in self, length) of the longest run of anchors in the window.

        Of several longest runs, the one that begins first in `new` is taken; if several begin there, the one that
        begins first in `self`. The run is then extended in both directions by any equal characters.
        """
        a, a_end, b, b_end = window
        best_i, best_j, size = a, b, 0
        runs: dict[int, int] = {}
        before = -2
        for i, places in anchored[bisect_left(anchored, (a,)) :]:
            if i >= a_end:
                break
            longer: dict[int, int] = {}
            for j in places:
                if j < b:
                    continue
                if j >= b_end:
                    break
                k = longer[j] = (runs.get(j - 1, 0) if i == before + 1 else 0) + 1
                if k > size:
                    best_i, best_j, size = i - k + 1, j - k + 1, k
            runs, before = longer, i
        left = common(new.code[a:best_i][::-1], self.code[b:best_j][::-1])
        right = common(new.code[best_i + size : a_end], self.code[best_j + size : b_end])
        return best_i - left, best_j - left, left + size + right


def common(x: np.ndarray, y: np.ndarray) -> int:
    """Length of the common beginning of two arrays."""
    n = min(len(x), len(y))
    differs = x[:n] != y[:n]  # [n]
    at = int(differs.argmax()) if n else 0
    return at if n and differs[at] else n
