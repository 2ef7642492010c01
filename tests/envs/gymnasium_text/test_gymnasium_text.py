"""Gymnasium environments in words: spaces, listed actions, pictures, seeds, and one sentence for every mistake."""

import json
import string

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from agentrl.cli import main
from agentrl.config import resolve
from agentrl.env import tasks_of
from agentrl.envs.gymnasium_text.config import HELD_OUT
from agentrl.envs.gymnasium_text.environment import in_words
from agentrl.gym import check_env
from agentrl.types import Status

TAXI = "Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3"  # gymnasium 1.1 has v3 alone


class Password(gymnasium.Env):
    """Say the word of the seed.

    Only the first paragraph is the instruction.
    """

    observation_space = spaces.Text(100, charset=string.printable)
    action_space = spaces.Text(8, charset=string.ascii_lowercase)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.word = "".join(self.np_random.choice(list("abc"), 4))
        return f"The word begins with {self.word[0]}.", {"admissible_commands": [self.word, "hint"], "status": "new"}

    def step(self, action):
        right = action == self.word
        info = {"is_success": right, "tries": np.int64(1), "word": self.word, "object": self}
        return "Yes." if right else "No.", float(right), right, False, info


gymnasium.register("test/Password-v0", Password)
gymnasium.register("test/Image-v0", lambda: Spaced(spaces.Box(0, 255, (64, 64, 3), np.uint8), spaces.Discrete(2)))
gymnasium.register("test/Graph-v0", lambda: Spaced(spaces.Graph(spaces.Discrete(2), None), spaces.Discrete(2)))


class Spaced(gymnasium.Env):
    def __init__(self, observation, action):
        self.observation_space, self.action_space = observation, action


def entry(**options):
    return resolve("envs", {"name": "gymnasium_text", **options})


@pytest.mark.parametrize(
    ("env_id", "markov"), [("FrozenLake-v1", True), ("Blackjack-v1", True), ("test/Password-v0", False)]
)
def test_numbers_show_everything_and_words_may_not(env_id, markov):
    on = entry(id=env_id)
    assert on.hooks.is_markov(on.config) is markov


@pytest.fixture
def frozen():
    on = entry(options={"is_slippery": False}, action_names=("left", "down", "right", "up"))
    env = on.hooks.make(on.config)
    return env, env.reset(tasks_of(on)[0])


@pytest.mark.parametrize("name", ["FrozenLake-v1", "Blackjack-v1", "CartPole-v1", "test/Password-v0"])
def test_it_keeps_the_promises_of_an_environment(name):
    assert check_env(entry(id=name), tasks=2, steps=15) == []


def test_a_picture_shows_where_the_agent_stands(frozen):
    env, seen = frozen
    assert seen.text == "0\n[S]FFF\nFHFH\nFFFH\nHFFG"
    assert seen.actions == ("left", "down", "right", "up")
    assert seen.task.startswith("Frozen lake involves crossing a frozen lake from start to goal")
    assert "4\n" in env.step("down").observation.text


def test_the_shortest_way_wins_and_the_episode_is_then_over(frozen):
    env, _ = frozen
    results = [env.step(action) for action in ["down", "down", "right", "right", "down", "right"]]
    assert [r.reward for r in results] == [0, 0, 0, 0, 0, 1]
    assert results[-1].terminated and results[-1].info["prob"] == 1.0
    after = env.step("left")
    assert after.terminated and after.reward == 0 and after.observation.text == "The episode is over."


def test_an_unknown_action_is_answered_and_changes_nothing(frozen):
    env, seen = frozen
    said = env.step("jump")
    assert said.info["status"] == Status.PARSE_ERROR and not said.terminated
    assert said.observation.text == "There is no action 'jump'; the actions are: left, down, right, up."
    assert said.observation.state_key == seen.text
    assert env.step("right").observation.text.splitlines()[0] == "1"


def test_words_in_and_out():
    on = entry(id="test/Password-v0")
    env = on.hooks.make(on.config)
    seen = env.reset(tasks_of(on)[3])
    word = seen.actions[0]
    assert seen.text == f"The word begins with {word[0]}." and seen.task == "Say the word of the seed."
    assert "characters" in env.step("TOO LOUD").observation.text
    result = env.step(word)
    assert result.terminated and result.info == {"success": True, "tries": 1, "word": word}


def test_a_mask_leaves_impossible_actions_out():
    on = entry(id=TAXI, action_names=("south", "north", "east", "west", "pickup", "dropoff"))
    env = on.hooks.make(on.config)
    listed = [env.reset(task).actions for task in tasks_of(on)[:20]]
    assert any(len(actions) < 6 for actions in listed) and all(actions for actions in listed)


def test_the_package_that_brings_an_environment_is_imported(tmp_path, monkeypatch):
    (tmp_path / "rooms_of_somebody.py").write_text(
        "import gymnasium\ngymnasium.register('Rooms-v0', 'gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    on = entry(id="rooms_of_somebody:Rooms-v0", count=2)
    assert [task.key for task in tasks_of(on)] == ["rooms_of_somebody:Rooms-v0/0", "rooms_of_somebody:Rooms-v0/1"]


def test_splits_have_seeds_of_their_own():
    train, test = (tasks_of(entry(split=split, count=3)) for split in ("train", "test"))
    assert [t.seed for t in train] == [0, 1, 2] and [t.seed for t in test] == [HELD_OUT, HELD_OUT + 1, HELD_OUT + 2]


def test_observations_of_parts():
    space = spaces.Dict({"at": spaces.Box(-1, 1, (2,)), "hand": spaces.Tuple([spaces.Discrete(3), spaces.Discrete(9)])})
    value = {"at": np.array([0.123456, -1], np.float32), "hand": (2, 8)}
    assert in_words(space, value) == "at: 0.1235 -1\nhand: 2, 8"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"id": "FrozenLak-v1"}, r"unknown Gymnasium environment 'FrozenLak-v1': did you mean FrozenLake-v1 or"),
        ({"id": "FrozenLake-v7"}, r"did you mean FrozenLake-v1"),
        ({"id": "zzz-v0"}, r"unknown Gymnasium environment 'zzz-v0': gymnasium.registry lists"),
        ({"id": ""}, r"env.id = ''"),
        ({"id": "Pendulum-v1"}, r"acts in Box\(.*: supported are Text and Discrete action spaces"),
        ({"id": "test/Image-v0"}, r"observes Box\(0, 255, \(64, 64, 3\), uint8\).*supported are Text, Discrete"),
        ({"id": "test/Graph-v0"}, r"observes Graph\(.*supported are"),
        ({"id": "agentrl/ALFWorld-v0"}, r"environment of ours: name it directly"),
        ({"action_names": ("a", "b")}, r"has 2 names, FrozenLake-v1 has 4 actions"),
        ({"options": {"x": 1}}, r"cannot be made with .*unexpected keyword argument 'x'"),
        ({"id": "nowhere:X-v0"}, r"env.id = 'nowhere:X-v0' cannot be made with .*No module named 'nowhere'"),
    ],
)
def test_mistakes_are_one_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        tasks_of(entry(**options))
    assert "\n" not in str(caught.value)


def test_the_command_plays_it(capsys):
    words = ["eval", "gymnasium_text", "env.id=FrozenLake-v1", "--policy", "random", "--tasks", "4", "--json"]
    assert main(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["episodes"] == 4 and report["benchmark"] == "gymnasium FrozenLake-v1" and not report["env_errors"]
