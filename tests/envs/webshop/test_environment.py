"""The environment: determinism, snapshots, presets, splits, players."""

import pickle
import random

import pytest

from agentrl.env import Env, Snapshots
from agentrl.envs import webshop
from agentrl.envs.webshop.generate import product
from agentrl.envs.webshop.market import open_market
from agentrl.envs.webshop.splits import goal_numbers, split
from agentrl.types import Task


def drive(env, task, seed, steps=12):
    """A random episode: what was seen, done and got."""
    rng = random.Random(seed)
    observation, trace = env.reset(task), []
    for _ in range(steps):
        action = rng.choice(observation.actions or ("search[<r>]",))
        observation, *rest = env.step(action)
        trace.append((action, observation, *rest))
    return trace


@pytest.mark.parametrize("form", ["text", "text_rich", "html", "url", "brief"])
def test_equal_tasks_give_equal_episodes(form):
    config = webshop.Config(observation=form)
    env, other = webshop.make(config), webshop.make(config)
    assert isinstance(env, Env) and isinstance(env, Snapshots)
    task = webshop.tasks(config)[3]
    assert drive(env, task, 1) == drive(other, task, 1) == drive(env, task, 1)


@pytest.mark.parametrize("seed", range(8))
def test_a_snapshot_goes_on_as_the_episode_did(seed):
    config = webshop.Config(observation="text_rich", max_steps=40)
    env, other = webshop.make(config), webshop.make(config)
    drive(env, webshop.tasks(config)[seed], seed, 1 + seed % 5)
    env.step("search[<r>]")
    before, snapshot = env.observe(), pickle.loads(pickle.dumps(env.snapshot()))
    actions = ["click[next >]", "search[<r>]", *(f"click[{name}]" for name in ("next >", "< prev")), "search[red]"]
    first = [env.step(action) for action in actions]
    for instance in (env, other):
        instance.restore(snapshot)
        assert instance.observe() == before
        assert [instance.step(action) for action in actions] == first


def test_instances_are_picklable_in_the_middle_of_an_episode():
    config = webshop.Config()
    env = webshop.make(config)
    drive(env, webshop.tasks(config)[0], 5, 3)
    copy = pickle.loads(pickle.dumps(env))
    assert copy.observe() == env.observe()
    assert copy.step("search[rug]") == env.step("search[rug]")
    assert len(pickle.dumps(env)) < 100_000  # the shop stays behind


def test_step_before_reset_is_one_sentence():
    with pytest.raises(ValueError, match="call reset"):
        webshop.make(webshop.Config()).step("search[x]")


def test_the_step_limit_truncates_and_a_purchase_terminates():
    config = webshop.Config(max_steps=2)
    env = webshop.make(config)
    task = webshop.tasks(config)[0]
    env.reset(task)
    assert not env.step("nothing").truncated and env.step("nothing").truncated
    env.reset(task)
    session = env.session
    env.step(f"search[{session.market.catalogue.products[session.goal.product].title}]")
    assert not env.step(env.observe().actions[2]).terminated


def test_state_keys_tell_pages_and_selected_options_apart(shopper, raw):
    config = webshop.Config(data=str(raw), split="all", max_steps=None)
    env = webshop.make(config)
    env.reset(webshop.tasks(config)[0])

    def key(*actions):
        for action in actions:
            env.step(action)
        return env.observe().state_key

    index, results = key(), key("search[rug]")
    item, clicked = key("click[b0red]"), key("click[large]")
    assert len({index, results, item, clicked}) == 4
    assert key("click[features]", "click[< prev]") == clicked
    assert key("search[red rug]", "click[b0red]") == item
    assert key("search[rug]") == results and key("click[next >]") != results
    text = webshop.make(config.model_copy(update={"state_key": "text"}))
    assert text.reset(webshop.tasks(config)[0]).state_key == ""


