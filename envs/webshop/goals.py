"""Prices and goals, drawn in the original's order from a random generator, which the original does not seed.

The price seed decides the sampled prices and the price ceilings. The goal seed (233 in the original) decides the order
of the goals.
"""

import math
import random
from array import array
from bisect import bisect, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np

from agentrl.envs.webshop.products import Product

CEILINGS = tuple(10.0 * i for i in range(1, 100))
NO_CEILING = 1000000
NO_INSTRUCTION, UNLISTED, NO_ATTRIBUTES = -1, -2, -3  # instead of a number of synthetic goals

Mode = Literal["human", "synthetic"]


@dataclass(frozen=True, kw_only=True, eq=False)
class GoalColumns:
    """What goals are drawn from, without the products themselves.

    Attributes:
        low, high: [P] float64 ends of the price range; high is NaN where there is one price.
        wishful: [H] int64, ascending, the products with human instructions.
        variants: [P] int64, number of synthetic goals of each product; a negative number says why there are none.
        weight: [P] float64, sampling weight of each synthetic goal of a product.
    """

    low: np.ndarray
    high: np.ndarray
    wishful: np.ndarray
    variants: np.ndarray
    weight: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What to buy.

    Attributes:
        key: a name that seeds do not change: mode, ASIN, and the goal's number among the product's goals.
        product: index of the product for which the goal was written.
        instruction: the text for the shopper, with the price clause.
        wish: the instruction without its price clause (what splits must not share).
        options: values (human) or group -> value (synthetic).
    """

    key: str
    product: int
    instruction: str
    wish: str
    attributes: tuple[str, ...]
    options: tuple[str, ...] | Mapping[str, str]
    price_upper: float


class Variant(NamedTuple):
    """A goal without its words: a product, the number of its instruction or option combination, and the ceiling."""

    product: int
    number: int
    price_upper: float


class GoalBook(Protocol):
    """Goals in the order they were made, before shuffling."""

    def __len__(self) -> int: ...

    def variant(self, i: int) -> Variant:
        """Goal i without its words."""
        ...

    def weight(self, i: int) -> float:
        """The sampling weight of goal i."""
        ...


def columns(products: Iterable[Product]) -> GoalColumns:
    """The goal columns of a catalogue, in one pass."""
    collector = ColumnCollector()
    for product in products:
        collector.add(product)
    return collector.done()


class ColumnCollector:
    """Gathers `GoalColumns` product by product."""

    def __init__(self) -> None:
        self.low, self.high, self.wishful, self.variants = array("d"), array("d"), array("q"), array("q")
        self._asked: dict[int, tuple[str, ...]] = {}
        self._uses: Counter[str] = Counter()

    def add(self, product: Product) -> None:
        """The next product of the catalogue."""
        number = len(self.low)
        self.low.append(product.prices[0])
        self.high.append(product.prices[1] if len(product.prices) > 1 else math.nan)
        if product.wishes:
            self.wishful.append(number)
        count = variants(product)
        self.variants.append(count)
        if count > 0:
            self._asked[number] = product.instruction_attributes
            for attribute in product.instruction_attributes:
                self._uses[attribute] += count

    def done(self) -> GoalColumns:
        """The columns."""
        weight = np.zeros(len(self.low))  # [P]
        for number, attributes in self._asked.items():
            weight[number] = sum(1.0 / self._uses[a] for a in attributes) / len(attributes)
        return GoalColumns(
            low=np.array(self.low, np.float64),
            high=np.array(self.high, np.float64),
            wishful=np.array(self.wishful, np.int64),
            variants=np.array(self.variants, np.int64),
            weight=weight,
        )


def variants(product: Product) -> int:
    """How many synthetic goals a product makes, or why none (negative)."""
    if not product.listed:
        return UNLISTED
    if product.instruction is None:
        return NO_INSTRUCTION
    if not product.instruction_attributes:
        return NO_ATTRIBUTES
    return math.prod(len(values) for values in product.options.values())


def sample_prices(columns: GoalColumns, rng: random.Random) -> np.ndarray:
    """[P] float64: one price per product, in catalogue order; only ranges draw a random number."""
    price = columns.low.copy()  # [P]
    for i in np.flatnonzero(~np.isnan(columns.high)).tolist():
        price[i] = rng.uniform(float(columns.low[i]), float(columns.high[i]))
    return price


def draw_ceiling(price: float, rng: random.Random) -> float:
    """One of the second to fourth ceilings above the price; no ceiling (and no draw) near the end of the scale."""
    above = CEILINGS[bisect_right(CEILINGS, price) :][:4]
    return sorted(rng.sample(above, 2))[1] if len(above) >= 2 else NO_CEILING


def price_clause(price_upper: float) -> str:
    """The end of an instruction, which states the price ceiling; "" if there is none."""
    return "" if price_upper == NO_CEILING else f", and price lower than {price_upper:.2f} dollars"


class HumanGoals:
    """Goals written by people: one goal per instruction that names attributes."""

    def __init__(
        self, columns: GoalColumns, products: Sequence[Product], price: np.ndarray, rng: random.Random
    ) -> None:
        self._variants: list[Variant] = []
        self.skipped = 0
        for product in columns.wishful.tolist():
            for number, wish in enumerate(products[product].wishes):
                if wish.attributes:
                    self._variants.append(Variant(product, number, draw_ceiling(float(price[product]), rng)))
                else:
                    self.skipped += 1

    def __len__(self) -> int:
        return len(self._variants)

    def variant(self, i: int) -> Variant:
        """Goal i without its words."""
        return self._variants[i]

    def weight(self, i: int) -> float:
        """1 for every goal."""
        return 1.0


class SyntheticGoals:
    """Goals made from a product's instruction: one goal per combination of its option values."""

    def __init__(self, columns: GoalColumns, price: np.ndarray, rng: random.Random, *, strict: bool) -> None:
        faulty = np.flatnonzero(columns.variants < NO_INSTRUCTION)
        if strict and len(faulty):
            first = int(faulty[0])
            missing = columns.variants[first] == UNLISTED
            lack = "is missing from the attribute file" if missing else "names no attributes"
            raise ValueError(
                f"product number {first} {lack}, on which synthetic goals of the original fail: "
                "complete the file, use goals=human, or set strict=false to leave such products out"
            )
        own = np.flatnonzero(columns.variants >= 0)  # [Q] products with an instruction
        self._products = own
        self._ceilings = np.array([draw_ceiling(float(price[i]), rng) for i in own.tolist()])  # [Q]
        self._ends = np.cumsum(columns.variants[own])  # [Q]
        self._weight = columns.weight

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def variant(self, i: int) -> Variant:
        """Goal i without its words."""
        at = int(np.searchsorted(self._ends, i, side="right"))
        start = int(self._ends[at - 1]) if at else 0
        ceiling = float(self._ceilings[at])
        return Variant(int(self._products[at]), i - start, NO_CEILING if ceiling == NO_CEILING else ceiling)

    def weight(self, i: int) -> float:
        """The sampling weight of goal i: goals with rare attributes weigh more."""
        return float(self._weight[self.variant(i).product])


