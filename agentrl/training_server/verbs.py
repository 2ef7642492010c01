"""What a client asks of the training server, and what the server answers, whatever the form of their bodies.

Letters: L inputs of a datum, W targets per input (1 unless the client asks for several), D datums.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

TARGETS = "target_tokens"  # the column of a datum that holds token ids
COLUMNS = ("weights", "logprobs", "advantages")  # the columns that losses read
LOSSES: Mapping[str, tuple[str, ...]] = {
    "cross_entropy": (),
    "importance_sampling": ("logprobs", "advantages"),
    "ppo": ("logprobs", "advantages"),
    "cispo": ("logprobs", "advantages"),
}  # loss -> the columns that it needs besides the targets


@dataclass(frozen=True, kw_only=True, eq=False)
class SentDatum:
    """One sequence of a training request.

    Attributes:
        inputs: [L] int64 token ids that the model reads.
        targets: [L, W] int64; the ids whose log-probs are computed after each input. They need not be the next inputs.
        columns: name -> [L, W] float32, of `COLUMNS`; `weights` is always there.
        flat: the client sent the targets as [L], and gets log-probs of this shape.
    """

    inputs: np.ndarray
    targets: np.ndarray
    columns: Mapping[str, np.ndarray]
    flat: bool = True


class ClipBounds(NamedTuple):
    """The smallest and the largest ratio of `ppo` and `cispo`: bounds of the ratio itself, not distances from 1."""

    low: float = 0.8
    high: float = 1.2


CLIP = ClipBounds()


@dataclass(frozen=True, kw_only=True, eq=False)
class PassWork:
    """`forward` or `forward_backward`.

    Attributes:
        data: the D datums.
        loss: one of `LOSSES`.
        bounds: for losses that clip.
        backward: add the gradient to the model's gradients, which the next `optim_step` uses.
    """

    data: Sequence[SentDatum]
    loss: str
    bounds: ClipBounds = CLIP
    backward: bool = True

    @property
    def tokens(self) -> int:
        """The number of inputs of all datums."""
        return sum(len(datum.inputs) for datum in self.data)


class AdamSettings(NamedTuple):
    """One step of AdamW; the defaults are those of the protocol, which older SDKs leave out. grad_clip 0: no limit."""

    lr: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip: float = 0.0


class AdapterPlan(NamedTuple):
    """The adapters of a model: rank, seed of their random weights, and the parts of the network that have adapters."""

    rank: int = 32
    seed: int = 0
    attn: bool = True
    mlp: bool = True
    unembed: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class SampleWork:
    """`asample`: answers to one prompt.

    Attributes:
        prompt: [L] int64.
        count: number of answers.
        max_tokens: largest number of tokens per answer; None for what the context allows. At 0 an answer has no token,
            and its reason to end is "length".
        temperature, top_p: see `agentrl.engines.Sampling`; top_k: 0 is off.
        seed: of the noise; None for a random one.
        stop_texts: texts that end an answer, besides the end tokens.
        stop_ids: token ids that end an answer, in place of the end tokens; None for the end tokens.
        prompt_logprobs: also compute the log-probs of the prompt.
        last: compute them for the last `last` tokens only; 0 for all.
    """

    prompt: np.ndarray
    count: int = 1
    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop_texts: tuple[str, ...] = ()
    stop_ids: frozenset[int] | None = None
    prompt_logprobs: bool = False
    last: int = 0


class PassResult(NamedTuple):
    """Per datum the log-probs [L] or [L, W] float32 of its targets, and metrics."""

    logprobs: Sequence[np.ndarray]
    metrics: Mapping[str, float]


class SampledTokens(NamedTuple):
    """One answer: ids [T] int64, log-probs [T] float64, and why it ended: "stop" or "length"."""

    ids: np.ndarray
    logprobs: np.ndarray
    finish: str


class SampleResult(NamedTuple):
    """The answers to one prompt, and the prompt's log-probs [L] float64 (NaN: not computed), if they were asked for."""

    answers: Sequence[SampledTokens]
    prompt_logprobs: np.ndarray | None = None


class PlainResult(NamedTuple):
    """A result that is JSON in every version of the protocol."""

    fields: Mapping[str, Any]


Result = PassResult | SampleResult | PlainResult


def size_of(result: Result) -> int:
    """About how many bytes of memory a result takes."""
    if isinstance(result, PassResult):
        return 1000 + sum(one.nbytes for one in result.logprobs)
    if isinstance(result, SampleResult):
        prompt = 0 if result.prompt_logprobs is None else result.prompt_logprobs.nbytes
        return 1000 + prompt + sum(one.ids.nbytes + one.logprobs.nbytes for one in result.answers)
    return 1000
