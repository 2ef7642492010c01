"""Word problems with a calculator: stories, parts, the two forms, players."""

import json
import re

import pytest

from agentrl.config import resolve
from agentrl.envs import calculator
from agentrl.envs.calculator import Config
from agentrl.envs.calculator.problem import ordered
from agentrl.envs.calculator.stories import PARTS, Event, part_of, work_out, write
from agentrl.gym import check_env
from agentrl.tool import action as tool_action

COMPACT = {"prompt": "compact", "display": 3, "largest": 40, "noise": 1, "events": 3, "count": 40}


def read(story):
    """The answer, worked out from the words alone."""
    person = story.split(" has ")[0]
    total = 0
    for i, sentence in enumerate(story.split(". ")[:-1]):
        n = [int(word) for word in re.findall(r"\d+", sentence)]
        if i == 0:
            total = n[0]
        elif "years" in sentence or "miles" in sentence or (" has " in sentence and "times" not in sentence):
            continue
        elif "times" in sentence:
            total *= n[0]
        elif "sells them" in sentence or "friends" in sentence:
            total -= n[0] * n[1]
        elif len(n) == 2:
            total += n[0] * n[1]
        elif re.search(rf"{person} (gives|loses|sells)", sentence):
            total -= n[0]
        else:
            total += n[0]
    return total


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("events", range(1, 9))
def test_stories_tell_their_events(part, events):
    for seed in range(10):
        story = write(part, seed, events, 60, 2)
        assert story == write(part, seed, events, 60, 2)
        steps, expression = work_out(story.has, story.events)
        assert read(story.text) == story.answer == steps[-1].value == eval(expression)
        assert len(story.events) == events and min(step.value for step in steps) >= 1
        assert not re.search(rf"\b{story.answer}\b", story.text)  # no answer without the calculator
    assert len({write(part, seed, events, 60, 2).text for seed in range(100)}) > 95


@pytest.mark.parametrize("largest", [20, 1000])
def test_every_part_has_stories_of_every_size(largest):
    for part in PARTS:
        for events in range(1, 9):
            for seed in range(5):
                story = write(part, seed, events, largest, 1)
                numbers = sorted(int(n) for n in re.findall(r"\d+", story.text))
                assert tuple(numbers) == story.numbers and 2 <= numbers[0] <= numbers[-1] <= largest


def test_parts_share_neither_their_numbers_nor_orders_of_events():
    told = {part: [write(part, seed, 3, 40, 1) for seed in range(300)] for part in PARTS}
    numbers = {part: {s.numbers for s in told[part]} for part in PARTS}
    orders = {part: {s.kinds for s in told[part]} for part in PARTS}
    for a, b in (("train", "valid"), ("train", "test"), ("valid", "test")):
        assert numbers[a].isdisjoint(numbers[b]) and orders[a].isdisjoint(orders[b])
    assert all(part_of(kinds) == part for part in PARTS for kinds in orders[part])


def test_work_out_by_hand():
    # 12, then 3 boxes of 6: 3 * 6 = 18, 12 + 18 = 30; twice as many: 60; 5 sold: 55.
    events = [Event("boxes", 6, 3), Event("times", 0, 2), Event("less", 5, 0)]
    steps, expression = work_out(12, events)
    assert [str(step) for step in steps] == ["3 * 6", "12 + 18", "30 * 2", "60 - 5"]
    assert expression == "(12 + 3 * 6) * 2 - 5"


def test_the_parts_are_splits_of_tasks():
    keys = {part: {t.key for t in calculator.tasks(Config(split=part, count=20))} for part in (*PARTS, "all")}
    assert keys["train"] | keys["valid"] | keys["test"] == keys["all"] and len(keys["all"]) == 60
    both = calculator.tasks(Config(events=3, min_events=2, count=5, split="test"))
    assert [calculator.kind(t) for t in both] == ["2 events"] * 5 + ["3 events"] * 5


def play(config, actions):
    """(last result, texts) of actions on the first problem."""
    env = calculator.make(config)
    texts = [env.reset(calculator.tasks(config)[0]).text]
    for action in actions:
        result = env.step(action)
        texts.append(result.observation.text)
    return result, texts


def call(expression):
    return tool_action.call("calculator", expression=expression)


def test_an_episode_by_hand():
    config = Config(count=5)
    task = calculator.tasks(config)[0]
    result, texts = play(config, [call("6 * 7"), tool_action.answer(f"It is {task.params['target']}.")])
    assert texts[0].endswith("Answer with the number alone.") and texts[1] == "42"
    assert result.terminated and result.info["success"] and result.reward == 1.0
    assert result.info["signals"] == {"reward": 1.0, "called": 1.0}


