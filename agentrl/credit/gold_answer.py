"""How likely the policy finds the gold answer after each turn (IGPO, arXiv:2510.14967).

An environment says what the answer is, as the action that gives it: `gold(task) -> str`, a hook of its file. Rollouts
write it into the graph, as `names["gold"]`: for each group the text that a model would answer with.
"""

import numpy as np

from agentrl.graph import PLAYED, Columns, PolicyReader, StepGraph, append_rows, prompt_lengths


class GoldAnswer:
    """Fills `gold_logprob` [N], the mean log-probability in nats of the gold answer's tokens after the turn, and
    `gold_logprob_start` [N], before any turn (on an episode's first row); NaN elsewhere and where no answer is known.

    The answer is teacher-forced where the model begins its next answer, at temperature 1 and unrestricted; an episode's
    last turn has none, because its reward is the answer's own.
    """

    fills = ("gold_logprob", "gold_logprob_start")

    def columns(self, graph: StepGraph, policy: PolicyReader) -> Columns:
        """See the class."""
        assert graph.tokens is not None, "the gold answer's log-probability needs tokens"
        rows, answers = _rows_with_answer(graph, policy)
        out = {name: np.full(len(graph), np.nan) for name in self.fills}
        if not len(rows):
            return Columns(steps=out)
        table = append_rows(
            graph.tokens, answers, [np.ones(len(a), bool) for a in answers], rows, prompt_lengths(graph.tokens)[rows]
        )
        new = len(graph) + np.arange(len(rows))
        read = policy.logprobs(table, new, temperature=1.0)  # [S']
        lengths = np.array([len(a) for a in answers])  # [rows]
        start = table.offsets[new]
        mean = np.add.reduceat(read[start[0] :], start - start[0]) / lengths  # [rows] before each turn
        root = graph.parent[rows] < 0
        out["gold_logprob_start"][rows[root]] = mean[root]
        out["gold_logprob"][graph.parent[rows[~root]]] = mean[~root]
        return Columns(steps=out)


def _rows_with_answer(graph: StepGraph, policy: PolicyReader) -> tuple[np.ndarray, list[np.ndarray]]:
    """The rows before whose answer the gold answer is read, and its ids [T], without an end token."""
    texts = graph.names.get("gold", ())
    known = [policy.encode(text) if text else np.zeros(0, np.int64) for text in texts]
    known += [np.zeros(0, np.int64)] * (int(graph.group.max(initial=-1)) + 1 - len(known))
    has = np.array([len(answer) > 0 for answer in known], bool)
    rows = np.flatnonzero((graph.kind == PLAYED) & ~graph.failed() & has[graph.group])
    return rows, [known[graph.group[row]] for row in rows]
