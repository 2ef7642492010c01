"""How long answers are, by rules: too short, too long, repeating themselves, long or short relative to the group.

Formula: `long = -clip((length - max_length) / margin, 0, 1)`, `short = -clip((min_length - length) / margin, 0, 1)`,
`repeats = -(share of repeated n-grams)`; `relative` is defined below.

Source: four rules from three papers; each rule gives a signal of its own. `short` and `long` say how far the length of
a chain lies outside [`min_length`, `max_length`]: they fall from 0 at the bound to -1 at the distance `margin`. This is
the soft penalty of DAPO, arXiv:2503.14476, Eq. 13, which has it for long answers only. `repeats` is minus the share of
n-grams of words that occurred earlier in the same answer; Yeo et al., arXiv:2502.03373, section 4.1, penalise such
n-grams. `relative` compares the lengths of all chains of a group as Kimi k1.5 does, arXiv:2501.12599, section 2.3.3:
with lambda = 0.5 - (len - min) / (max - min), the signal is lambda if the chain is right and min(0, lambda) if it is
wrong; it is 0 if all chains have the same length. The length of a chain is the number of its sampled tokens or of the
words of its answers, as the option `unit` says; words also suit a model without a tokenizer.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from agentrl.scoring import Chain, JudgeClient, ScoreOptions, Signals

SCOPE = "group"
PAPER = "arXiv:2501.12599, arXiv:2503.14476, arXiv:2502.03373"
RULES = ("short", "long", "repeats", "relative")


class Config(ScoreOptions, frozen=True):
    """Options.

    Attributes:
        rules: which of short, long, repeats and relative are computed.
        unit: what the length of a chain counts: sampled tokens, or words of the answers.
        min_length: length below which the signal `short` is negative.
        max_length: length above which the signal `long` is negative.
        margin: distance from the bound, in tokens or words, at which `short` or `long` reaches -1.
        ngram: number of words of the n-grams that `repeats` compares.
        prefix: beginning of the signals' names, such as length_ in length_short.
    """

    rules: tuple[Literal["short", "long", "repeats", "relative"], ...] = Field(("long", "repeats"), min_length=1)
    unit: Literal["tokens", "words"] = "words"
    min_length: int = Field(1, ge=0)
    max_length: int = Field(2000, ge=1)
    margin: int = Field(200, ge=1)
    ngram: int = Field(4, ge=1)
    prefix: str = "length_"


def signals(config: Config) -> Sequence[str]:
    """One per rule."""
    return [config.prefix + rule for rule in dict.fromkeys(config.rules)]


class LengthRules:
    """Scores chains by their length; it calls no model."""

    def __init__(self, config: Config) -> None:
        self.config = config

    async def score(self, chains: Sequence[Chain], client: JudgeClient) -> Sequence[Signals]:
        """See `Scorer`."""
        config = self.config
        length = np.array([_length(chain, config.unit) for chain in chains], np.float64)  # [E]
        right = np.array([chain.success for chain in chains], bool)  # [E]
        found = {
            "short": -np.clip((config.min_length - length) / config.margin, 0.0, 1.0),
            "long": -np.clip((length - config.max_length) / config.margin, 0.0, 1.0),
            "repeats": np.array([-repeated([turn.answer for turn in chain.turns], config.ngram) for chain in chains]),
            "relative": relative(length, right),
        }  # each [E]
        return [{config.prefix + rule: float(found[rule][e]) for rule in config.rules} for e in range(len(chains))]


def make(config: Config) -> LengthRules:
    """See `agentrl.scoring.entry`."""
    return LengthRules(config)


def _length(chain: Chain, unit: str) -> int:
    return sum(turn.tokens if unit == "tokens" else len(turn.answer.split()) for turn in chain.turns)


def relative(length: np.ndarray, right: np.ndarray) -> np.ndarray:
    """[E] Kimi k1.5's length reward of one group, from lengths [E] and correctness [E] bool."""
    if not len(length) or np.ptp(length) == 0:
        return np.zeros(len(length))
    share: np.ndarray = 0.5 - (length - length.min()) / np.ptp(length)  # [E]
    return np.where(right, share, np.minimum(share, 0.0))


def repeated(answers: Sequence[str], n: int) -> float:
    """Share, in 0..1, of the n-grams of words of all answers that occurred earlier in the same answer."""
    total = again = 0
    for answer in answers:
        words = answer.lower().split()
        grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
        total, again = total + len(grams), again + len(grams) - len(set(grams))
    return again / total if total else 0.0