@pytest.mark.parametrize(
    ("answer", "reward"),
    [("{}", 1.0), ("It is {}.", 1.0), ("first 5, then {}", 1.0), ("{} or 5", 0.0), ("", 0.0), ("{}.5", 0.0)],
)
def test_the_last_number_is_the_answer(answer, reward):
    config = Config(count=5)
    target = calculator.tasks(config)[0].params["target"]
    assert play(config, [tool_action.answer(answer.format(target))])[0].reward == reward


def test_the_compact_form_lists_every_operation_once():
    config = Config(prompt="compact", display=2, count=5)
    env = calculator.make(config)
    env.inner.reset(calculator.tasks(config)[0])
    problem = env.inner.instance
    problem.reset("Ann has 3 pens. 20 and 40.", 5)
    words = [calculator.prompt(config).answer(action) for action in problem._choices()]
    # 3 numbers: 3 pairs, each with +, - and *, the number seen last first, but large minus small; 3 answers.
    # The display shows two digits, so that 40 * 3 = 120 and 40 * 20 = 800 are not offered.
    told = ["20 + 3", "20 - 3", "20 * 3", "40 + 3", "40 - 3", "40 + 20", "40 - 20"]
    assert words == [f"calc {one}" for one in told] + ["answer 3", "answer 20", "answer 40"]
    assert problem.calculator("20 + 3") == "23" and problem._known == [3, 20, 40, 23]
    with pytest.raises(Exception, match="the display has 2 digits"):
        problem.calculator("40 * 20")
    words = [calculator.prompt(config).answer(action) for action in problem._choices()]
    assert "calc 20 + 3" not in words and "calc 40 * 20" not in words and "calc 40 - 23" in words
    assert ordered(3, "-", 23, problem._known) == "23 - 3" and ordered(3, "*", 23, problem._known) == "23 * 3"


def test_words_and_actions_of_the_compact_form_are_each_other():
    prompt = calculator.prompt(Config(prompt="compact"))
    for words in ("calc 12 * 7", "calc (1 + 2) / 3", "answer 84"):
        assert prompt.answer(prompt.parse(words, None).action) == words
    assert not prompt.parse("add 1 2", None).valid and not prompt.parse("calc", None).valid


@pytest.mark.parametrize("form", [{}, {"show": "lines"}, COMPACT, {**COMPACT, "show": "lines", "brief": True}])
def test_the_environment_keeps_its_promises(form):
    assert check_env(resolve("envs", {"name": "calculator", **form}), tasks=2, steps=6) == []


def share(name, config, count=20, turns=8):
    """Success of a player within some turns; every action it takes in the compact form is listed."""
    env = calculator.make(config)
    player, won = calculator.expert(env, name, 0), 0
    for task in calculator.tasks(config)[:count]:
        player.reset(task)
        observation = env.reset(task)
        for _ in range(turns):
            action = player.act(observation).action
            assert not observation.actions or action in observation.actions
            result = env.step(action)
            observation = result.observation
            if result.terminated:
                won += result.info["success"]
                break
    return won / count


def test_players():
    chat, compact = Config(events=3, noise=1, count=40), Config(**COMPACT)
    assert share("expert", chat) == share("stepwise", chat) == share("expert", compact) == 1.0
    assert 0.1 < share("careless:0.5", compact) < 0.8 and share("random", compact) <= 0.05
    assert 0.1 < share("hasty:0.3", chat) < 0.8 and share("hasty:0", chat) == 1.0
    lines = Config(**{**COMPACT, "show": "lines", "brief": True})
    assert share("expert", lines, turns=12) == 1.0 and 0.1 < share("hasty:0.3", lines, turns=12) < 0.8
    assert share("expert", Config(show="lines", count=40), turns=12) == 1.0
    assert share("careless", compact) == share("careless:0.4", compact)


@pytest.mark.parametrize("name", ["wise", "expert:0.5", "careless:x", "hasty:2", "careless:-1"])
def test_a_player_there_is_not_is_told(name):
    with pytest.raises(ValueError, match=r"calculator has no expert|is no player"):
        calculator.expert(calculator.make(Config(prompt="compact")), name, 0)


def test_bad_options_are_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="min_events = 4 is more than events = 2"):
        calculator.tasks(Config(min_events=4))
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"story": "1 + 1?", "target": 2}) + "\n")
    config = Config(rows=str(rows))
    (task,) = calculator.tasks(config)
    assert calculator.make(config).reset(task).text.startswith("1 + 1?")
    with pytest.raises(ValueError, match="generated problems only"):
        calculator.expert(calculator.make(config), "expert", 0).reset(task)
    with pytest.raises(ValueError, match="rows have train and test"):
        calculator.tasks(Config(rows=str(rows), split="valid"))
    rows.write_text(json.dumps({"question": "1 + 1?", "target": 2}) + "\n")
    with pytest.raises(ValueError, match=r"row 0 of .* has no column 'story'"):
        calculator.tasks(config)


def test_numbers_of_a_small_display_are_entities():
    assert len(calculator.entities(Config(**COMPACT))) == 1000 and not calculator.entities(Config())
