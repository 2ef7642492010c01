"""What a model reads, and what its answers mean."""

import pytest

from agentrl.env import PastTurn
from agentrl.envs import webshop
from agentrl.types import Observation, Status

PAGE = Observation(
    text="Instruction: [SEP] buy tea [SEP] Back to Search [SEP] Next >",
    actions=("click[back to search]", "click[next >]"),
    task="buy tea",
)
FRONT = "WebShop [SEP] Instruction: [SEP] buy tea [SEP] Search"
INDEX = Observation(text=FRONT, actions=("search[tea]",), task="buy tea")
VERL = webshop.prompt(webshop.Config(preset="verl_agent"))
GEM = webshop.prompt(webshop.Config(preset="gem"))


@pytest.mark.parametrize("name", ["plain", "compact", "verl_agent", "gem"])
def test_an_answer_means_its_action(name):
    prompt = webshop.prompt(webshop.Config(prompt=name))
    for action in ("click[back to search]", "search[red tea]"):
        parsed = prompt.parse(prompt.answer(action), PAGE)
        assert (parsed.action, parsed.valid, parsed.status) == (action, True, Status.OK)
    assert not prompt.parse("", PAGE).valid


def test_compact_answers_have_no_brackets_and_both_forms_are_understood():
    prompt = webshop.prompt(webshop.Config(prompt="compact"))
    assert prompt.answer("click[item 1]") == "click item 1" and prompt.answer("look") == "look"
    assert prompt.parse("click item 1", PAGE).action == prompt.parse(" click[item 1]\n", PAGE).action == "click[item 1]"
    assert prompt.parse("search[red tea]", PAGE).action == "search[red tea]"
    assert prompt.parse("click [b]", PAGE).action == "click[[b]]"
    text = prompt.window(INDEX, [PastTurn(INDEX, "search[tea]")], 1, PAGE)
    assert text.splitlines()[:2] == ["buy tea", "> search tea"]


def test_verl_agent_quotes_what_follows_the_instruction():
    text = VERL.first(PAGE)
    assert "'Back to Search' [SEP] 'Next >'" in text and "Your task is: buy tea." in text
    assert "'click[back to search]',\n'click[next >]'," in text and "search[<your query>]" not in text
    assert "'search[<your query>]'," in VERL.first(INDEX) and "search[tea]" not in VERL.first(INDEX)


def test_verl_agent_history_counts_steps_and_gives_way_when_long():
    past = [PastTurn(INDEX, "search[tea]"), PastTurn(PAGE, "click[next >]")]
    text = VERL.window(INDEX, past, 5, PAGE)
    assert "You have taken 5 step(s)" in text and "now at step 6" in text
    assert "[Observation 4: 'WebShop'" not in text and "[Observation 4: ''Search'', Action 4: 'search[tea]']" in text
    long = Observation(text=f"Instruction: [SEP] buy tea [SEP] {'x' * 14_000}", task="buy tea")
    assert "step(s)" not in VERL.window(INDEX, [PastTurn(long, "a")], 5, PAGE)


@pytest.mark.parametrize(
    ("reply", "action", "valid"),
    [
        ("<think>a</think><action> Click[Next >] </action>", "click[next >]", True),
        ("<action>click[x]</action>", "click[x]", False),
        ("<think>a</think>click[buy now]", "think>click[buy now]", False),
        ("<think>茶</think><action>click[x]</action>", "click[x]", False),
        ("<THINK>a</THINK><action>click[x]</action>", "click[x]", False),
        ("<think>a</think><action>not admissible</action>", "not admissible", True),
    ],
)
def test_verl_agent_projection(reply, action, valid):
    parsed = VERL.parse(reply, PAGE)
    assert (parsed.action, parsed.valid) == (action, valid)


def test_gem_takes_the_last_box_and_keeps_case():
    assert GEM.parse(r"\boxed{search[A]} then \boxed{search[Tea]}", PAGE).action == "search[Tea]"
    assert GEM.parse("search[Tea]", PAGE).status == Status.PARSE_ERROR


def test_plain_shows_the_task_once_and_how_to_search():
    prompt = webshop.prompt(webshop.Config())
    assert prompt.first(PAGE).count("buy tea") == 1
    assert "search[your words]" in prompt.first(PAGE) and "search[tea]" in prompt.first(INDEX)
    brief = Observation(text="search page", actions=("search[tea]",), task="buy tea")
    assert prompt.first(brief).startswith("buy tea\n")
