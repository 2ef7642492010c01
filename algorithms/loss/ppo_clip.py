"""Clipped policy-gradient loss with asymmetric range and dual clip.

Source: PPO, Schulman et al., arXiv:1707.06347, Eq. 7; asymmetric range ("clip-higher"), DAPO, arXiv:2503.14476, Eq. 10;
dual clip, Ye et al., arXiv:1912.09729, Eq. 5.
"""

import torch
from pydantic import BaseModel, Field

from agentrl.loss import LossInputs, LossOutput


class Config(BaseModel, frozen=True, extra="forbid"):
    """clip_low, clip_high: the ratio stays in [1 - clip_low, 1 + clip_high]. dual_clip: cap c > 1 of the loss at
    negative advantage, or None for none."""

    clip_low: float = Field(0.2, ge=0, le=1)
    clip_high: float = Field(0.2, ge=0)
    dual_clip: float | None = Field(3.0, gt=1)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """P * l(u, +1) + M * l(u, -1), with u the token ratio pi_new / pi_old: the same as max(-A u, -A clip(u)) on a chain."""
    ratio = torch.exp(inputs.logprob - inputs.old_logprob)  # [T]
    clipped = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)  # [T]
    gain = -torch.minimum(ratio, clipped)  # [T] at advantage +1
    pain = torch.maximum(ratio, clipped)  # [T] at advantage -1
    if config.dual_clip is not None:
        pain = pain.clamp(max=config.dual_clip)
    with torch.no_grad():
        cut = ((ratio > clipped) & (inputs.positive > 0)) | ((ratio < clipped) & (inputs.negative > 0))  # [T]
    per_token = inputs.positive * gain + inputs.negative * pain  # [T]
    metrics = {"clip_fraction": cut.float(), "ratio": ratio.detach(), "approx_kl": (ratio - 1 - torch.log(ratio)).detach()}
    return LossOutput(per_token, metrics)
