"""Two-level advantages: turns inside segments, and segments.

Formula: GAE of turns on `r + gamma V_low(next) - V_low` inside a segment, and GAE of segments on `sum over i of gamma^i
r_i + gamma^L V_high(next start) - V_high(start)`.

Source: HiPER, arXiv:2602.16165, official code (compute_hae_advantage). A row with `segment_start` (and an episode's
first row) begins a segment. Low level, per turn: delta = r + gamma V_low(next) - V_low inside a segment, with
V_high(next segment's start) beyond its end, where the recursion is cut. High level, per segment of L turns: delta = sum
gamma^i r_i + gamma^L V_high(next start) - V_high(start), carried on by gamma^L lam_segment. `advantage` belongs to the
action tokens of every turn, `advantage_high` to the subgoal tokens of segment starts (0 elsewhere). Where the steps say
which token is which (`token_level` of `agentrl.algorithms._subgoals`), tokens are credited so: action tokens get the
low advantage; sub-goal tokens of segment starts, and with `switch=high` also their switch tokens, get the high one; all
other tokens get none. Where the steps do not say it, every token has the low advantage of its turn, also on trees. The
released code gives the switch the advantage of a third critic, on whether to terminate, or, with
`assign_high_to_switch`, the high one; there is no third critic here. Beyond the end of a truncated episode the value is
0 (`bootstrap=none`, the official default), the current value of each level (`current`, the official option) or
`next_value` (`value`). `whiten`: population variance, separately for each level, the high level over segment starts
only; returns are not whitened.
"""

from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from agentrl.algorithms._subgoals import ACTION, SUBGOAL, SWITCH
from agentrl.algorithms.credit.turn_ppo import bootstrap_value
from agentrl.credit import Credit, Options
from agentrl.graph import StepGraph, broadcast, following, scan, whiten

PAPER = "HiPER, arXiv:2602.16165"
NEEDS = ("value", "value_high")
READS = ("segment_start",)


class Config(Options, frozen=True):
    """gamma: discount per turn. lam: decay per turn. lam_segment: decay per segment. bootstrap: the value beyond the
    end of a truncated episode: 0 (none), the current value of each level, or next_value. switch: the advantage of the
    switch's tokens at segment starts.
    """

    gamma: float = Field(0.95, ge=0, le=1)
    lam: float = Field(0.95, ge=0, le=1)
    lam_segment: float = Field(0.95, ge=0, le=1)
    whiten: bool = False
    bootstrap: Literal["none", "current", "value"] = "none"
    switch: Literal["high", "none"] = "high"


def credit(graph: StepGraph, config: Config) -> Credit:
    """Both levels; `advantage` is the low one."""
    start = (graph.parent < 0) | graph.column("segment_start")  # [N]
    ends = following(start.astype(np.float64), graph.parent) > 0  # [N] the next row begins a segment
    high = graph.column("value_high")  # [N]
    own_high = high[start][np.cumsum(start) - 1]  # [N] V_high of the row's segment
    low_return, a_low = low_level(graph, config, ends)
    a_high = high_level(graph, config, start, ends, own_high)  # [N]
    high_return = np.where(start, a_high + high, 0.0)  # [N]
    if config.whiten:
        a_low = whiten(a_low, graph.weight, std="population", key=graph.agent)
        a_high[start] = whiten(a_high[start], graph.weight[start], std="population", key=graph.agent[start])
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
