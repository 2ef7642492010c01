"""Two-level advantages: turns inside segments, and segments.

Formula: GAE of turns on `r + gamma V_low(next) - V_low` inside a segment, and GAE of segments on `sum over i of gamma^i
r_i + gamma^L V_high(next start) - V_high(start)`, for a segment of L turns.

Source: HiPER, arXiv:2602.16165, and its released code (compute_hae_advantage). A step with `segment_start`, and the
first step of an episode, begins a segment. On the low level, the value after the last turn of a segment is V_high of
the next segment's start, and GAE adds nothing from the next segment. On the high level, GAE adds the next segment's
advantage times gamma^L lam_segment. The column `advantage` is the advantage of each turn on the low level. The column
`advantage_high` is the advantage of a segment on the high level; it is on the first step of the segment, and 0 on other
steps.

The steps may say to which part of an answer each token belongs (`token_level` of `agentrl.algorithms._subgoals`). Then
action tokens get `advantage` of their step. The sub-goal tokens of a segment's first step get `advantage_high` of this
step, and with `switch=high` so do the switch tokens of this step. All other tokens get 0. Without `token_level`, and in
episodes that share steps, every token gets `advantage` of its step. The released code gives switch tokens the advantage
of a third critic, which judges whether to end the segment, or the advantage of the segment (`assign_high_to_switch`);
there is no third critic here.

After the end of a truncated episode the value is 0 (`bootstrap=none`, the released default), the current value of each
level (`current`, an option of the released code) or the column `next_value` (`value`). `whiten` takes the population
variance of each level; on the high level only the starts of segments count. The called chains of a program's episode
count once together (`agentrl.graph.step_votes`). Returns are not whitened.
"""

from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from agentrl.algorithms._subgoals import ACTION, SUBGOAL, SWITCH
from agentrl.algorithms.credit.turn_ppo import bootstrap_value
from agentrl.credit import Credit, Options
from agentrl.graph import StepGraph, broadcast, following, scan, step_votes, whiten

PAPER = "HiPER, arXiv:2602.16165"
NEEDS = ("value", "value_high")
READS = ("segment_start",)


class Config(Options, frozen=True):
    """gamma: discount per turn. lam: decay of GAE per turn, inside a segment. lam_segment: decay of GAE per segment.
    bootstrap: the value after the end of a truncated episode: 0 (none), the values of the last turn and of the last
    segment (current), or the column next_value (value). switch: on a segment's first step, the switch tokens get the
    advantage of the segment (high), or 0 (none). whiten: bring the advantages of each level and agent to mean 0 and
    standard deviation 1. preset: has no effect on this method.
    """

    gamma: float = Field(0.95, ge=0, le=1)
    lam: float = Field(0.95, ge=0, le=1)
    lam_segment: float = Field(0.95, ge=0, le=1)
    whiten: bool = False
    bootstrap: Literal["none", "current", "value"] = "none"
    switch: Literal["high", "none"] = "high"


def credit(graph: StepGraph, config: Config) -> Credit:
    """The advantages of both levels; the column `advantage` is that of the low level."""
    start = (graph.parent < 0) | graph.column("segment_start")  # [N]
    ends = following(start.astype(np.float64), graph.parent) > 0  # [N] the next row begins a segment
    high = graph.column("value_high")  # [N]
    own_high = high[start][np.cumsum(start) - 1]  # [N] V_high of the row's segment
    low_return, a_low = low_level(graph, config, ends)
    a_high = high_level(graph, config, start, ends, own_high)  # [N]
    high_return = np.where(start, a_high + high, 0.0)  # [N]
    if config.whiten:
        weight = step_votes(graph, graph.agent)  # [N]
        a_low = whiten(a_low, weight, std="population", key=graph.agent)
        a_high[start] = whiten(a_high[start], weight[start], std="population", key=graph.agent[start])
    return Credit.of(
        a_low,
        token_advantage=by_level(graph, config, a_low, a_high) if graph.has_token_column("token_level") else None,
        returns=low_return,
        parts={"return": low_return, "advantage_high": a_high, "return_high": high_return},
    )


def by_level(graph: StepGraph, config: Config, a_low: np.ndarray, a_high: np.ndarray) -> np.ndarray:
    """[S] the advantage of the level that each token belongs to."""
    assert graph.tokens is not None
    level = graph.token_column("token_level")  # [S]
    row = broadcast(np.arange(len(graph)), graph.tokens.offsets)  # [S]
    high = (level == SUBGOAL) | ((level == SWITCH) & (config.switch == "high"))  # [S]
    return np.where(level == ACTION, a_low[row], np.where(high, a_high[row], 0.0))


def beyond(graph: StepGraph, config: Config, current: np.ndarray) -> np.ndarray:
    """[N] value after an episode's last row: 0, or what `bootstrap` says if it was truncated."""
    if config.bootstrap == "current":
        return np.where(graph.last & graph.truncated, current, 0.0)
    return bootstrap_value(graph, config.bootstrap, "hiper bootstrap=value")


class Level(NamedTuple):
    """[N] each."""

    returns: np.ndarray
    advantage: np.ndarray


def low_level(graph: StepGraph, config: Config, ends: np.ndarray) -> Level:
    """Turn GAE inside each segment."""
    low, high = graph.column("value"), graph.column("value_high")  # [N]
    inside = following(low, graph.parent, beyond(graph, config, low))  # [N]
    after = np.where(ends, following(high, graph.parent), inside)  # [N]
    delta = graph.reward + config.gamma * after - low  # [N]
    advantage = scan(delta, config.gamma * config.lam * ~ends, graph.parent)  # [N]
    return Level(advantage + low, advantage)


def high_level(
    graph: StepGraph, config: Config, start: np.ndarray, ends: np.ndarray, own_high: np.ndarray
) -> np.ndarray:
    """[N] GAE over segments on their first rows, 0 elsewhere."""
    none_inside = following(np.zeros(len(graph)), graph.parent, beyond(graph, config, own_high))  # [N]
    after = np.where(ends, following(own_high, graph.parent), none_inside)  # [N] on a segment's last row
    segment = scan(graph.reward + config.gamma * after, config.gamma * ~ends, graph.parent)  # [N]
    delta = np.where(start, segment - own_high, 0.0)  # [N]
    carry = config.gamma * np.where(ends, config.lam_segment, 1.0)  # [N] gamma^L lam_segment, row by row
    return np.where(start, scan(delta, carry, graph.parent), 0.0)
