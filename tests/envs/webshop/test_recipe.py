"""The learning recipe: what it is measured on was fixed beforehand, and training sees nothing of it."""

from pathlib import Path

import pytest

from agentrl.env import tasks_of
from agentrl.env.panels import panel_hash
from agentrl.envs.webshop.market import open_market
from agentrl.settings import Settings

RECIPE = Path(__file__).parents[3] / "benchmarks" / "recipes" / "webshop-cpu.toml"
PANEL = "ea5a2c453a4f"  # of the goals that the published figures are of; another one is another benchmark


@pytest.fixture(scope="module")
def settings():
    return Settings.load(RECIPE)


def test_held_out_goals_share_neither_product_nor_instruction_with_training(settings):
    market = open_market(settings.env.config)
    assert market is open_market(settings.eval_env.config)  # one catalogue

    def marks(entry):
        goals = [market.goals[task.params["goal"]] for task in tasks_of(entry)]
        return {goal.product for goal in goals}, {goal.wish for goal in goals}

    (train_products, train_wishes), (products, wishes) = marks(settings.env), marks(settings.eval_env)
    assert train_products.isdisjoint(products) and train_wishes.isdisjoint(wishes)
    assert len(train_products) > 2000 and len(products) >= settings.tables.eval.tasks >= 200


def test_the_panel_is_the_published_one(settings):
    held_out = tasks_of(settings.eval_env)
    assert panel_hash([held_out[i].key for i in range(settings.tables.eval.tasks)]) == PANEL
    assert settings.eval_env.config.split == "test"
