"""The players: what they win, what they see, and that they repeat themselves."""

from dataclasses import replace

import numpy as np
import pytest

from agentrl.envs.alfworld.engine import Engine
from agentrl.envs.alfworld.env import AlfworldEnv
from agentrl.envs.alfworld.experts import EXPERTS, make_expert, task_words
from agentrl.envs.alfworld.explorer import read_task
from agentrl.envs.alfworld.formats import Form
from agentrl.envs.alfworld.game import TASK_TYPES, Game
from agentrl.envs.alfworld.generate import Keys, make_game
from agentrl.envs.alfworld.memory import Memory
from agentrl.envs.alfworld.oracle import plan
from agentrl.types import Observation, Task

# The words of the releases before 0.4.
OLD = Form("put", "put {o} in/on {r}", "You put the {o} in/on the {r}.", "location", None)


def old_words(game: Game) -> Game:
    return replace(game, form=OLD, cache={})


def environment(limit: int = 50, words=lambda game: game) -> AlfworldEnv:
    return AlfworldEnv(lambda task: Engine(words(make_game(task.key))), max_steps=limit)


def play(env, expert, key):
    """(won, moves) of one episode; every command must be admissible."""
    task = Task(key=key, env="alfworld")
    observation, moves = env.reset(task), []
    expert.reset(task)
    while True:
        moves.append(expert.act(observation))
        assert moves[-1].action in observation.actions
        observation, _, won, truncated, _ = env.step(moves[-1].action)
        if won or truncated:
            return won, moves


def wins(name, keys, limit=50, words=lambda game: game):
    env = environment(limit, words)
    expert = make_expert(env, name, 0)
    return sum(play(env, expert, key)[0] for key in keys) / len(keys)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        *(pytest.param(task, lambda game: game, id=f"{task}-move") for task in TASK_TYPES),
        # Of the old words only the command to put a thing differs, and one task type never puts anything.
        *(pytest.param(task, old_words, id=f"{task}-put", marks=pytest.mark.slow) for task in TASK_TYPES[:-1]),
        pytest.param(TASK_TYPES[-1], old_words, id=f"{TASK_TYPES[-1]}-put"),
    ],
)
def test_the_exploring_expert_wins_whole_scenes(task, words):
    # 95 % is promised of every task type; 60 games of each are a sample of that (200 gave 99 % or more).
    keys = Keys("full", "valid_unseen", tasks=[task], seed=21)[:60]
    assert wins("expert", keys, words=words) >= 0.95
    assert wins("oracle", keys, words=words) == 1.0


@pytest.mark.parametrize("level", ["small", pytest.param("medium", marks=pytest.mark.slow)])
def test_experts_rank_as_their_names_say(level):
    keys = Keys(level, "train", seed=22)[:240]
    expert, noisy, wander, chance = (wins(name, keys, 15) for name in ("expert", "expert-noisy", "wander", "random"))
    assert expert >= 0.95 > wander > chance and expert >= noisy > wander
    assert chance <= 0.05


@pytest.mark.parametrize("name", ["expert-noisy:0.5", "wander:0.9,0.5", "stray:0.5,0.3"])
def test_the_explorer_recovers_from_anything_random_commands_do(name):
    assert wins(name, Keys("full", "train", seed=23)[:60], limit=1000) == 1.0


@pytest.mark.parametrize("name", EXPERTS)
def test_the_same_seed_gives_the_same_moves(name):
    key = Keys("medium", seed=24)[3]
    envs = [environment(), environment()]
    one, two = (play(env, make_expert(env, name, 1), key) for env in envs)
    assert one == two


@pytest.mark.parametrize("name", ["wander", "stray", "expert-noisy", "random"])
def test_another_seed_or_task_gives_other_moves(name):
    keys = Keys("medium", seed=24)[:20]
    env = environment()
    one, two = (make_expert(env, name, seed) for seed in (1, 2))
    assert any(play(env, one, key) != play(env, two, key) for key in keys)


