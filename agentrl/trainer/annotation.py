"""Adds the columns that an update needs: log-probs under policy and reference model, and the critic's values.

With `update.old_logprob = "trainer"`, this module also compares the log-probs of engine and trainer. If they differ by
more than the tolerance, or if the batch has replayed steps, demonstrations, or steps whose prompt was changed after
sampling, the module computes importance weights of the policy-gradient terms (`agentrl.trainer.importance`). In all
other cases these weights are 1.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from agentrl.chat import Chat
from agentrl.credit import shown_only
from agentrl.graph import DEMO, PROBE, Columns, Filler, StepGraph, Tokens, decisions, token_rows
from agentrl.trainer.importance import importance_weights
from agentrl.trainer.passes import PolicyLearner
from agentrl.trainer.sections import UpdateConfig
from agentrl.trainer.temperatures import step_temperatures


class Annotated(NamedTuple):
    """A graph with the columns of the annotation, and metrics of the annotation."""

    graph: StepGraph
    metrics: dict[str, float]


class LearnerReader:
    """A learner's policy as fillers see it (`agentrl.graph.PolicyReader`).

    Args:
        learner: the learner of the policy.
        temperature: sampling temperature of the recipe.
        max_tokens: largest number of packed tokens per forward pass.
        sampled: [N] bool, the rows that the policy sampled; None for all.
    """

    def __init__(
        self, learner: PolicyLearner, temperature: float, max_tokens: int, sampled: np.ndarray | None = None
    ) -> None:
        self._learner, self._temperature, self._max_tokens = learner, temperature, max_tokens
        self.tokenizer, self.sampled = learner.tokenizer, sampled

    @cached_property
    def _chat(self) -> Chat:
        return Chat(self.tokenizer)

    def encode(self, text: str) -> np.ndarray:
        """[T] int64 ids of a text."""
        return self._chat.encode_plain(text)

    def logprobs(self, tokens: Tokens, rows: np.ndarray, *, temperature: float | None = None) -> np.ndarray:
        """[S] float64, log-probs in nats under the current policy; NaN outside the sampled tokens of `rows`."""
        temperature = self._temperature if temperature is None else temperature
        passes = self._learner.passes
        return passes.read(tokens, rows, temperature=temperature, max_tokens=self._max_tokens).logprob


def annotate(
    graph: StepGraph,
    learner: PolicyLearner,
    config: UpdateConfig,
    temperature: float,
    fillers: Sequence[Filler] = (),
    mine: np.ndarray | None = None,
    entropies: bool = False,
    old_entropy: bool = False,
) -> Annotated:
    """Add the columns that an update needs: log-probs, importance weights, values, and the columns of the `fillers`.

    The token columns are `old_logprob`, `importance` and, with a KL term, `ref_logprob`, each [S] float64. In rows that
    cannot be trained (probes, and rollouts that an environment error ended), the log-probs are the engine's. At
    temperature 0 (greedy) the log-probs are those at temperature 1, as in the engine.

    Args:
        graph: a graph with tokens.
        learner: the learner of the policy that answers in the rows `mine`.
        config: section [update].
        temperature: sampling temperature of the steps that have no entry in the graph's column `temperature`.
        fillers: compute further columns.
        mine: [N] bool, the rows to annotate; None for all. With several policies, `annotate` is called once per policy
            with the rows of this policy, and keeps the entries on all other rows.
        entropies: also add `token_entropy` [S], the entropy in nats of the distribution from which each sampled token
            was drawn, under the trainer's weights; 0 for sampled tokens without an alternative, NaN outside the trained
            rows. With `update.old_logprob = "engine"` this costs a forward pass.
        old_entropy: with `update.old_logprob = "trainer"`, also add this entropy as `old_entropy` [S]. From it, an
            update takes the metrics of rows that need no forward pass.

    Raises:
        ValueError: `update.kl_coef` needs a reference model and the learner has none.
    """
    assert graph.tokens is not None, "annotation needs tokens"
    rows = trained_rows(graph)
    rows = rows if mine is None else rows[mine[rows]]
    behaviour = graph.tokens.logprobs  # [S]
    columns = {"old_logprob": behaviour, "importance": np.ones(len(behaviour))}
    metrics: dict[str, float] = {}
    hot = step_temperatures(graph, temperature)
    entropy: np.ndarray | None = None  # [S]
    if config.old_logprob == "trainer":
        wanted = entropies or old_entropy
        own = learner.passes.read(graph.tokens, rows, temperature=hot, max_tokens=config.max_tokens, entropy=wanted)
        columns, metrics = _compared(graph, learner, config, rows, own.logprob)
        entropy = own.entropy
        columns |= {} if entropy is None or not old_entropy else {"old_entropy": entropy}
    if config.kl_coef > 0:
        if not learner.has_reference:
            raise ValueError("update.kl_coef > 0 needs a reference model: make the learner with reference=True")
        with learner.reference() as frozen:
            reference = frozen.read(graph.tokens, rows, temperature=hot, max_tokens=config.max_tokens).logprob
        columns["ref_logprob"] = np.where(np.isnan(reference), columns["old_logprob"], reference)
    if entropies:
        if entropy is None:
            passes, most = learner.passes, config.max_tokens
            entropy = passes.read(graph.tokens, rows, temperature=hot, max_tokens=most, entropy=True).entropy
            assert entropy is not None
        columns["token_entropy"] = entropy
    new = Columns(tokens=columns)
    if learner.critic is not None:
        values = learner.critic.columns(graph, rows, config.max_tokens)
        new = Columns(steps=values.steps, tokens={**columns, **values.tokens})
    graph = graph.with_all(new if mine is None else _mine(graph, mine, new))
    for filler in fillers:
        found = filler.columns(graph, LearnerReader(learner, temperature, config.max_tokens, mine))
        graph = graph.with_all(found if mine is None else _mine(graph, mine, found))
    return Annotated(graph, metrics)


def _compared(
    graph: StepGraph, learner: PolicyLearner, config: UpdateConfig, rows: np.ndarray, old: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """(the columns `old_logprob` and `importance` [S], metrics of the difference between trainer and engine).

    `old` [S] are the trainer's log-probs of the sampled tokens of `rows`, NaN elsewhere.
    """
    assert graph.tokens is not None
    behaviour = graph.tokens.logprobs  # [S]
    old = np.where(np.isnan(old), behaviour, old)
    columns = {"old_logprob": old, "importance": np.ones(len(old))}
    row = token_rows(graph.tokens)  # [S]
    counted = decisions(graph.tokens) & np.isin(row, rows) & ~shown_only(graph)[row]  # [S]
    stale = _foreign(graph)[row]  # [S]
    metrics = mismatch(behaviour[counted & ~stale], old[counted & ~stale])
    tolerance = config.tolerance(half=learner.half)
    if stale.any() or metrics["mismatch_max"] > tolerance:
        sequence = _sequences(graph, config)[token_rows(graph.tokens)[counted]]  # [K]
        band = config.importance_low, config.importance_high
        weighed = importance_weights((old - behaviour)[counted], sequence, config.importance, *band)
        columns["importance"][counted] = weighed.weight
        metrics |= weighed.metrics
    return columns, metrics


def _foreign(graph: StepGraph) -> np.ndarray:
    """[N] bool, True for demonstrations, replayed rows, and rows whose prompt was changed after sampling.

    The stored log-probs of these rows may differ from the trainer's even if the engine computes correctly.
    """
    foreign: np.ndarray = graph.kind == DEMO
    for name in ("replayed", "reprompted"):
        foreign = foreign | graph.column(name).astype(bool) if graph.has(name) else foreign
    return foreign


def _mine(graph: StepGraph, mine: np.ndarray, columns: Columns) -> Columns:
    """The new columns on the rows `mine` [N]; on all other rows, the values of the graph's columns of the same names.

    A column that the graph lacks is new on all rows.
    """
    assert graph.tokens is not None

    def merged(use: np.ndarray, new: Mapping[str, np.ndarray], old: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: np.where(use, x, old[name]) if name in old else x for name, x in new.items()}

    mine_tokens = mine[token_rows(graph.tokens)]  # [S]
    return Columns(
        steps=merged(mine, columns.steps, graph.columns),
        tokens=merged(mine_tokens, columns.tokens, graph.tokens.columns),
    )


def _sequences(graph: StepGraph, config: UpdateConfig) -> np.ndarray:
    """[N] int, the number of each row's sequence: its episode with `sequence="episode"`, else the row itself."""
    return graph.episode if config.sequence == "episode" else np.arange(len(graph))


def trained_rows(graph: StepGraph) -> np.ndarray:
    """The rows that can be trained, ascending: no probes, and no rows of rollouts that an environment error ended."""
    return np.flatnonzero((graph.kind != PROBE) & ~graph.failed())


def mismatch(behaviour: np.ndarray, trainer: np.ndarray) -> dict[str, float]:
    """Largest and mean absolute difference, in nats, of the log-probs [K] of the same tokens in engine and trainer."""
    if not len(trainer):
        return {"mismatch_max": 0.0, "mismatch_mean": 0.0}
    apart = np.abs(behaviour - trainer)  # [K]
    return {"mismatch_max": float(apart.max()), "mismatch_mean": float(apart.mean())}
