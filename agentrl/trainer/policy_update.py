"""The policy update: packed forward passes, a loss per token, and sums of these losses over the whole mini-batch.

The loss of a mini-batch is the sum over decisions of

    a * (P * l(+1) + M * l(-1) + W * (kl_coef * KL - entropy_coef * entropy) + terms of regularizers)

where a is the aggregation weight over the whole mini-batch (`agentrl.trainer.path_weights.aggregation_weights`), l(+1)
and l(-1) are the policy loss for an advantage of 1 and of -1, and P, M, W are `positive`, `negative` and `weight` of
the step's credit, times the row's weight. The importance weight of the token multiplies P and M. The losses of
micro-batches are added up, so the number of micro-batches changes only the rounding. On a branched graph, ratios and
means over whole episodes are computed per path (`agentrl.trainer.path_weights`), for all paths of a tree after one
forward pass.
"""

from collections.abc import Callable, Sequence, Set

import numpy as np
import torch
from torch import Tensor

from agentrl.config import Entry
from agentrl.credit import Credit, shown_only
from agentrl.graph import Columns, StepGraph, decisions, token_rows
from agentrl.loss import ROUNDING, Loss, LossInputs, LossOutput, unrounded
from agentrl.model import TokenStats
from agentrl.trainer.descent import counted_copies, descend
from agentrl.trainer.loss_terms import kl_term
from agentrl.trainer.passes import PolicyLearner
from agentrl.trainer.path_weights import Copies, Spread, roots
from agentrl.trainer.regularizer import Moment, Regularizers, Term
from agentrl.trainer.sections import UpdateConfig
from agentrl.trainer.temperatures import step_temperatures
from agentrl.trainer.work import Terms, Work
from agentrl.types import Status


def clone(
    learner: PolicyLearner,
    graph: StepGraph,
    config: UpdateConfig,
    *,
    minibatches: int | None = None,
    seed: int = 0,
) -> dict[str, float]:
    """Behaviour cloning: cross-entropy on the sampled tokens; the loss of a row is multiplied by its `weight`.

    The log-probabilities are those under each token's allowed set, at temperature 1. Tokens are aggregated as
    `config.aggregation` says; None means token-mean. If `minibatches` is None, `config.minibatches` is used.

    Returns:
        Metrics of the whole update.
    """

    copies = counted_copies(graph, Credit.of(np.zeros(len(graph))), graph.weight, config)

    def terms(stats: TokenStats, columns: Sequence[Tensor], moved: bool, bound: float | None) -> Terms:
        (weight,) = columns  # [X]
        return Terms(-weight * stats.logprob, {"probability": stats.logprob.detach().exp()})

    work = Work(
        graph=graph,
        rows=np.flatnonzero(graph.weight > 0),
        dropped=np.zeros(0, np.int64),
        active=np.ones(len(graph), bool),
        copies=copies,
        times=copies.weight,
        columns=lambda token, on: [copies.weight[on.copy]],
        terms=terms,
        entropy="value",
        temperature=1.0,
    )
    metrics = descend(learner, work, config, config.epochs, minibatches or config.minibatches, seed)
    return {**metrics, "dropped_rows": float(len(graph) - len(work.rows))}


def update(
    learner: PolicyLearner,
    graph: StepGraph,
    credit: Credit,
    config: UpdateConfig,
    loss: Entry[Loss],
    *,
    temperature: float,
    seed: int = 0,
    regularizers: Regularizers | None = None,
    beside: Callable[[np.ndarray], None] | None = None,
) -> dict[str, float]:
    """Policy-gradient update of the learner on an annotated graph.

    Args:
        learner: the learner whose weights change.
        graph: an annotated graph, see `agentrl.trainer.annotation.annotate`.
        credit: the credit of the graph's rows.
        config: section [update].
        loss: an entry of `algorithms/loss`. If its configuration sets `whole_episodes` to true, all tokens of an
            episode are in one micro-batch.
        temperature: sampling temperature of the steps that have no entry in the graph's column `temperature`; 0
            (greedy) counts as 1, as in the engine.
        seed: seed of the order of mini-batches and of dropout.
        regularizers: further terms of the loss; None for no such terms.
        beside: called with a mini-batch's rows before the optimiser step, to add the gradient of another loss, such as
            a critic's loss on the policy's trunk; None for no other loss.

    Returns:
        Metrics of the whole update (see `Meter.means`), with `dropped_rows` (rows that are not trained) and `idle_rows`
        (trained rows without a gradient). The metrics of the loss and `entropy` are means over the decisions of all
        rows with credit, also if a row is idle, or is dropped by `train_invalid` or `train_unfinished`. A decision
        counts as often as its row counts (its weight, and the number of paths through the row). If the graph has the
        token column `old_entropy` (`annotate`), such a row needs no forward pass before the first optimiser step, else
        one without gradient.
    """
    config = config.resolved(loss)
    trained = credit.assigned & (graph.valid | config.train_invalid)  # [N]
    if not config.train_unfinished:
        trained = trained & ~unfinished(graph)
    whole_episodes = getattr(loss.config, "whole_episodes", False)
    regularizers = regularizers or Regularizers()
    copies = counted_copies(graph, credit, graph.weight * trained, config, whole_episodes)
    moment = Moment(graph.turn[copies.row], learner.updates, learner.total_updates, learner.passes.total)
    added = regularizers.begin(moment)
    counted = graph.weight * credit.weight * credit.assigned > 0  # [N]
    further = _beside(graph, credit, regularizers.reads)
    work = Work(
        graph=graph,
        rows=np.flatnonzero(counted & trained),
        dropped=np.flatnonzero(counted & ~trained),
        active=_active(graph, credit, config, loss, len(regularizers) > 0),
        copies=copies,
        times=counted_copies(graph, credit, graph.weight, config, whole_episodes).weight,
        columns=_policy_columns(graph, credit, copies, further, reference=config.kl_loss_coef > 0),
        terms=_policy_terms(
            config,
            loss,
            added,
            [*further.steps, *further.tokens],
            config.mismatch_tolerance_half if learner.half else ROUNDING,
        ),
        entropy="gradient" if config.entropy_coef or regularizers.entropy else "value",
        temperature=temperature or 1.0,
        bundle=roots(graph.parent) if whole_episodes else None,
        beside=beside,
        bound=_bound(learner, graph, copies, config, loss, temperature),
    )
    metrics = descend(learner, work, config, config.epochs, config.minibatches, seed)
    for term in added:
        term.finish()
    idle = float((~work.active[work.rows]).sum())
    return {**metrics, "dropped_rows": float(len(graph) - len(work.rows)), "idle_rows": idle}