def test_the_explorer_sees_words_only():
    # No game is in play: observations alone lead it. The pen shall go to the shelf, so it looks elsewhere.
    expert = make_expert(environment(), "expert", 0)
    expert.reset(Task(key="no game", env="alfworld"))
    told = [
        (
            "Your task is to: put some pen on shelf.",
            ("go to bed 1", "go to drawer 1", "go to shelf 1", "look"),
        ),
        (
            "You arrive at drawer 1. The drawer 1 is closed.",
            ("examine drawer 1", "go to bed 1", "open drawer 1"),
        ),
        (
            "You open the drawer 1. The drawer 1 is open. In it, you see a pen 3.",
            ("close drawer 1", "examine drawer 1", "go to shelf 1", "take pen 3 from drawer 1"),
        ),
        ("You pick up the pen 3 from the drawer 1.", ("examine drawer 1", "examine pen 3", "go to shelf 1")),
        ("You arrive at shelf 1.", ("examine pen 3", "examine shelf 1", "move pen 3 to shelf 1")),
    ]
    done = [expert.act(Observation(text=text, actions=actions)).action for text, actions in told]
    assert done == [actions[-1] if i else "go to drawer 1" for i, (_, actions) in enumerate(told)]


def test_weights_of_random_commands():
    keys = Keys("small", seed=26)[:40]
    env = environment()
    weights = {
        name: {move.weight for key in keys for move in play(env, make_expert(env, name, 0), key)[1]}
        for name in ("wander", "expert-noisy", "expert")
    }
    assert weights == {"wander": {1.0}, "expert-noisy": {0.0, 1.0}, "expert": {1.0}}


def test_wander_slips_at_deeds_and_walks_with_its_two_probabilities():
    # A faultless twin is shown the same observations. A random command is its choice once in len(actions):
    # the share of differing moves is the probability times the mean of 1 - 1 / len(actions).
    env, task_keys = environment(), Keys("small", seed=27)[:300]
    wanderer, twin = make_expert(env, "wander", 3), make_expert(env, "expert", 3)
    differing: dict[bool, list[bool]] = {True: [], False: []}
    expected: dict[bool, list[float]] = {True: [], False: []}
    for key in task_keys:
        task = Task(key=key, env="alfworld")
        observation, over = env.reset(task), False
        wanderer.reset(task)
        twin.reset(task)
        while not over:
            own, move = twin.act(observation).action, wanderer.act(observation)
            walk = own.startswith("go to ")
            differing[walk].append(move.action != own)
            expected[walk].append((0.2 if walk else 0.6) * (1 - 1 / len(observation.actions)))
            observation, _, over, _, _ = env.step(move.action)
    for walk in (True, False):
        # Some 1,300 to 2,000 draws of standard deviation <= 0.5: 0.05 is at least 3.6 standard errors.
        assert len(differing[walk]) > 1300
        assert abs(np.mean(differing[walk]) - np.mean(expected[walk])) < 0.05


@pytest.mark.parametrize(
    "name, word",
    [
        ("expect", "expert, oracle, wander"),
        ("wander:2,0", "wander:0.6,0.2"),
        ("wander:0.5", "2 probabilities"),
        ("wander:a,b", "wander:0.6,0.2"),
        ("expert:0.1", "write expert"),
        ("expert-noisy:nan", "expert-noisy:0.2"),
    ],
)
def test_a_wrong_name_is_told_what_is_wrong(name, word):
    with pytest.raises(ValueError, match=word):
        make_expert(environment(), name, 0)


def test_the_oracle_plans_from_any_state():
    # From wherever random commands led, the plan wins in exactly as many steps as it has.
    for key in Keys("full", "valid_unseen", seed=28)[:36]:
        env, task = environment(limit=None), Task(key=key, env="alfworld")
        wanderer = make_expert(env, "random", 5)
        observation = env.reset(task)
        wanderer.reset(task)
        for _ in range(25):
            observation = env.step(wanderer.act(observation).action).observation
        commands = plan(env.engine.game, env.engine.state)
        for i, command in enumerate(commands):
            assert env.step(command).terminated == (i == len(commands) - 1)


