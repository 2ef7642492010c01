"""Core environments through Gymnasium: its checkers, make, vector environments, seeds and tasks by name."""

import copy
import pickle
import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces.utils import flatten, unflatten
from gymnasium.utils.env_checker import check_env

import agentrl.gym.environment
from agentrl.gym import GymEnv
from agentrl.gym.text_space import UnicodeText
from tests.rollout.playing import WALK, entry

ALFWORLD = "agentrl/ALFWorld-v0"
TEXTS = ["", "plain", "Ünïcode 漢字 \N{SLIGHTLY SMILING FACE}", "\x00\U0010ffff", "\ud800"]


@pytest.fixture(scope="module", autouse=True)
def registered():
    gymnasium.register("toys/Walk-v0", "agentrl.gym:GymEnv", kwargs={"env": WALK, "goal": 3})
    yield
    del gymnasium.registry["toys/Walk-v0"]


@pytest.mark.parametrize(
    ("name", "options"), [("toys/Walk-v0", {}), (ALFWORLD, {}), (ALFWORLD, {"render_mode": "ansi"})]
)
def test_gymnasiums_own_checker_has_no_complaint(name, options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(name, **options)
        check_env(env.unwrapped)
        env.reset(seed=0)
        env.step("look")  # through the passive checker and order enforcement
        env.close()
        env.close()


def test_an_episode_by_hand():
    env = gymnasium.make("toys/Walk-v0", render_mode="ansi")
    text, info = env.reset(options={"task": "walk/2"})
    assert text == "You are at 0, the goal is 3."
    assert info == {"task": "walk/2", "actions": ("left", "right"), "state_key": text, "instruction": ""}
    env.step("right")
    env.step("right")
    text, reward, terminated, truncated, info = env.step("right")
    assert (text, reward, terminated, truncated) == ("You are at 3, the goal is 3.", 1.0, True, False)
    assert info["success"] is True and info["steps"] == 3 and info["task"] == "walk/2"
    assert env.render() == text


def test_alfworld_takes_its_options():
    env = gymnasium.make(ALFWORLD, split="train", max_steps=2)
    text, info = env.reset(seed=1)
    assert text in env.observation_space and len(info["actions"]) > 2
    assert [env.step(info["actions"][0])[3] for _ in range(2)] == [False, True]
    with pytest.raises(ValueError, match=r"unknown key env.splitt: did you mean split"):
        gymnasium.make(ALFWORLD, splitt="train")


def test_the_seed_decides_the_task():
    env = GymEnv(WALK, count=50)
    drawn = [env.reset(seed=seed)[1]["task"] for seed in (7, 8, 7)]
    assert drawn[0] == drawn[2] and len({env.reset(seed=seed)[1]["task"] for seed in range(20)}) > 10
    following = [env.reset(seed=7)[1]["task"], *(env.reset()[1]["task"] for _ in range(3))]
    again = [env.reset(seed=7)[1]["task"], *(env.reset()[1]["task"] for _ in range(3))]
    assert following == again and len(set(following)) > 1


def test_unknown_tasks_and_options_are_one_sentence():
    env = GymEnv(WALK)
    with pytest.raises(ValueError, match="'walk/99'"):
        env.reset(options={"task": "walk/99"})
    with pytest.raises(ValueError, match="no option 'key'"):
        env.reset(options={"key": "walk/1"})
    with pytest.raises(gymnasium.error.ResetNeeded):
        GymEnv(WALK).step("left")
    with pytest.raises(ValueError, match="has 28 characters, the space holds 10: give a larger observation_chars"):
        GymEnv(WALK, observation_chars=10).reset(seed=0)


def test_an_instance_can_be_copied_and_pickled_in_play():
    env = GymEnv(WALK, goal=3)
    env.reset(seed=0)
    env.step("right")
    for other in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert other.step("right")[0] == "You are at 2, the goal is 3."
        assert other.reset()[1]["task"] == copy.deepcopy(env).reset()[1]["task"]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vector_environments(mode):
    envs = gymnasium.make_vec("toys/Walk-v0", num_envs=2, vectorization_mode=mode)
    try:
        texts, infos = envs.reset(seed=[5, 6], options={"task": "walk/1"})
        assert texts == ("You are at 0, the goal is 3.",) * 2 and infos["task"].tolist() == ["walk/1"] * 2
        assert infos["actions"][1] == ("left", "right")
        for _ in range(2):
            texts, reward, terminated, _, infos = envs.step(("right", "Ü漢\N{SLIGHTLY SMILING FACE}"))
        assert texts == ("You are at 2, the goal is 3.", "What? You are at 0, the goal is 3.")
        _, reward, terminated, _, infos = envs.step(("right", "left"))
        assert reward.tolist() == [1.0, 0.0] and terminated.tolist() == [True, False]
        assert infos["success"].tolist() == [True, False]
    finally:
        envs.close()


def test_alfworld_in_a_vector():
    envs = gymnasium.make_vec(ALFWORLD, num_envs=2, vectorization_mode="sync", split="train")
    texts, infos = envs.reset(seed=3)
    assert len(texts) == 2 and all(text.startswith("-= Welcome to TextWorld, ALFRED! =-") for text in texts)
    actions = tuple(actions[0] for actions in infos["actions"])
    assert envs.action_space.contains(actions)
    envs.step(actions)
    envs.close()


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_is_in_the_space_and_survives_flattening(text):
    space = UnicodeText(20)
    assert text in space and unflatten(space, flatten(space, text)) == text
    assert flatten(space, text).shape == (20,) and flatten(space, text).dtype == np.int32


def test_shared_memory_keeps_every_character():
    from gymnasium.vector.utils import create_shared_memory, read_from_shared_memory, write_to_shared_memory

    space = UnicodeText(20)
    memory = create_shared_memory(space, n=len(TEXTS))
    for index, text in enumerate(TEXTS):
        write_to_shared_memory(space, index, text, memory)
    view = read_from_shared_memory(space, memory, n=len(TEXTS))
    first = copy.deepcopy(view)
    assert first == tuple(view) == tuple(TEXTS) and list(view[1:3]) == TEXTS[1:3]
    write_to_shared_memory(space, 0, "new", memory)
    assert view[0] == "new" and first == tuple(TEXTS)


def test_the_space_is_a_space():
    space = UnicodeText(8, min_length=2, seed=0)
    assert "a" not in space and "a" * 9 not in space and 3 not in space and "ab" in space
    assert all(space.sample() in space for _ in range(50))
    mask = np.zeros(len(space.character_list), np.int8)
    mask[ord("漢")] = 1
    assert space.sample(mask=(3, mask)) == "漢漢漢"
    assert space == UnicodeText(8, min_length=2) != UnicodeText(9, min_length=2)
    assert space != gymnasium.spaces.Text(8, min_length=2)
    other = pickle.loads(pickle.dumps(space))
    assert other == space and other.sample() == space.sample()
    assert repr(space) == "UnicodeText(2, 8)"


def test_registering_twice_is_silent_and_a_broken_environment_costs_itself_only(monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agentrl.gym.register()
    monkeypatch.setattr(agentrl.gym.environment.catalogue, "names", lambda kind: ("absent", "alfworld"))
    monkeypatch.delitem(gymnasium.registry, ALFWORLD)
    with pytest.warns(UserWarning, match="environment absent is not registered"):
        agentrl.gym.register()
    assert ALFWORLD in gymnasium.registry


@pytest.mark.parametrize(("imports", "gymnasium_id"), [("", f"agentrl.gym:{ALFWORLD}"), (", agentrl.gym", ALFWORLD)])
def test_ids_are_there_without_torch(imports, gymnasium_id):
    code = (
        f"import sys, gymnasium{imports}; env = gymnasium.make('{gymnasium_id}'); env.reset(seed=0); "
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_import_of_the_package_alone_registers_nothing():
    code = f"import agentrl, gymnasium; print({ALFWORLD!r} in gymnasium.registry)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    "make",
    [
        "gymnasium.make_vec('agentrl.gym:agentrl/Notes-v0', 2, 'async', {'context': 'spawn'})",
        "gymnasium.vector.AsyncVectorEnv([make] * 2, context='spawn')",
    ],
)
def test_the_workers_of_a_vector_environment_find_the_ids(make):
    """Workers that are new processes have imported neither agentrl nor the program that started them."""
    code = (
        "import gymnasium; make = lambda: gymnasium.make('agentrl.gym:agentrl/Notes-v0'); "
        f"envs = {make}; print(len(envs.reset(seed=1)[0])); envs.close()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("2\n", 0), done.stderr


def test_an_entry_serves_as_a_name():
    assert GymEnv(entry(goal=2)).reset(seed=0)[0] == "You are at 0, the goal is 2."
