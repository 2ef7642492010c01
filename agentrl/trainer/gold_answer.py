"""How likely the policy finds the gold answer after each turn (IGPO, arXiv:2510.14967).

An environment says what the answer is, as the action that gives it: `gold(task) -> str`, a hook of its file.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from agentrl.graph import PLAYED, Columns, StepGraph, append_rows, prompt_lengths

if TYPE_CHECKING:
    from agentrl.trainer.learner import Learner

FILLS = ("gold_logprob", "gold_logprob_start")


class Gold:
    """Fills `gold_logprob` [N], the mean log-probability in nats of the gold answer's tokens after the turn, and
    `gold_logprob_start` [N], before any turn (on an episode's first row); NaN elsewhere and where no answer is known.

    The answer is teacher-forced where the model begins its next answer, at temperature 1 and unrestricted; an episode's
    last turn has none, its reward is the answer's own.

    Args:
        answers: ids [T] of each task's answer, end token left out, by task key (`graph.names["group"]`).
    """

    def __init__(self, answers: Mapping[str, np.ndarray]) -> None:
        self.answers = answers

    def columns(self, graph: StepGraph, learner: "Learner", max_tokens: int) -> Columns:
        """See the class."""
        from agentrl.trainer.annotation import logprobs

        assert graph.tokens is not None, "the gold answer's log-probability needs tokens"
        rows, answers = self._asked(graph)
        out = {name: np.full(len(graph), np.nan) for name in FILLS}
        if not len(rows):
            return Columns(steps=out)
        table = append_rows(
            graph.tokens, answers, [np.ones(len(a), bool) for a in answers], rows, prompt_lengths(graph.tokens)[rows]
        )
        new = len(graph) + np.arange(len(rows))
        read = logprobs(learner.network, table, new, temperature=1.0, max_tokens=max_tokens)  # [S']
        lengths = np.array([len(a) for a in answers])  # [rows]
        start = table.offsets[new]
        mean = np.add.reduceat(read[start[0] :], start - start[0]) / lengths  # [rows] before each turn
        root = graph.parent[rows] < 0
        out["gold_logprob_start"][rows[root]] = mean[root]
        out["gold_logprob"][graph.parent[rows[~root]]] = mean[~root]
        return Columns(steps=out)

    def _asked(self, graph: StepGraph) -> tuple[np.ndarray, list[np.ndarray]]:
        """The rows before whose answer the gold one is read, and it."""
        names = graph.names["group"]
        known = [self.answers.get(name, np.zeros(0, np.int64)) for name in names]
        has = np.array([len(answer) > 0 for answer in known])
        rows = np.flatnonzero((graph.kind == PLAYED) & ~graph.failed() & has[graph.group])
        return rows, [known[graph.group[row]] for row in rows]
