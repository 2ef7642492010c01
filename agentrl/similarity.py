"""Groups of similar texts: the released GiGPO's greedy first fit, with bounds that skip nearly all
comparisons.

A text joins the first cluster of its group whose first member it resembles: Ratcliff-Obershelp ratio (2 *
matched characters / total characters, `difflib.SequenceMatcher`, popular-character heuristic on, new text
first) at least the threshold; else it opens a cluster. The ratio is not symmetric and the partition depends
on the order of rows.
"""

from collections import Counter, defaultdict
from difflib import SequenceMatcher

import numpy as np

from agentrl.graph import StepGraph


def similar_states(graph: StepGraph, threshold: float) -> np.ndarray:
    """[N] int64 cluster of each row's state, numbered inside its group.

    Raises:
        ValueError: the graph does not keep the words of its states.
    """
    if "state" not in graph.names:
        raise ValueError(
            "similarity grouping needs the texts of the states, and these steps keep only their ids"
        )
    order = np.argsort(graph.column("line"), kind="stable") if graph.has("line") else np.arange(len(graph))
    words = graph.names["state"]
    groups = graph.group[order].tolist()
    texts = [words[i] for i in graph.state[order].tolist()]
    cluster = np.empty(len(graph), np.int64)
    cluster[order] = first_fit(groups, texts, threshold)
    return cluster


def first_fit(groups: list[int], texts: list[str], threshold: float) -> np.ndarray:
    """[N] int64 cluster number of each text inside its group, in the order given.

    Equal texts have equal fates (the clusters before the one they joined still refuse them), so each distinct
    text of a group is compared once.
    """
    known: dict[int, dict[str, int]] = defaultdict(dict)
    clusters: dict[int, list[Representative]] = defaultdict(list)
    out = np.empty(len(texts), np.int64)
    for i, (group, text) in enumerate(zip(groups, texts, strict=True)):
        fate = known[group].get(text)
        if fate is None:
            own = clusters[group]
            new = Representative(text)
            fate = next((c for c, other in enumerate(own) if other.accepts(new, threshold)), len(own))
            if fate == len(own):
                own.append(new)
            known[group][text] = fate
        out[i] = fate
    return out


class Representative:
    """A text prepared for comparison: its length, its characters' counts, and a matcher made when first
    needed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.counts = Counter(text)
        self._matcher: SequenceMatcher[str] | None = None

    def accepts(self, new: "Representative", threshold: float) -> bool:
        """Is ratio(new, self) >= threshold? Two bounds from above are tried first: lengths, then shared
        characters."""
        total = len(self.text) + len(new.text)
        if not total:
            return threshold <= 1.0
        if 2.0 * min(len(self.text), len(new.text)) / total < threshold:
            return False
        if 2.0 * (self.counts & new.counts).total() / total < threshold:
            return False
        if self._matcher is None:
            self._matcher = SequenceMatcher(None, "", self.text)
        self._matcher.set_seq1(new.text)
        return self._matcher.ratio() >= threshold
