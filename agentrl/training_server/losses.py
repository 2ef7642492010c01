"""The losses that the protocol defines, per token; their sum over tokens and datums is what is differentiated.

Letters: K targets, r ratio, A advantage, w weight, l log-prob.
"""

from collections.abc import Mapping

from torch import Tensor

from agentrl.training_server.verbs import ClipBounds


def token_loss(name: str, logprob: Tensor, columns: Mapping[str, Tensor], bounds: ClipBounds) -> Tensor:
    """[K] the loss of each target.

    Formula, with r = exp(l - logprobs):
        cross_entropy: -w l.
        importance_sampling: -w r A.
        ppo: -w min(r A, clip(r, low, high) A).
        cispo: -w sg(clip(r, low, high)) A l, where sg stops the gradient.

    Source: the documentation of the Tinker SDK, section "Loss functions". The factor w, which it has in cross_entropy
    alone, is 1 unless the client sends weights.

    Args:
        name: one of `agentrl.training_server.verbs.LOSSES`.
        logprob: [K] log-probs under the current weights.
        columns: name -> [K], of `weights`, `logprobs` and `advantages`.
        bounds: of the ratio.
    """
    weight = columns["weights"]  # [K]
    if name == "cross_entropy":
        return -weight * logprob
    ratio, advantage = (logprob - columns["logprobs"]).exp(), columns["advantages"]  # [K], [K]
    clipped = ratio.clamp(bounds.low, bounds.high)  # [K]
    if name == "importance_sampling":
        return -weight * ratio * advantage
    if name == "ppo":
        return -weight * (ratio * advantage).minimum(clipped * advantage)
    assert name == "cispo", name
    return -weight * clipped.detach() * advantage * logprob
