"""Prices, ceilings, goals and their order."""

import itertools
import random
from bisect import bisect

import numpy as np
import pytest

from agentrl.envs.webshop import catalogue, goals
from agentrl.envs.webshop.goals import NO_CEILING, HumanGoals, SyntheticGoals, draw_ceiling, sample_prices, shuffled


def test_prices_draw_in_catalogue_order(raw):
    shop, rng = catalogue.read(raw), random.Random(5)
    price = sample_prices(shop.columns, random.Random(5))
    np.testing.assert_array_equal(price, [20.0, rng.uniform(10.0, 30.0), 985.0])


def test_a_ceiling_is_the_second_to_fourth_above_the_price():
    rng = random.Random(0)
    assert {draw_ceiling(20.0, rng) for _ in range(200)} == {40.0, 50.0, 60.0}
    assert {draw_ceiling(19.99, rng) for _ in range(200)} == {30.0, 40.0, 50.0}
    assert {draw_ceiling(975.0, rng) for _ in range(50)} == {990.0}
    state = rng.getstate()
    assert draw_ceiling(980.0, rng) == NO_CEILING and draw_ceiling(2000.0, rng) == NO_CEILING
    assert rng.getstate() == state  # no draw where there is no choice


def test_human_goals_by_hand(raw):
    shop, rng = catalogue.read(raw), random.Random(3)
    book = HumanGoals(shop.columns, shop.products, np.array([20.0, 15.0, 985.0]), random.Random(3))
    ceiling = sorted(rng.sample([30.0, 40.0, 50.0, 60.0], 2))[1]
    made = goals.Goals("human", book, shop.products, [0, 1])
    assert book.skipped == 1
    assert made[0].instruction == f"i want a washable rug in wine red, and price lower than {ceiling:.2f} dollars"
    assert made[0].key == "human/B0RED/0" and made[0].options == ("wine red", "large")
    assert made[1].instruction == made[1].wish == "tea without sugar"
    assert made[1].price_upper == NO_CEILING


def test_synthetic_goals_are_the_product_of_sorted_groups(raw):
    shop = catalogue.read(raw)
    made = goals.Goals(
        "synthetic", SyntheticGoals(shop.columns, np.array([20.0, 15.0, 985.0]), random.Random(3), strict=True),
        shop.products, range(5),
    )  # fmt: skip
    pairs = list(itertools.product(("wine red", "rose | gold"), ("large", "color")))
    assert [made[i].options for i in range(4)] == [{"color": c, "size": s} for c, s in pairs]
    assert made[2].wish == "Find me washable rugs with color: rose | gold, and size: large"
    assert len({made[i].price_upper for i in range(4)}) == 1  # one draw a product
    assert made[4].options == {} and made[4].instruction == "Find me tea"
    # machine washable is asked by 4 + 1 goals, sugar free by 1: weights 1/5 and (1 + 1/5) / 2
    np.testing.assert_allclose(shop.columns.weight, [0.2, 0.0, 0.6])


def test_an_unlisted_product_fails_synthetic_goals_unless_lenient(raw, writer, row_of):
    folder = writer(raw, [row_of("B0RED", "a"), row_of("B9", "b")])
    shop = catalogue.read(folder)
    with pytest.raises(ValueError, match="product number 1 is missing from the attribute file"):
        SyntheticGoals(shop.columns, np.zeros(2), random.Random(0), strict=True)
    assert len(SyntheticGoals(shop.columns, np.zeros(2), random.Random(0), strict=False)) == 1


class Weighted:
    """A book of goals of known weights."""

    def __init__(self, weights):
        self.weights = weights

    def __len__(self):
        return len(self.weights)

    def variant(self, i):
        return goals.Variant(i, 0, 10.0)

    def weight(self, i):
        return self.weights[i]


@pytest.mark.parametrize("size", [1, 2, 7, 626])
def test_the_order_is_python_s_shuffle_of_a_list(size):
    want = list(range(size))
    random.Random(233).shuffle(want)
    found = shuffled("human", Weighted([1.0] * size), [], 233)
    assert [found.variant(i).product for i in range(size)] == want


def test_a_limit_draws_by_weight_without_repetition():
    weights = [0.5, 1.0, 0.25, 5.0, 2.0]
    found = shuffled("human", Weighted(weights), [], 233, limit=3)
    order = list(range(5))
    rng = random.Random(233)
    rng.shuffle(order)
    sums, kept = [0.0, *np.cumsum([weights[i] for i in order])], []
    while len(kept) < 3:
        at = min(bisect(sums, rng.uniform(0, sums[-1])), 4)  # so the first goal is never drawn
        kept += [] if at in kept else [at]
    assert [found.variant(i).product for i in range(3)] == [order[at] for at in kept]


@pytest.mark.parametrize("index", [-1, 2, 10**9])
def test_an_unknown_goal_is_one_sentence(market, index):
    with pytest.raises(ValueError, match=f"goal {index} does not exist: the human goals are numbered 0 to 1"):
        market.goals[index]


def test_goals_can_be_gone_through(market):
    assert list(market.goals) == [market.goals[i] for i in range(len(market.goals))] and len(market.goals) > 1
