"""KL in the reward: subtracts kl_coef times a step's KL against the reference model from the step's reward."""

import numpy as np
import torch

from agentrl.credit import shown_only
from agentrl.graph import StepGraph, decisions, token_rows, tree_down
from agentrl.trainer.annotation import Annotated, trained_rows
from agentrl.trainer.loss_terms import kl_term
from agentrl.trainer.sections import UpdateConfig


def charge_kl(annotated: Annotated, config: UpdateConfig, *, after: bool = False) -> Annotated:
    """With `kl_in="reward"`, subtract kl_coef times a step's KL from the step's reward, before credit is computed.

    With `after`, for credit methods that divide by the standard deviation of a group, the rewards stay. The column
    `kl_charge` [N] then holds kl_coef times the step's KL, which `agentrl.credit.assign` subtracts after the division,
    so that the charge scales with kl_coef.

    A step's KL is the sum of the KL estimates of the step's decisions, under the policy before the update, as in verl's
    apply_kl_penalty.

    Source: Stiennon et al., arXiv:2009.01325, section 3.4, R = r - beta log(pi / pi_ref) (`kl_form="k1"`). There, the
    sum over the whole answer is subtracted from one reward; here, each step's sum from the reward of this step.

    If the graph has a column `score`, kl_coef times the sum of `kl` over the path from the root to the last row of the
    row's episode is subtracted from the score of the row.

    The column `kl` [N] holds the KL of the steps in nats, so that reward + kl_coef * kl is the reward before the
    subtraction. The columns `env_reward` and `env_score` [N] hold the environment's reward and score. If the
    environment does not report success, `env_score` decides whether an episode succeeded.
    """
    if config.kl_in == "loss" or not config.kl_coef:
        return annotated
    graph = annotated.graph
    assert graph.tokens is not None
    row = token_rows(graph.tokens)  # [S]
    counted = decisions(graph.tokens) & np.isin(row, trained_rows(graph)) & ~shown_only(graph)[row]  # [S]
    names = ("old_logprob", "ref_logprob")
    old, reference = (graph.token_column(name, "update.kl_in=reward")[counted] for name in names)
    estimate = kl_term(torch.from_numpy(old), torch.from_numpy(reference), config.kl_form).numpy()  # [K]
    kl = np.bincount(row[counted], estimate, minlength=len(graph))  # [N]
    total = float(kl.sum())
    means = {"kl_ref": total / max(len(estimate), 1), "kl_charge": config.kl_coef * total / max(len(kl), 1)}
    metrics = {**annotated.metrics, **means}
    if after:
        return Annotated(graph.with_columns(kl=kl, kl_charge=config.kl_coef * kl), metrics)
    columns = {"kl": kl, "reward": graph.reward - config.kl_coef * kl}
    columns |= {} if graph.has("env_reward") else {"env_reward": graph.reward}
    if not graph.has("env_score"):
        columns["env_score"] = graph.score if graph.has("score") else _whole_path(graph.reward, graph)
    if graph.has("score"):
        columns["score"] = graph.score - config.kl_coef * _whole_path(kl, graph)
    return Annotated(graph.with_columns(**columns), metrics)


def _whole_path(x: np.ndarray, graph: StepGraph) -> np.ndarray:
    """[N] for each row, the sum of x [N] from the root to the last row of the row's episode."""
    total = tree_down(x, graph.parent)  # [N]
    episode = np.unique(graph.episode, return_inverse=True)[1]  # [N]
    at_end = np.zeros(len(x))  # [episodes]
    at_end[episode[graph.last]] = total[graph.last]
    return at_end[episode]
