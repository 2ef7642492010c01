"""Section [scoring] of a recipe: it limits what scores cost, and names the held-out judge."""

from typing import Literal

from pydantic import BaseModel, Field


class SecondJudge(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Section [scoring.second]: a judge that no reward reads, to see whether the policy exploits the first judge.

    Attributes:
        signal: the signal that the reward reads.
        held_out: the signal of the second judge, or of a rule; no reward may read it.
        threshold: the run stops when the mean absolute difference of both signals, over the last `window` iterations,
            is above this number, in the signals' unit.
        window: number of last iterations over which the difference is averaged.
    """

    signal: str = Field(min_length=1)
    held_out: str = Field(min_length=1)
    threshold: float = Field(0.3, gt=0)
    window: int = Field(3, ge=1)


class ScoringConfig(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Section [scoring]: what the scores of a run may cost.

    Attributes:
        answers: largest number of paid answers per run, such as those of a judge; answers from the cache are free.
        tokens: largest number of tokens per run, of the prompts and the texts of all paid answers together.
        price: largest cost of a run in USD. It counts only the answers of endpoints whose options name prices.
        concurrency: largest number of paid answers under way at the same time. Limits on tokens and price may be
            exceeded by at most this number of answers.
        at_limit: what happens at a limit. `stop` stops the run with an error message. `env_error` ends each chain that
            cannot be scored as `env_error`, so that no statistic counts the chain. Such a chain never gets the score 0.
        second: a judge that is held out.
    """

    answers: int | None = Field(None, ge=1)
    tokens: int | None = Field(None, ge=1)
    price: float | None = Field(None, gt=0)
    concurrency: int = Field(8, ge=1)
    at_limit: Literal["stop", "env_error"] = "stop"
    second: SecondJudge | None = None
