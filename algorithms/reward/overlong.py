"""A soft penalty on answers that run towards the token limit.

Source: DAPO, arXiv:2503.14476, Eq. 13: 0 up to limit - margin, falling linearly to -1 at the limit, -1
beyond.
"""

import numpy as np
from pydantic import BaseModel, Field


class Config(BaseModel, frozen=True, extra="forbid"):
    """max_tokens: the limit. margin: tokens before it in which the penalty grows. scale: of the penalty."""

    max_tokens: int = Field(20480, ge=1)
    margin: int = Field(4096, ge=1)
    scale: float = Field(1.0, ge=0)


def reward(tokens: np.ndarray, config: Config) -> np.ndarray:
    """[E] penalty <= 0 to be added to the reward, from response tokens [E]."""
    over = np.asarray(tokens, np.float64) - (config.max_tokens - config.margin)  # [E]
    return -config.scale * np.clip(over / config.margin, 0.0, 1.0)
