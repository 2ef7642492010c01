"""Situations of household decisions: by hand from state keys, and along an expert's game."""

import pytest

from agentrl.envs import alfworld
from agentrl.envs.alfworld.situation import situation
from agentrl.types import Observation

FIRST = "You are in the middle of a room.\n\nYour task is to: put some mug on desk."
HEAT = "Your task is to: heat some egg and put it in countertop."


@pytest.mark.parametrize(
    ("state", "action", "label"),
    [
        ("middle of the room | holding nothing", "go to desk 1", "nothing here: go"),
        ("drawer 1 (closed) | holding nothing", "open drawer 1", "a closed door here: open"),
        ("drawer 1 (open):  | holding nothing", "go to desk 1", "nothing here: go"),
        ("shelf 1: book 1, mug 2 | holding nothing", "take mug 2 from shelf 1", "it is here: take it"),
        ("shelf 1: book 1, mug 2 | holding nothing", "take book 1 from shelf 1", "it is here: take another thing"),
        ("shelf 1: book 1 | holding nothing", "take book 1 from shelf 1", "only other things here: take another thing"),
        ("desk 1: mug 2 | holding nothing", "go to shelf 1", "only other things here: go"),  # it is where it belongs
        ("shelf 1: book 1 | holding book 2", "move book 2 to shelf 1", "holding another thing: move"),
        ("shelf 1: book 1 | holding mug 1", "go to desk 1", "holding it, elsewhere: go"),
        ("desk 1:  | holding clean mug 1", "move mug 1 to desk 1", "holding it, at the goal: move"),
    ],
)
def test_situations_by_hand(state, action, label):
    assert situation(Observation(text="", state_key=state, task=FIRST), action) == label


def test_an_object_that_must_be_heated_is_not_brought_to_the_goal_yet():
    at = "countertop 1: knife 1 | holding {}egg 1"
    cold, hot = (Observation(text="", state_key=at.format(how), task=HEAT) for how in ("", "hot "))
    assert situation(cold, "go to microwave 1") == "holding it, not yet hot: go"
    assert situation(hot, "move egg 1 to countertop 1") == "holding it, at the goal: move"


def test_other_state_keys_and_unknown_tasks_leave_the_verb():
    assert situation(Observation(text="You see a mug 1.", task=FIRST), "take mug 1 from desk 1") == "take"
    odd = Observation(text="", state_key="shelf 1:  | holding nothing", task="sing a song")
    assert situation(odd, "go to desk 1") == "go"


def test_every_step_of_an_experts_games_has_a_situation_that_fits_the_state():
    config = alfworld.Config(level="medium")
    env = alfworld.make(config)
    names = set()
    for task in alfworld.tasks(config)[:12]:
        player = alfworld.expert(env, "expert", 0)
        player.reset(task)
        result, observation = None, env.reset(task)
        first = observation.text
        while result is None or not (result.terminated or result.truncated):
            action = player.act(observation).action
            facts = env.player.facts()
            label = situation(Observation(text=observation.text, state_key=facts.key(), task=first), action)
            assert label.startswith("holding") == bool(facts.held) and label.count(": ") == 1
            names.add(label)
            result = env.step(action)
            observation = result.observation
    assert {"it is here: take it", "holding it, at the goal: move", "nothing here: go"} <= names
    assert not any(name.endswith("take another thing") for name in names)  # the expert never takes what it need not