def test_success_reward():
    config = webshop.Config(reward="success", success_reward=10.0, max_steps=None)
    env = webshop.make(config)
    task = webshop.tasks(config)[0]
    player = webshop.expert(env, "expert", 0)
    observation, rewards = env.reset(task), []
    player.reset(task)
    while True:
        result = env.step(player.act(observation).action)
        observation = result.observation
        rewards.append(result.reward)
        if result.terminated:
            break
    assert rewards[-1] == 10.0 and not any(rewards[:-1])
    assert result.info["success"] is True and result.info["score"] == 1.0 and result.info["r_type"] == 1.0
    assert result.info["score_x100"] == 100.0


def test_presets_fill_what_is_not_given():
    assert webshop.Config(preset="verl_agent").goals == "synthetic"
    assert webshop.Config(preset="verl_agent", goals="human").goals == "human"
    assert webshop.Config(preset="original").max_steps == 100
    gem = webshop.Config(preset="gem")
    env = webshop.make(gem)
    env.reset(webshop.tasks(gem)[0])
    assert env.step("nonsense").terminated
    resolved = webshop.Config(preset="verl_agent").model_dump()
    assert webshop.Config.model_validate(resolved).model_dump() == resolved
    with pytest.raises(ValueError, match="extra"):
        webshop.Config(gaols="human")


@pytest.mark.parametrize("goals", ["human", "synthetic"])
def test_splits_share_neither_product_nor_instruction(goals):
    config = webshop.Config(goals=goals, num_products=400)
    market = open_market(config)
    seen: dict[tuple[str, object], str] = {}
    total = 0
    for name in ("test", "eval", "train"):
        numbers = goal_numbers(config.model_copy(update={"split": name}))
        total += len(numbers)
        for number in numbers.tolist():
            goal = market.goals[number]
            for mark in (("product", goal.product), ("wish", goal.wish)):
                assert seen.setdefault(mark, name) == name
    assert len(goal_numbers(config)) > 0
    dropped = split(market.goals, *((80, 40) if goals == "human" else (500, 0))).dropped
    assert total + dropped == len(market.goals)


def test_the_test_split_is_the_start_of_the_order():
    config = webshop.Config(split="test")
    assert goal_numbers(config).tolist() == list(range(len(goal_numbers(config))))


def test_tasks_are_found_by_key():
    config = webshop.Config(split="test")
    tasks = webshop.tasks(config)
    assert webshop.find(config, tasks[7].key) == tasks[7]
    with pytest.raises(ValueError, match="no goal has the key 'x'"):
        webshop.find(config, "x")
    assert len({task.key for task in tasks}) == len(tasks)


def test_levels_select_goals():
    hard = webshop.tasks(webshop.Config(levels=("hard",)))
    assert {webshop.kind(hard[i]) for i in range(len(hard))} == {"hard"}


def test_reports_name_data_split_and_tagger():
    name = webshop.benchmark(webshop.Config(split="test"))
    assert name.startswith("webshop-gen (1000 products") and "not spaCy" in name and "test split of 200 goals" in name
    assert "leaks" in webshop.benchmark(webshop.Config(preset="verl_agent"))


def play(name, form, tasks, config):
    """Mean score and success share of a player."""
    env, scores = webshop.make(config), []
    for number, task in enumerate(tasks):
        player, observation = webshop.expert(env, name, number), env.reset(task)
        player.reset(task)
        while True:
            result = env.step(player.act(observation).action)
            observation = result.observation
            if result.terminated or result.truncated:
                break
        scores.append(result.info["score"])
    return sum(scores) / len(scores), scores.count(1.0) / len(scores)


@pytest.mark.parametrize("form", ["text", "brief"])
def test_the_expert_solves_generated_goals_and_chance_does_not(form):
    config = webshop.Config(split="test", observation=form)
    tasks = [webshop.tasks(config)[i] for i in range(60)]
    assert play("expert", form, tasks, config) == (1.0, 1.0)
    score, success = play("rule", form, tasks, config)
    assert 0.4 < score < 0.95 and success < 0.6
    assert play("random", form, tasks, config)[1] < 0.6
    with pytest.raises(ValueError, match="known are expert, careless, rule, random"):
        webshop.expert(webshop.make(config), "x", 0)


