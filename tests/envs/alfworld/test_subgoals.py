"""The sub-goal reward: worked by hand for each shape of task, and what no play can do with it."""

import random
from importlib.util import find_spec

import pytest

from agentrl.envs import alfworld
from agentrl.envs.alfworld.subgoals import SUBGOALS
from tests.envs.alfworld.small import HOT_APPLE, LOOK_AT_MUG, MUG_ON_COUNTER, TWO_APPLES, bring, kitchen, save

SIX = tuple(SUBGOALS)


def opened(folder, goal, **options):
    """An environment on the kitchen that pays 0.25 a sub-goal, and its task."""
    config = alfworld.Config(games=str(save(folder / "a" / "b", kitchen(goal))), subgoal_reward=0.25, **options)
    return alfworld.make(config), alfworld.tasks(config)[0]


def rewards(env, task, walk):
    """The reward of each line of a walk."""
    env.reset(task)
    return [env.step(line.strip()).reward for line in walk.strip().splitlines()]


def test_heating_by_hand(tmp_path):
    walk = """
        go to countertop 1
        take knife 1 from countertop 1
        move knife 1 to countertop 1
        take apple 2 from countertop 1
        go to fridge 1
        go to microwave 1
        heat apple 2 with microwave 1
        heat apple 2 with microwave 1
        go to fridge 1
        open fridge 1
        move apple 2 to fridge 1
        take apple 2 from fridge 1
        move apple 2 to fridge 1
    """
    # The knife is not asked for. Taking an apple, heating it, and standing with it hot before the open fridge pay once
    # each: the closed fridge, and the apple at the fridge while still cold, do not. The win pays 1 and the last
    # sub-goal; undone it takes back the 1 alone, and done again it pays the 1 alone.
    env, task = opened(tmp_path, HOT_APPLE)
    assert rewards(env, task, walk) == [0, 0, 0, 0.25, 0, 0, 0.25, 0, 0, 0.25, 1.25, -1, 1]
    assert env.info()["subgoals"] == 4


def test_placing_by_hand(tmp_path):
    walk = """
        go to cabinet 2
        take mug 1 from cabinet 2
        move mug 1 to cabinet 2
        take mug 1 from cabinet 2
        go to countertop 1
        go to drawer 1
        go to countertop 1
        move mug 1 to countertop 1
    """
    # Taking and reaching pay the first time only.
    env, task = opened(tmp_path, MUG_ON_COUNTER)
    assert rewards(env, task, walk) == [0, 0.25, 0, 0, 0.25, 0, 0, 1.25]


def test_looking_by_hand(tmp_path):
    walk = """
        go to drawer 1
        go to cabinet 2
        take mug 1 from cabinet 2
        go to drawer 1
        use desklamp 1
    """
    # The lamp in the closed drawer counts as reached with the mug in hand only; it can be used there.
    env, task = opened(tmp_path, LOOK_AT_MUG)
    assert rewards(env, task, walk) == [0, 0, 0.25, 0.25, 1.25]


def test_placing_two_by_hand(tmp_path):
    moved = kitchen(
        TWO_APPLES,
        less="inReceptacle Apple_bar_1 CounterTop_bar_1 objectAtLocation Apple_bar_1 loc_bar_4",
        more="inReceptacle Apple_bar_1 Drawer_bar_1 objectAtLocation Apple_bar_1 loc_bar_6",
    )
    config = alfworld.Config(games=str(save(tmp_path / "a" / "b", moved)), subgoal_reward=0.25)
    env, task = alfworld.make(config), alfworld.tasks(config)[0]
    walk = """
        go to drawer 1
        open drawer 1
        take apple 2 from drawer 1
        go to countertop 1
        move apple 2 to countertop 1
        take apple 2 from countertop 1
        move apple 2 to countertop 1
        go to fridge 1
        open fridge 1
        take apple 1 from fridge 1
        go to countertop 1
        move apple 1 to countertop 1
    """
    # Apple 2: take, reach, place. Taking the placed one again is not taking another. Apple 1: take, reach, win.
    assert rewards(env, task, walk) == [0, 0, 0.25, 0.25, 0.25, 0, 0, 0, 0, 0.25, 0.25, 1.25]


def test_what_is_done_already_is_paid_with_the_step_that_reveals_it(tmp_path):
    # An apple lies on the countertop from the start, so that one more is enough. Taking apple 1 is the first sub-goal.
    # Arriving with it reaches the place (1), sees one placed (2), holds another (3), which is where it belongs (4).
    env, task = opened(tmp_path, TWO_APPLES)
    walk = """
        go to fridge 1
        open fridge 1
        take apple 1 from fridge 1
        go to countertop 1
        move apple 1 to countertop 1
    """
    assert rewards(env, task, walk) == [0, 0, 0.25, 1.0, 1.25]