def test_each_step_of_a_plan_shortens_it():
    # Each command of a shortest plan leaves a plan that is one shorter; after the last nothing is left to do.
    game = make_game(Keys("small", "train", seed=29)[0])
    engine = Engine(game)
    lengths = []
    for command in plan(game, game.start):
        lengths.append(len(plan(game, engine.state)))
        engine.step(command)
    assert lengths == list(range(len(lengths), 0, -1)) and plan(game, engine.state) == []


@pytest.mark.parametrize(
    "words, errand",
    [
        ("put a hot apple in fridge", ("pick_heat_then_place_in_recep", "apple", "fridge")),
        (
            "cool some mug and put it in coffeemachine",
            ("pick_cool_then_place_in_recep", "mug", "coffeemachine"),
        ),
        ("put some pen on shelf", ("pick_and_place_simple", "pen", "shelf")),
        ("find two cd and put them in safe", ("pick_two_obj_and_place", "cd", "safe")),
        ("examine the book with the desklamp", ("look_at_obj_in_light", "book", "desklamp")),
        (
            "clean some cloth and put it in bathtubbasin",
            ("pick_clean_then_place_in_recep", "cloth", "bathtubbasin"),
        ),
    ],
)
def test_tasks_are_read_from_their_sentence(words, errand):
    assert read_task(words) == errand
    said = f"You see nothing.\n\nYour task is to: {words}."
    assert task_words(Observation(text=said)) == task_words(Observation(text="", task=words)) == words


def test_a_strange_task_is_refused_in_words():
    with pytest.raises(ValueError, match="does not understand the task 'sing'"):
        read_task("sing")
    with pytest.raises(ValueError, match="states no task"):
        task_words(Observation(text="On the shelf 1, you see nothing."))


def test_memory_by_hand():
    memory = Memory()
    memory.read(Observation(text="...", actions=("go to drawer 1", "go to shelf 1", "help", "inventory", "look")))
    assert list(memory.receptacles) == ["drawer 1", "shelf 1"] and not memory.here
    arrived = "You arrive at shelf 1. On the shelf 1, you see a pen 2, and a desklamp 1."
    here = ("examine shelf 1", "go to drawer 1", "take pen 2 from shelf 1", "use desklamp 1")
    memory.read(Observation(text=arrived, actions=here))
    assert memory.inside == {"shelf 1": {"pen 2", "desklamp 1"}} and memory.lamps == {"desklamp 1": "shelf 1"}
    holding = ("examine pen 2", "examine shelf 1", "go to drawer 1", "move pen 2 to shelf 1")
    memory.read(Observation(text="You pick up the pen 2 from the shelf 1.", actions=holding))
    assert memory.held == "pen 2" and memory.inside == {"shelf 1": {"desklamp 1"}}
    shut = ("examine drawer 1", "examine pen 2", "go to shelf 1", "open drawer 1")
    memory.read(Observation(text="You arrive at drawer 1. The drawer 1 is closed.", actions=shut))
    assert memory.here == ["drawer 1"] and memory.closed == {"drawer 1"} and "drawer 1" not in memory.inside


def test_stray_walks_off_and_does_nothing_that_the_expert_would_not_do():
    # Whatever a twin without slips would not do is a walk; half of its deeds are left undone (slips at 0.5, some
    # 400 deeds of standard deviation 0.5: 0.1 is 4 standard errors), and none of its walks is disturbed.
    env, stray, twin = (
        environment(),
        make_expert(environment(), "stray:0.5,0.0", 3),
        make_expert(environment(), "expert", 3),
    )
    undone: list[bool] = []
    for key in Keys("small", seed=28)[:120]:
        task = Task(key=key, env="alfworld")
        observation, over = env.reset(task), False
        stray.reset(task)
        twin.reset(task)
        while not over:
            own, move = twin.act(observation).action, stray.act(observation)
            if own.startswith("go to "):
                assert move.action == own
            else:
                undone.append(move.action != own)
                assert move.action == own or move.action.startswith("go to ")
            assert move.weight == 1.0
            observation, _, over, _, _ = env.step(move.action)
    assert len(undone) > 400
    assert abs(np.mean(undone) - 0.5) < 0.1
