"""Budgets of an episode."""

from typing import Literal

from pydantic import BaseModel, Field

START_S = 600.0  # making an instance may read its data; a call of it may not take that long


class Limits(BaseModel, frozen=True, extra="forbid"):
    """Budgets of an episode; reaching one ends it with a status of its own.

    turns: steps. turn_tokens: sampled in one turn. episode_tokens: sampled in all. calls: tool calls; an answer that
    asks for more is not carried out and ends the episode. seconds: wall clock of the episode. call_seconds: of one
    environment call. output_chars: longest text of an observation (or of each tool's answer in it); a longer one keeps
    its head and tail, None keeps all. start_seconds: of making an environment instance, which may read its data.
    retries: new tries after an environment fault.
    fault_share: share of rollouts lost to faults above which the run stops. cut_turn: what becomes of an
    answer cut off by turn_tokens, parsed as it is or the end of the episode. concurrency: episodes in flight,
    0 for all. depth: agents called by agents called ...; an episode that calls beyond it ends.
    """

    turns: int = Field(50, ge=1)
    turn_tokens: int = Field(512, ge=1)
    episode_tokens: int | None = Field(None, ge=1)
    calls: int | None = Field(None, ge=0)
    seconds: float | None = Field(None, gt=0)
    call_seconds: float = Field(60.0, gt=0)
    output_chars: int | None = Field(16384, ge=64)
    start_seconds: float = Field(START_S, gt=0)
    retries: int = Field(1, ge=0)
    fault_share: float = Field(0.2, ge=0, le=1)
    cut_turn: Literal["parse", "end"] = "parse"
    concurrency: int = Field(0, ge=0)
    depth: int = Field(4, ge=0)