@pytest.mark.parametrize("kind", SIX)
def test_no_play_earns_more_than_each_sub_goal_once(kind):
    config = alfworld.Config(level="small", task_types=(kind,), subgoal_reward=0.25, max_steps=None, seed=3)
    env, rng = alfworld.make(config), random.Random(0)
    most = 0.25 * len(SUBGOALS[kind])
    for task in alfworld.tasks(config)[:4]:
        observation, total = env.reset(task), 0.0
        for _ in range(150):
            # Mostly deeds, so that sub-goals are done and undone often; with the score's own change taken out.
            deeds = [a for a in observation.actions if not a.startswith(("go", "look", "help", "inv", "examine"))]
            choices = deeds if deeds and rng.random() < 0.7 else observation.actions
            before = env.info()["score"]
            result = env.step(rng.choice(choices))
            paid = result.reward - (result.info["score"] - before)
            assert paid >= 0
            total += paid
            observation = result.observation
        assert total <= most
        assert total == pytest.approx(0.25 * env.info()["subgoals"])


@pytest.mark.parametrize("kind", SIX)
def test_every_win_of_a_task_type_earns_the_same(kind):
    config = alfworld.Config(level="medium", task_types=(kind,), subgoal_reward=0.1)
    env = alfworld.make(config)
    for name in ("oracle", "expert", "wander:0.3,0.1"):
        player = alfworld.expert(env, name, 1)
        for task in alfworld.tasks(config)[:3]:
            observation, total, result = env.reset(task), 0.0, None
            player.reset(task)
            while result is None or not (result.terminated or result.truncated):
                result = env.step(player.act(observation).action)
                observation, total = result.observation, total + result.reward
            if result.terminated:
                assert total == pytest.approx(1 + 0.1 * len(SUBGOALS[kind]))


def test_off_it_changes_nothing():
    plain, paid = (alfworld.Config(level="medium", subgoal_reward=reward) for reward in (0.0, 0.1))
    task = alfworld.tasks(plain)[3]
    one, other = alfworld.make(plain), alfworld.make(paid)
    assert one.reset(task) == other.reset(task)
    player = alfworld.expert(one, "oracle", 0)
    player.reset(task)
    result = None
    while result is None or not result.terminated:
        action = player.act(one.observation()).action
        result, beside = one.step(action), other.step(action)
        assert beside.observation == result.observation
        assert beside.reward >= result.reward
        assert {**result.info, "subgoals": beside.info["subgoals"]} == beside.info
        assert result.reward == result.terminated


def test_a_snapshot_carries_what_was_counted(tmp_path):
    env, task = opened(tmp_path, MUG_ON_COUNTER)
    rewards(env, task, "go to cabinet 2\n take mug 1 from cabinet 2")
    snapshot = env.snapshot()
    other = alfworld.make(alfworld.Config(games=str(tmp_path), subgoal_reward=0.25))
    other.restore(snapshot)
    for command in ("move mug 1 to cabinet 2", "take mug 1 from cabinet 2"):
        assert other.step(command).reward == 0
    assert other.step("go to countertop 1").reward == 0.25


def test_a_goal_of_another_shape_says_what_to_do(tmp_path):
    sliced = bring("(inReceptacle ?o ?r) (objectType ?o AppleType) (receptacleType ?r FridgeType) (isSliced ?o)")
    env, task = opened(tmp_path, sliced)
    with pytest.raises(ValueError, match="set subgoal_reward=0"):
        env.reset(task)


@pytest.mark.skipif(find_spec("textworld") is None, reason="needs textworld[pddl]")
@pytest.mark.parametrize("goal", [HOT_APPLE, TWO_APPLES, LOOK_AT_MUG])
def test_the_genuine_engine_pays_the_same(tmp_path, goal):
    native, task = opened(tmp_path, goal, game_engine="native")
    genuine, _ = opened(tmp_path, goal, game_engine="textworld")
    assert genuine.reset(task) == native.reset(task)
    player = alfworld.expert(native, "oracle", 0)
    player.reset(task)
    total = 0.0
    while not native.player.won:
        action = player.act(native.observation()).action
        result = native.step(action)
        assert genuine.step(action) == result
        total += result.reward
    genuine.close()
    assert total > 1.5
