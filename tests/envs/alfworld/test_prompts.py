"""The words to and from a model."""

import pytest

from agentrl.envs.alfworld.prompts import Compact, VerlAgent
from agentrl.prompt import Past
from agentrl.types import Observation, Status

OPENING = Observation(
    text="-= Welcome to TextWorld, ALFRED! =-\n\nYou are in a room.\n\nYour task is to: put a mug in desk.",
    actions=("go to desk 1", "help", "look"),
    task="put a mug in desk.",
)
DESK = Observation(text="You arrive at desk 1.", actions=("examine desk 1", "help"), task="put a mug in desk.")


def test_the_first_verl_agent_prompt_states_observation_actions_and_format_once():
    text = VerlAgent().first(OPENING)
    assert text.count("Your task is to: put a mug in desk.") == 1
    assert "are: ['go to desk 1',\n 'look']." in text  # `help` is left out
    assert text.index("ALFRED") < text.index("You are in a room.") < text.index("<think>") < text.index("<action>")


def test_the_verl_agent_window_numbers_observations_before_their_actions():
    # Three turns played, the last two shown: they are numbers 2 and 3, and now is step 4.
    past = [Past(DESK, "examine desk 1"), Past(Observation(text="Nothing happens."), "look")]
    lines = VerlAgent().window(OPENING, past, 3, DESK).split("\n")
    assert lines[0].endswith("Your task is to: put a mug in desk.")
    assert "already taken 3 step(s)" in lines[1]
    assert "last 2 " in lines[1]
    assert lines[2] == "[Observation 2: 'You arrive at desk 1.', Action 2: 'examine desk 1']"
    assert lines[3] == "[Observation 3: 'Nothing happens.', Action 3: 'look']"
    assert lines[4].startswith("You are now at step 4 and your current observation is: You arrive at desk 1.")
    assert lines[5] == "Your admissible actions of the current situation are: ['examine desk 1']."
    assert VerlAgent().window(OPENING, [], 0, OPENING) == VerlAgent().first(OPENING)


@pytest.mark.parametrize(
    ("answer", "action", "valid"),
    [
        ("<think>a</think><action>Go to Desk 1 </action>", "go to desk 1", True),
        ("<action>look</action> then <think></think>", "look", True),  # the order is not checked
        ("<think>a</think><ACTION>look</ACTION>", "look", True),
        ("<THINK>a</THINK><action>look</action>", "look", False),  # thoughts are looked for as written
        ("<action>look</action>", "look", False),
        ("<think>a</think><action>look", "<think>a</think><action>look", False),
        ("x" * 40 + "LOOK", "x" * 26 + "look", False),  # the last 30 characters
        ("<think>看</think><action>look</action>", "look", False),
        ("<think>a</think><action>a</action><action>b</action>", "a", True),
        ("<think>a</think><action>fly away</action>", "fly away", True),  # admissibility is not checked
        ("<think>a</think></action><action>look", "", True),
        ("", "", False),
    ],
)
def test_verl_agent_projection(answer, action, valid):
    parsed = VerlAgent().parse(answer, OPENING)
    assert (parsed.action, parsed.valid) == (action, valid)
    assert parsed.status == (Status.OK if valid else Status.PARSE_ERROR)


@pytest.mark.parametrize("form", [VerlAgent, Compact])
def test_require_admissible_makes_other_actions_invalid_and_sends_them_on(form):
    prompt = form(require_admissible=True)
    assert prompt.parse(prompt.answer("look"), OPENING) == ("look", True, Status.OK)
    assert prompt.parse(prompt.answer("fly away"), OPENING) == ("fly away", False, Status.PARSE_ERROR)
    assert form().parse(form().answer("fly away"), OPENING).valid


@pytest.mark.parametrize("form", [VerlAgent, Compact])
@pytest.mark.parametrize("action", OPENING.actions)
def test_answers_parse_back_to_their_action(form, action):
    assert form().parse(form().answer(action), OPENING) == (action, True, Status.OK)


def test_the_compact_prompt_holds_task_and_observation_and_no_more():
    prompt = Compact()
    assert prompt.first(OPENING) == "You are in a room.\nput a mug in desk."
    assert prompt.turn(DESK) == "You arrive at desk 1.\nput a mug in desk."
    assert prompt.window(OPENING, [Past(OPENING, "go to desk 1")], 1, DESK) == (
        "You are in a room.\n> go to desk 1\nYou arrive at desk 1.\nput a mug in desk."
    )
    assert prompt.window(OPENING, [Past(DESK, "look")], 2, DESK) == (
        "You arrive at desk 1.\n> look\nYou arrive at desk 1.\nput a mug in desk."
    )
    assert not prompt.parse("  ", DESK).valid
