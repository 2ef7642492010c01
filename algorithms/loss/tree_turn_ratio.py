"""Tree-GRPO's turn ratio: geometric mean over a turn, dual clip.

Formula: `l = max(-A s, -A clip(s, 1 - clip_low, 1 + clip_high))`, at most `-A dual_clip` where `A < 0`, `s = exp(mean
over the turn of log u)`.

Source: Tree-GRPO, arXiv:2509.21240, official compute_policy_loss_turn: exp(mean over the turn's tokens of new
- old) on each of its tokens, clip 0.2, dual clip 3. Aggregation: "token-mean". The official code counts turns
1 to 9 only.
"""

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "token-mean"


class Config(BaseModel, frozen=True, extra="forbid"):
    """clip_low, clip_high, dual_clip: as in ppo_clip."""

    clip_low: float = Field(0.2, ge=0, le=1)
    clip_high: float = Field(0.2, ge=0)
    dual_clip: float | None = Field(3.0, gt=1)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """All tokens of what shares a ratio must be in one micro-batch."""
    chosen = Surrogate(
        granularity="turn_mean",
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        dual_clip=config.dual_clip,
    )
    return surrogate(inputs, chosen)