def _bound(
    learner: PolicyLearner,
    graph: StepGraph,
    copies: Copies,
    config: UpdateConfig,
    loss: Entry[Loss],
    temperature: float,
) -> Callable[[np.ndarray], float] | None:
    """A function that computes the loss's bound of a mini-batch from its rows; None for a loss without a bound."""
    hook, tokens = loss.hooks.bound, graph.tokens
    if hook is None or tokens is None:
        return None
    hot = step_temperatures(graph, temperature)
    times = np.bincount(copies.row, copies.weight, len(graph)) * ~shown_only(graph)  # [N]
    old, row = graph.token_column("old_logprob", "a policy update"), token_rows(tokens)  # [S] each

    def bound(rows: np.ndarray) -> float:
        now = learner.passes.read(tokens, rows, temperature=hot, max_tokens=config.max_tokens).logprob  # [S]
        counted = decisions(tokens) & np.isin(row, rows)  # [S]
        return hook((now - old)[counted], times[row[counted]], loss.config)

    return bound


def unfinished(graph: StepGraph) -> np.ndarray:
    """[N] bool, rows of rollouts in which a limit or a refusal ended the chain of the agent that got the task.

    A limit ended the chain also if it cut off the chain's last answer, which was parsed all the same
    (`limits.cut_turn=parse`). Any other row whose answer was cut off is True too, without the rest of its rollout.
    """
    limited = (graph.ending > Status.DONE) & (graph.ending < Status.ENV_ERROR)  # [N]
    cut = graph.column("cut").astype(bool) if graph.has("cut") else np.zeros(len(graph), bool)  # [N]
    ended = (limited | (cut & graph.last)) & (graph.caller < 0)  # [N]
    rows: np.ndarray = np.isin(graph.rollout, graph.rollout[ended]) | cut
    return rows


def _active(graph: StepGraph, credit: Credit, config: UpdateConfig, loss: Entry[Loss], regularized: bool) -> np.ndarray:
    """[N] bool, rows that can have a gradient. The other rows count in every denominator and in the metrics.

    A row without credit has no gradient if the loss is 0 at P = M = 0 (the loss's file declares
    `ZERO_WITHOUT_CREDIT = True`) and no KL term, entropy bonus or regularizer is added. With credit per token, all rows
    can have one.
    """
    if not leaves_idle(config, loss, regularized) or credit.token_advantage is not None:
        return np.ones(len(graph), bool)
    return (credit.positive > 0) | (credit.negative > 0)


def observes_rows(config: UpdateConfig, loss: Entry[Loss], regularized: bool) -> bool:
    """May an update count rows in its metrics that need no gradient, so that it can use the column `old_entropy`?"""
    return leaves_idle(config, loss, regularized) or not (config.train_invalid and config.train_unfinished)


def leaves_idle(config: UpdateConfig, loss: Entry[Loss], regularized: bool) -> bool:
    """Can a row without credit have no gradient, because no term of the loss but the policy gradient remains?

    A loss with the hook `bound` needs the log-ratios of all rows, also if the mini-batch is one micro-batch.
    """
    alone = loss.hooks.zero_without_credit and loss.hooks.bound is None
    return alone and not (config.kl_loss_coef or config.entropy_coef or regularized)