class Goals(Sequence[Goal]):
    """Goals in their final order. A goal's words are put together when it is asked for."""

    def __init__(self, mode: Mode, book: GoalBook, products: Sequence[Product], order: Sequence[int]) -> None:
        self.mode, self._book, self._products, self._order = mode, book, products, order

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, i: int) -> Goal:  # type: ignore[override]
        variant = self.variant(i)
        product = self._products[variant.product]
        return (_human if self.mode == "human" else _synthetic)(product, variant)

    def __iter__(self) -> Iterator[Goal]:
        return (self[i] for i in range(len(self)))

    def variant(self, i: int) -> Variant:
        """Goal i without its words."""
        if not 0 <= i < len(self._order):
            raise ValueError(f"goal {i} does not exist: the {self.mode} goals are numbered 0 to {len(self._order) - 1}")
        return self._book.variant(self._order[i])

    def draw(self, rng: random.Random) -> int:
        """A goal index by weight, as the original draws one when no index is given."""
        return _draw(self.cumulative_weights(), rng)

    def cumulative_weights(self) -> list[float]:
        """Running sums of the weights, from 0 on: one number more than there are goals."""
        return [0.0, *np.cumsum([self._book.weight(i) for i in self._order]).tolist()]


def _draw(cumulative: Sequence[float], rng: random.Random) -> int:
    return min(bisect(cumulative, rng.uniform(0, cumulative[-1])), len(cumulative) - 2)


def _human(product: Product, variant: Variant) -> Goal:
    wish = product.wishes[variant.number]
    words = wish.instruction.strip(".")
    return Goal(
        key=f"human/{product.asin}/{variant.number}",
        product=variant.product,
        instruction=words + price_clause(variant.price_upper),
        wish=words,
        attributes=wish.attributes,
        options=wish.options,
        price_upper=variant.price_upper,
    )


def _synthetic(product: Product, variant: Variant) -> Goal:
    options = _combination(product.options, variant.number)
    listed = ", and ".join(f"{name}: {value}" for name, value in options.items())
    words = f"{product.instruction}{' with ' + listed if listed else ''}"
    return Goal(
        key=f"synthetic/{product.asin}/{variant.number}",
        product=variant.product,
        instruction=words + price_clause(variant.price_upper),
        wish=words,
        attributes=product.instruction_attributes,
        options=options,
        price_upper=variant.price_upper,
    )


def _combination(groups: Mapping[str, tuple[str, ...]], number: int) -> dict[str, str]:
    """Entry `number` of the Cartesian product of all groups: names sorted, the last group varying fastest."""
    chosen = {}
    for name in sorted(groups, reverse=True):
        number, at = divmod(number, len(groups[name]))
        chosen[name] = groups[name][at]
    return dict(reversed(chosen.items()))


def shuffled(mode: Mode, book: GoalBook, products: Sequence[Product], seed: int, limit: int = -1) -> Goals:
    """The goals in their final order.

    Args:
        mode: human or synthetic.
        book: the goals as made.
        products: the catalogue.
        seed: the seed of the shuffle.
        limit: how many to keep, drawn by weight without replacement; -1 keeps all.
    """
    rng = random.Random(seed)
    order = array("q", range(len(book)))
    rng.shuffle(order)
    goals = Goals(mode, book, products, order)
    if not -1 < limit < len(order):
        return goals
    cumulative = goals.cumulative_weights()
    kept: dict[int, None] = {}
    while len(kept) < limit:
        kept.setdefault(_draw(cumulative, rng))
    return Goals(mode, book, products, array("q", (order[i] for i in kept)))
