"""The prompts for language models: what they say, and how they read what such models write."""

import pytest

from agentrl.config import resolve
from agentrl.env import EnvironmentFile, action_line, prompt_of, tasks_of
from agentrl.types import Status

WORLDS = {
    "alfworld": {"level": "small"},
    "webshop": {"num_products": 100, "observation": "brief"},
    "search_qa": {"world": "tiny"},
    "calculator": {},
    "code_math": {},
    "sokoban": {"level": "hard"},
    "sql": {"level": "easy"},
}
NAMED = {  # actions that the system message must name
    "alfworld": ("go to", "take", "move", "open", "look"),
    "webshop": ("search[", "click["),
    "search_qa": ("search NAME", "answer NAME"),
    "calculator": ("calc A + B", "answer N"),
    "code_math": ("run CODE", "answer N"),
    "sokoban": ("up", "down", "left", "right"),
    "sql": ("tables", "schema NAME", "query SELECT", "answer SELECT"),
}


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("go to shelf 1", "go to shelf 1"),
        ("  go to shelf 1.  \nBecause the mug is there.", "go to shelf 1"),
        ("Action: `open drawer 2`", "open drawer 2"),
        ("> take mug 1 from desk 1", "take mug 1 from desk 1"),
        ('- "look"', "look"),
        ("", ""),
        ("\n\n", ""),
        ("answer 3.5", "answer 3.5"),
    ],
)
def test_the_action_is_the_first_line_without_decoration(text, action):
    assert action_line(text) == action


def opened(name: str, prompt: str):
    """The entry, an instance, its first observation, and its prompt."""
    entry = resolve(EnvironmentFile, {"name": name, **WORLDS[name], "prompt": prompt}, "env")
    env = entry.hooks.make(entry.config)
    return entry, env, env.reset(tasks_of(entry)[0]), prompt_of(entry)


@pytest.mark.parametrize("name", WORLDS)
def test_a_system_message_says_what_to_write_and_every_listed_action_is_read_back(name):
    _, env, observation, prompt = opened(name, "instruct")
    try:
        assert all(word in prompt.system for word in NAMED[name])
        assert len(prompt.system.split()) < 80 and prompt.system not in prompt.first(observation)
        assert observation.actions, "admissible answers need a list"
        for action in observation.actions:
            written = prompt.answer(action)
            assert "\n" not in written
            for text in (written, f"> {written}\nThis is the best."):
                parsed = prompt.parse(text, observation)
                assert (parsed.action, parsed.valid, parsed.status) == (action, True, Status.OK), text
        assert not prompt.parse("", observation).valid
    finally:
        env.close()


@pytest.mark.parametrize("name", ["alfworld", "webshop"])
def test_the_listed_form_names_every_action_in_every_message(name):
    _, env, observation, prompt = opened(name, "instruct_listed")
    bare = opened(name, "instruct")[3]
    actions = [action for action in observation.actions if action != "help"]
    for message in (prompt.first, prompt.turn):
        assert ", ".join(actions) in message(observation) and ", ".join(actions) not in bare.first(observation)
    assert prompt.system == bare.system
    env.close()


@pytest.mark.parametrize("name", WORLDS)
def test_an_expert_wins_through_the_prompt(name):
    entry, env, observation, prompt = opened(name, "instruct")
    expert = entry.hooks.expert(env, "expert", 0)
    expert.reset(tasks_of(entry)[0])
    try:
        for _ in range(30):
            text = prompt.answer(expert.act(observation).action)
            result = env.step(prompt.parse(text, observation).action)
            observation = result.observation
            if result.terminated or result.truncated:
                break
        assert result.info["success"]
    finally:
        env.close()


def test_the_task_stands_in_every_message_of_alfworld_and_once_in_others():
    _, env, observation, prompt = opened("alfworld", "instruct")
    assert prompt.turn(observation).endswith(f"Task: {observation.task}")
    assert prompt.window(observation, [], 0, observation) == prompt.first(observation)
    env.close()
    _, env, observation, prompt = opened("webshop", "instruct")
    assert prompt.first(observation).count(observation.task) == 1
    env.close()
