"""What a model writes does not stay in memory: caches keyed by its texts leave out long ones, or hold few."""

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrl.env import spoken, tasks_of
from agentrl.envs.alfworld.prompts import Terse
from agentrl.envs.calculator.environment import Compact
from agentrl.envs.search_qa.lexicon import lexicon
from agentrl.envs.webshop import analysis
from agentrl.envs.webshop.market import open_catalogue
from agentrl.envs.webshop.search import Search
from agentrl.tool import action as tool_action
from agentrl.types import Message
from tests.chat.chats import chat
from tests.rollout.playing import entry

OURS = tracemalloc.Filter(True, str(Path(__file__).parents[2] / "*"))
OTHERS = tracemalloc.Filter(False, "*/site-packages/*")

TEXTS, CHARS, MOST = 40, 10_000, 100_000  # 400 kB of texts; 100 kB may stay


def search_the_encyclopaedia() -> Callable[[str], object]:
    index = lexicon("tiny", 0)
    return lambda text: index.search([text], 3)


def search_the_shop() -> Callable[[str], object]:
    finder = Search(open_catalogue("", 50, 0, True))
    return lambda text: finder.find(text.split(), lambda: None)


def calculate() -> Callable[[str], object]:
    prompt = Compact()
    return lambda text: prompt.answer(tool_action.call("calculator", expression=text))


def play_games() -> Callable[[str], object]:
    """Every text goes to the same game, as a command."""
    game = entry("alfworld")
    env = game.hooks.make(game.config)
    env.reset(tasks_of(game)[0])
    return lambda text: env.step(text)


def read_rooms() -> Callable[[str], object]:
    prompt = Terse(object_first=True)
    return lambda text: (prompt.say(text), prompt.answer(text))


def read_answers() -> Callable[[str], object]:
    return lambda text: spoken(f"<think>{text}</think> {text}")


def start_chats() -> Callable[[str], object]:
    words = chat("plain")
    return lambda text: words.answers((text,), end=True, prompt=words.start([Message("user", text)]))


@pytest.mark.parametrize(
    "make", [search_the_encyclopaedia, search_the_shop, calculate, play_games, read_rooms, read_answers, start_chats]
)
def test_long_texts_are_not_kept(make):
    use = make()
    use("a warm start")
    tracemalloc.start()
    try:
        for number in range(TEXTS):
            use(f"{'word' * 20}{number} " * (CHARS // 80))
        gc.collect()
        kept = kept_bytes()
    finally:
        tracemalloc.stop()
    assert kept < MOST


def kept_bytes() -> int:
    """Traced bytes that files of the project have allocated; threads that another test has left allocate in others."""
    traces = tracemalloc.take_snapshot().filter_traces([OURS, OTHERS])
    return sum(one.size for one in traces.statistics("filename"))


def test_no_words_of_an_agent_to_a_customer_are_kept():
    desk = entry("desk")
    env, task = desk.hooks.make(desk.config), tasks_of(desk)[0]

    def speak(number: int) -> None:
        env.reset(task)
        env.step(tool_action.answer(f"{number} {'word ' * 70}"))

    speak(-1)
    tracemalloc.start()
    try:
        for number in range(TEXTS):
            speak(number)
        env.reset(task)
        gc.collect()
        kept = kept_bytes()
    finally:
        tracemalloc.stop()
    assert kept < 700 * TEXTS, "each text has 350 characters, and its action as many"


def test_short_texts_are_kept():
    finder = Search(open_catalogue("", 50, 0, True))
    for _ in range(2):
        finder.find(["red", "shoes"], lambda: None)
    assert finder._ranked.cache_info().hits == 1


def test_classes_of_any_characters_are_bounded(monkeypatch):
    monkeypatch.setattr(analysis, "MOST_CLASSES", 100)
    classes = analysis._Classes()
    own = analysis._classes()
    codes = [*range(0x4E00, 0x4F00), *range(0x41, 0x5B)]
    assert [classes[code] for code in codes] == [own[code] for code in codes]
    assert len(classes) == 100
