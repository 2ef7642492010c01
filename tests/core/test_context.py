"""What each context policy shows the model."""

import numpy as np
import pytest

from agentrl.config import resolve
from agentrl.context import History
from agentrl.prompt import Past, Plain
from agentrl.types import Message, Observation
from tests.core.chats import chat

FIRST = Observation(text="A room.", task="Find the key.", actions=("look",))
NEXT = Observation(text="A drawer.", actions=("open", "look"))


class Spoken(Plain):
    system = "You are an agent."


def history(words=None, past: int = 0) -> History:
    seen = [FIRST, NEXT, NEXT, NEXT]
    steps = [Past(seen[i], f"act {i}") for i in range(past)]
    made = History(chat=words, first=FIRST, now=seen[past], past=steps)
    if past:
        made.messages = [Message("user", "hello"), Message("assistant", "act 0")]
        made.path = np.concatenate([words.start(made.messages[:1]), words.answer("act 0")]) if words else made.path
    return made


def ask(name: str, made: History, prompt: Plain | None = None, **options):
    entry = resolve("context", {"name": name, **options})
    return entry.module.ask(entry.config, prompt or Plain(), made)


@pytest.mark.parametrize("name", ["full", "last_k"])
def test_the_first_turn_opens_a_chat(name):
    words = chat("plain")
    asked = ask(name, history(words), Spoken())
    user = "Find the key.\nA room.\nActions: look"
    assert asked.messages == [Message("system", "You are an agent."), Message("user", user)]
    assert asked.token_ids.tolist() == words.start(asked.messages).tolist() and asked.added == len(asked.token_ids)


def test_full_adds_one_message_to_the_path():
    words = chat("plain")
    made = history(words, past=1)
    asked = ask("full", made)
    new = words.turn(Message("user", "A drawer.\nActions: open, look"))
    assert asked.token_ids.tolist() == [*made.path.tolist(), *new.tolist()] and asked.added == len(new)
    assert asked.messages == [*made.messages, Message("user", "A drawer.\nActions: open, look")]


def test_full_closes_an_answer_that_was_cut_off():
    words = chat("plain")
    made = history(words, past=1)
    made.path = made.path[:-1]
    asked = ask("full", made)
    new = words.turn(Message("user", "A drawer.\nActions: open, look"))
    assert asked.token_ids.tolist() == [*made.path.tolist(), words.end_id, *new.tolist()]
    assert asked.added == len(new) + 1


def test_full_without_a_tokenizer_is_messages_alone():
    asked = ask("full", history(past=1))
    assert len(asked.messages) == 3 and len(asked.token_ids) == asked.added == 0


@pytest.mark.parametrize(
    ("k", "window"),
    [
        (0, []),
        (1, ["Step 3: A drawer. -> act 2"]),
        (2, ["Step 2: A drawer. -> act 1", "Step 3: A drawer. -> act 2"]),
        (9, ["Step 1: A room. -> act 0", "Step 2: A drawer. -> act 1", "Step 3: A drawer. -> act 2"]),
    ],
)
def test_last_k_is_one_fresh_message_with_a_window(k, window):
    words = chat("rewrites")  # a template that cannot be continued serves a fresh prompt a step
    asked = ask("last_k", history(words, past=3), k=k)
    text = "\n".join(["Find the key.", *window, "A drawer.\nActions: open, look"])
    assert asked.messages == [Message("user", text)]
    assert asked.added == len(asked.token_ids) > 0