def _policy_columns(
    graph: StepGraph, credit: Credit, copies: Copies, further: Columns, *, reference: bool
) -> Callable[[np.ndarray, Spread], list[np.ndarray]]:
    """A function that gives the numbers that `_policy_terms` needs of the targets of all copies, in its order.

    `further` holds the columns that the regularizers read. A demonstration without a policy gradient counts in the
    denominators; it gets no KL term and no entropy bonus.
    """
    shown = shown_only(graph)  # [N]
    importance = graph.token_column("importance") if graph.has_token_column("importance") else None  # [S]
    old = graph.token_column("old_logprob", "a policy update")  # [S]
    frozen = [graph.token_column("ref_logprob", "update.kl_coef > 0")] if reference else []  # [S]

    def columns(token: np.ndarray, on: Spread) -> list[np.ndarray]:
        """[X] each; `token` [X] are the targets' indices in the token table."""
        row = copies.row[on.copy]  # [X]
        weight = copies.weight[on.copy]  # [X]
        if credit.token_advantage is None:
            positive, negative = copies.positive[on.copy], copies.negative[on.copy]  # [X]
        else:
            advantage = credit.token_advantage[token] * weight  # [X]
            positive, negative = np.maximum(advantage, 0.0), np.maximum(-advantage, 0.0)
        corrected = np.ones(len(token)) if importance is None else importance[token]  # [X]
        graded = [positive * corrected, negative * corrected, weight * ~shown[row]]
        read = [*(x[row] for x in further.steps.values()), *(x[token] for x in further.tokens.values())]
        numbers = [old[token], ~shown[row], *graded, *(x[token] for x in frozen), *read]
        return [on.copy, copies.path[on.copy], *(np.asarray(x, np.float64) for x in numbers)]

    return columns


def _policy_terms(
    config: UpdateConfig, loss: Entry[Loss], added: Sequence[Term], names: Sequence[str], rounding: float
) -> Callable[[TokenStats, Sequence[Tensor], bool, float | None], Terms]:
    """A function that computes the loss of each target of the copies: policy gradient, penalties and regularizers.

    `names` are those of the columns that the regularizers read. The ratio of a demonstration without a policy gradient
    is 1.

    Until an optimiser step of the update moves the weights, the policy is the policy before the update, and its
    log-probs differ from `old_logprob` by `rounding` nats at most. The KL term then has the value of `old_logprob`,
    which annotation has computed over the same packed tokens as `ref_logprob`: if policy and reference are equal, the
    log-ratio and the gradient are exactly 0.
    """

    def terms(stats: TokenStats, columns: Sequence[Tensor], moved: bool, bound: float | None) -> Terms:
        """Terms of the targets of the copies; `columns` are those of `_policy_columns`."""
        step, path, old, own, positive, negative, weight, *rest = columns  # [X] each
        reference = rest.pop(0) if config.kl_loss_coef > 0 else None  # [X]
        inputs = LossInputs(
            logprob=stats.logprob,
            old_logprob=old * own + stats.logprob.detach() * (1 - own),
            ref_logprob=reference,
            entropy=stats.entropy,
            positive=positive,
            negative=negative,
            weight=weight,
            step=step,
            path=path,
            columns=dict(zip(names, rest, strict=True)),
            bound=bound,
        )
        again = (inputs.old_logprob - inputs.logprob).detach()  # [X] rounding, while the policy is the one before
        value = inputs.logprob + again * (not moved) * (again.abs() <= rounding)  # [X]
        return _with_penalties(inputs, value, loss.hooks.loss(inputs, loss.config), config, added)

    return terms


def _beside(graph: StepGraph, credit: Credit, names: Set[str]) -> Columns:
    """The columns that regularizers read in addition to the loss inputs; see `RegularizerFile.reads`.

    Raises:
        ValueError: the graph lacks one of these columns.
    """
    made: dict[str, Callable[[], np.ndarray]] = {
        "demonstrated": lambda: graph.weight * shown_only(graph),
        "advantage": lambda: credit.advantage,
        "succeeded": lambda: graph.succeeded,
    }
    tokens = {name for name in names if graph.has_token_column(name)}
    steps = {name: made[name]() if name in made else graph.column(name, "a regularizer") for name in names - tokens}
    return Columns(steps=steps, tokens={name: graph.token_column(name) for name in tokens})


def _with_penalties(
    inputs: LossInputs, value: Tensor, policy: LossOutput, config: UpdateConfig, added: Sequence[Term]
) -> Terms:
    """The policy loss, plus the KL term, minus the entropy bonus (each times W), plus the terms of the regularizers.

    `value` [X] is the policy's log-prob in the KL term.
    """
    per_token, logged = policy.per_token, dict(policy.metrics)
    if inputs.ref_logprob is not None:
        apart = unrounded(value - inputs.ref_logprob)  # [X]
        kl = kl_term(apart, torch.zeros_like(apart), config.kl_form)  # [X]
        per_token = per_token + config.kl_loss_coef * inputs.weight * kl
        logged["kl_ref"] = kl.detach()
    if config.entropy_coef and inputs.entropy is not None:
        per_token = per_token - config.entropy_coef * inputs.weight * inputs.entropy
    for term in added:
        output = term(inputs)
        per_token = per_token + output.per_token
        logged |= output.metrics
    return Terms(per_token, logged)
