"""Train, eval and test goals that share neither a product nor an instruction."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from agentrl.envs.webshop.config import Config
from agentrl.envs.webshop.goals import Goals
from agentrl.envs.webshop.market import Market, open_market

TEST, EVAL = 500, 1000  # goals of the original's test and eval splits; train is the rest


class Splits(NamedTuple):
    """Goal indices, ascending. `dropped`: number of goals left out of eval or train, because they share a product or an
    instruction with test or eval."""

    train: np.ndarray
    eval: np.ndarray
    test: np.ndarray
    dropped: int


def sizes(goals: Goals) -> tuple[int, int]:
    """Numbers of goals in the test and eval ranges.

    Human goals: the original's numbers, or a fifth and a tenth of the goals if there are fewer than 6000. Synthetic
    goals: verl-agent's 500 for test (at most a fifth of the goals), and none for eval. These numbers are small, because
    a test goal removes all goals of its product from training, and a product has many synthetic goals.
    """
    n = len(goals)
    if goals.mode == "synthetic":
        return min(TEST, n // 5), 0
    return (TEST, EVAL) if n >= 4 * (TEST + EVAL) else (n // 5, n // 10)


def split(goals: Goals, test: int, evaluation: int) -> Splits:
    """Cut the shuffled goals at `test` and `test + evaluation`, as the original does, then drop from the later parts
    every goal that shares a product or an instruction (without its price clause) with a goal of an earlier part."""
    # Limit: puts every goal into words, about 10 microseconds each; synthetic goals of the full catalogue take minutes.
    used: set[tuple[str, object]] = set()
    parts: list[list[int]] = []
    for first, end in ((0, test), (test, test + evaluation), (test + evaluation, len(goals))):
        marks = [(i, (("product", goals.variant(i).product), ("wish", goals[i].wish))) for i in range(first, end)]
        kept = [(i, mark) for i, mark in marks if used.isdisjoint(mark)]
        used.update(key for _, mark in kept for key in mark)
        parts.append([i for i, _ in kept])
    found = [np.array(part, np.int64) for part in parts]
    return Splits(found[2], found[1], found[0], len(goals) - sum(map(len, found)))


@lru_cache(maxsize=4)
def _splits(market: Market) -> Splits:
    return split(market.goals, *sizes(market.goals))


def goal_numbers(config: Config) -> np.ndarray:
    """[n] int64, the goals of a configuration's split and levels, ascending."""
    market = open_market(config)
    if config.split == "all":
        numbers = np.arange(len(market.goals))  # [G]
    else:
        numbers = getattr(_splits(market), config.split)  # [n]
    if config.levels:
        chosen: tuple[str, ...] = config.levels
        stock, goals = market.catalogue.products, market.goals
        keep = [stock[goals.variant(i).product].level in chosen for i in numbers.tolist()]
        numbers = numbers[np.array(keep, bool)]  # [n]
    return numbers
