"""The section [scoring] of a recipe, which limits the costs of scores and names the held-out judge."""

from typing import Literal

from pydantic import BaseModel, Field


class SecondJudge(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Section [scoring.second]: a judge that no reward reads, to see whether the policy exploits the first judge.

    Attributes:
        signal: the signal that the reward reads.
        held_out: the signal of the second judge, or of a rule; no reward may read it.
        threshold: the run stops if the mean absolute difference of the two signals, over the last `window` iterations,
            is above this number. Its unit is that of the signals.
        window: number of last iterations over which the difference is averaged.
    """

    signal: str = Field(min_length=1)
    held_out: str = Field(min_length=1)
    threshold: float = Field(0.3, gt=0)
    window: int = Field(3, ge=1)


class ScoringConfig(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Section [scoring]: limits on the costs of the scores of a run.

    Attributes:
        answers: largest number of paid answers per run, such as a judge's answers; answers from the cache are free.
        tokens: largest number of tokens per run, over the prompts and the texts of all paid answers.
        price: largest price of all paid answers of a run, in USD. Only endpoints whose options name prices count.
        concurrency: largest number of paid answers under way at the same time. Limits on tokens and price may be
            exceeded by the costs of at most this number of answers.
        at_limit: what happens at a limit. `stop` stops the run with an error message. `env_error` ends each chain that
            cannot be scored as `env_error`, so that no statistic counts the chain. Such a chain never gets the score 0.
        second: a second judge, which no reward reads; None for no second judge.
    """

    answers: int | None = Field(None, ge=1)
    tokens: int | None = Field(None, ge=1)
    price: float | None = Field(None, gt=0)
    concurrency: int = Field(8, ge=1)
    at_limit: Literal["stop", "env_error"] = "stop"
    second: SecondJudge | None = None