def actions_of(name, config, task, seed):
    """What a player does in one episode, with the actions that were listed at each step."""
    env = webshop.make(config)
    player, observation, done = webshop.expert(env, name, seed), env.reset(task), []
    player.reset(task)
    while True:
        done.append((player.act(observation).action, observation.actions))
        result = env.step(done[-1][0])
        observation = result.observation
        if result.terminated or result.truncated:
            return done


@pytest.mark.parametrize("form", ["text", "brief"])
def test_the_careless_player_keeps_to_listed_actions_and_repeats_itself(form):
    config = webshop.Config(split="test", observation=form)
    tasks = [webshop.tasks(config)[i] for i in range(40)]
    for task in tasks:
        done = actions_of("careless:0.5,0.7", config, task, 3)
        assert all(action in listed for action, listed in done)
        assert done == actions_of("careless:0.5,0.7", config, task, 3)
    assert any(actions_of("careless", config, task, 3) != actions_of("careless", config, task, 4) for task in tasks)


def test_carelessness_costs_success_and_only_a_wrong_product_or_a_missing_option():
    config = webshop.Config(split="test", observation="brief", levels=("medium", "hard"))
    tasks = [webshop.tasks(config)[i] for i in range(60)]
    never, some = (play(f"careless:{p},{p}", "brief", tasks, config)[1] for p in (0, 0.5))
    assert never > 0.9 and 0.05 < some < 0.5
    # It buys at once on the item page: no option is selected, and these goals ask for one at least.
    assert play("careless:0,1", "brief", tasks, config)[1] == 0.0
    for name in ("careless:2,0", "careless:0.5", "careless:a,b", "careless:0.1,nan"):
        with pytest.raises(ValueError, match="with 2 probabilities in"):
            webshop.expert(webshop.make(config), name, 0)


def test_easy_goals_are_easier_than_hard_ones_by_the_rule():
    def success(level):
        config = webshop.Config(split="train", levels=(level,))
        return play("rule", "text", [webshop.tasks(config)[i] for i in range(40)], config)[1]

    assert success("easy") > 0.8 > 0.2 > success("hard")


def test_generated_products_do_not_depend_on_the_size_of_the_shop():
    assert product(5, 0) == product(5, 0) != product(5, 1)
    small, large = (open_market(webshop.Config(num_products=n)).catalogue.products for n in (50, 90))
    assert list(small) == list(large[:50])
    assert len({p.asin for p in large}) == 90 and all(len(p.asin) == 10 for p in large)


def test_brief_places_stand_for_products():
    config = webshop.Config(observation="brief", max_steps=None)
    env = webshop.make(config)
    env.reset(webshop.tasks(config)[0])
    seen = env.step("search[table]").observation
    assert seen.actions[:2] == ("click[item 1]", "click[item 2]") and "click[item 6]" not in seen.actions
    first = env.session.market.shop.listed(env.session.state)[1]
    env.step("click[item 2]")
    assert env.session.state.product == first
    env.step("click[< prev]")
    assert not env.step("click[item 9]").info["accepted"]


def test_the_brief_task_has_a_blank_before_each_word_of_the_instruction():
    config = webshop.Config(observation="brief")
    env = webshop.make(config)
    observation = env.reset(webshop.tasks(config)[0])
    assert observation.task.startswith("find ") and env.session.goal.options[0] in observation.task


def test_an_unknown_goal_is_refused():
    env = webshop.make(webshop.Config())
    with pytest.raises(ValueError, match="goal 99999 does not exist"):
        env.reset(Task(key="x", env="webshop", params={"goal": 99999}))
