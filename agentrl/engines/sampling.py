"""How an answer is drawn from a model: the settings of the sampling distribution, and its noise.

There is one sampling distribution in the project, and both the engine and the trainer use it
(`agentrl.engines.distribution` has the arithmetic): softmax(logits / temperature) restricted to an allowed set.
Admissible actions, top-k and top-p are all told as the allowed set of a token, and the set is stored with the token
(`Generation.allowed`), so log-probabilities can be recomputed exactly.

Noise is a function of (noise key, token index) alone, and a token is the inverse CDF at its noise. The same key
therefore draws the same token whatever else is in the batch.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = (1 << 64) - 1


class Sampling(BaseModel):
    """The sampling distribution and the limits of an answer.

    Attributes:
        temperature: divides the logits; 0 is greedy. Greedy tokens carry the log-probability at temperature 1 under
            their allowed set, because a point mass has nothing to learn from; top_k and top_p do not apply to them.
        top_p: the allowed set is the smallest set of most probable tokens whose mass reaches top_p; 1 is off.
        top_k: the allowed set is the k most probable tokens; 0 is off. Taken before top_p, which then counts mass
            within it. Ties go to the lower id.
        stop: an answer ends as soon as its text contains one of these; the text keeps it, as the ids do. Where none is
            named, those of the environment's words count (`</search>` and `</answer>` for a search agent).
        max_tokens: most tokens of one answer; a request may ask for fewer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    stop: tuple[str, ...] = ()
    max_tokens: int = Field(512, ge=1)

    @property
    def truncates(self) -> bool:
        """Does the distribution leave tokens out by their probability?"""
        return self.temperature > 0 and (self.top_k > 0 or self.top_p < 1)


def fold(key: Sequence[int]) -> int:
    """A noise key as one 64-bit integer, by chained splitmix64 (order and length matter)."""
    state = len(key)
    for part in key:
        state = _mix((state + _GOLDEN + (int(part) & _MASK)) & _MASK)
    return state


def uniforms(folded: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Noise of token `index` under each folded key.

    Args:
        folded: [B] uint64 from `fold`.
        index: [B] int64 >= 0.

    Returns:
        [B] float64 strictly inside (0, 1): multiples of 2**-53, so never 0 or 1 after rounding.
    """
    with np.errstate(over="ignore"):
        x = folded.astype(np.uint64) + (index.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)  # [B]
        x = (x ^ (x >> np.uint64(30))) * np.uint64(_MIX_1)  # [B]
        x = (x ^ (x >> np.uint64(27))) * np.uint64(_MIX_2)  # [B]
        x ^= x >> np.uint64(31)
    noise: np.ndarray = ((x >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52  # [B]
    return noise


def _mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * _MIX_1) & _MASK
    x = ((x ^ (x >> 27)) * _MIX_2) & _MASK
    return x ^ (x >> 31)
