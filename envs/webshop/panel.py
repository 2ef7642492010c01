"""The environment's tasks: goals by key."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from agentrl.envs.webshop.config import Config
from agentrl.envs.webshop.market import Market, open_market
from agentrl.envs.webshop.splits import goal_numbers
from agentrl.types import Task

ENV = "webshop"
LEAK = "its published protocol draws train and test from differently shuffled goals and so leaks; this split does not"


class Tasks(Sequence[Task]):
    """The goals of a configuration's split, in final order."""

    def __init__(self, config: Config) -> None:
        self._market, self._seed, self._numbers = open_market(config), config.session_seed, goal_numbers(config)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, i: int) -> Task:  # type: ignore[override]
        return make_task(self._market, int(self._numbers[i]), self._seed)


def make_task(market: Market, number: int, seed: int) -> Task:
    """The task of one goal; the task's seed is the seed of random searches."""
    goal = market.goals[number]
    product = market.catalogue.products[goal.product]
    return Task(
        key=f"{market.catalogue.name}/{goal.key}",
        env=ENV,
        seed=seed,
        params={"goal": number, "kind": product.level or product.category},
    )


def find(config: Config, key: str) -> Task:
    """The task of a key in any split; ValueError if no goal has it."""
    market = open_market(config)
    number = _numbers_by_key(market).get(key)
    if number is None:
        raise ValueError(f"no goal has the key {key!r} under this configuration: check data, goals and num_products")
    return make_task(market, number, config.session_seed)


@lru_cache(maxsize=4)
def _numbers_by_key(market: Market) -> Mapping[str, int]:
    return {f"{market.catalogue.name}/{market.goals[i].key}": i for i in range(len(market.goals))}


def benchmark(config: Config) -> str:
    """The name under which results are reported: data, goals, split, and the tagger of the nouns."""
    market = open_market(config)
    numbers = goal_numbers(config)
    size = len(market.catalogue.products)
    name = f"{market.catalogue.name} ({size} products, {config.goals} goals, price seed {config.price_seed})"
    levels = f" {'+'.join(config.levels)}" if config.levels else ""
    text = f"{name}, {config.split}{levels} split of {len(numbers)} goals, nouns: {market.tagger}"
    if config.preset == "verl_agent":
        text += f"; preset verl_agent: {LEAK}"
    elif config.preset != "none":
        text += f"; preset {config.preset}"
    return text
