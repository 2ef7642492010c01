"""Tree-GRPO's turn ratio: geometric mean over a turn, dual clip.

Formula: `l = max(-A s, -A clip(s, 1 - clip_low, 1 + clip_high))`, at most `-A dual_clip` where `A < 0`, `s = exp(mean
over the turn of log u)`.

Source: Tree-GRPO, arXiv:2509.21240, its released function compute_policy_loss_turn. Each token of a turn has the ratio
s of the turn; the clip is 0.2 and the dual clip 3. The default aggregation is "token-mean". The released code handles
only the turns 1 to 9 of an episode; here every turn is treated alike.
"""

from pydantic import BaseModel, Field

from agentrl.algorithms.loss._surrogate import Surrogate, surrogate
from agentrl.loss import LossInputs, LossOutput

AGGREGATION = "token-mean"


class Config(BaseModel, frozen=True, extra="forbid"):
    """The bounds.

    clip_low: the lower bound of a turn's ratio is 1 - clip_low.
    clip_high: the upper bound of a turn's ratio is 1 + clip_high.
    dual_clip: at negative advantage A the loss of a token is at most -A dual_clip; None: no such bound.
    """

    clip_low: float = Field(0.2, ge=0, le=1)
    clip_high: float = Field(0.2, ge=0)
    dual_clip: float | None = Field(3.0, gt=1)


def loss(inputs: LossInputs, config: Config) -> LossOutput:
    """The loss [T] of each token. All tokens that share a ratio must be in one micro-batch."""
    chosen = Surrogate(
        granularity="turn_mean",
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        dual_clip=config.dual_clip,
    )
    return surrogate(inputs, chosen)
