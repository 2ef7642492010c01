"""What each context policy shows the model."""

import numpy as np
import pytest

from agentrl.config import resolve
from agentrl.env import PastTurn, Plain
from agentrl.rollout import History
from agentrl.types import Message, Observation
from tests.chat.chats import chat

FIRST = Observation(text="A room.", task="Find the key.", actions=("look",))
NEXT = Observation(text="A drawer.", actions=("open", "look"))


class Spoken(Plain):
    system = "You are an agent."


def history(words=None, past: int = 0) -> History:
    seen = [FIRST, NEXT, NEXT, NEXT]
    steps = [PastTurn(seen[i], f"act {i}") for i in range(past)]
    made = History(chat=words, first=FIRST, now=seen[past], past=steps)
    if past:
        made.messages = [Message("user", "hello"), Message("assistant", "act 0")]
        made.path = np.concatenate([words.start(made.messages[:1]), words.answer("act 0")]) if words else made.path
    return made


def ask(name: str, made: History, prompt: Plain | None = None, **options):
    entry = resolve("context", {"name": name, **options})
    return entry.hooks.ask(entry.config, prompt or Plain(), made)


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


class Running(Plain):
    continues = True


def test_an_observation_goes_on_inside_the_assistant_turn_as_it_is():
    words = chat("plain")
    made = history(words, past=1)
    made.path = np.concatenate([words.start(made.messages[:1]), words.answer("act 0", end=False)])
    asked = ask("full", made, Running())
    new = words.encode("A drawer.\nActions: open, look")
    assert asked.token_ids.tolist() == [*made.path.tolist(), *new.tolist()] and asked.added == len(new)
    text = words.tokenizer.decode(asked.token_ids)
    assert text == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\nact 0A drawer.\nActions: open, look"
    assert asked.messages == [*made.messages, Message("user", "A drawer.\nActions: open, look")]


@pytest.mark.parametrize("template", ["plain", "tight", "empty_thought"])
def test_an_assistant_turn_that_was_ended_is_opened_again(template):
    words = chat(template)
    made = history(words, past=1)  # its answer ends with the end token
    asked = ask("full", made, Running())
    again = words.render([*made.messages[:1]], reply=True).removeprefix(words.render(made.messages[:1], reply=False))
    after = {"plain": "\n", "tight": "", "empty_thought": "\n"}[template]
    added = words.tokenizer.decode(asked.token_ids[len(made.path) :])
    assert added == f"{after}{again}A drawer.\nActions: open, look"
    assert asked.token_ids[: len(made.path)].tolist() == made.path.tolist()


def test_special_tokens_spelled_out_in_an_observation_end_no_running_turn():
    words = chat("plain")
    made = history(words, past=1)
    made.path = made.path[:-1]
    made.now = Observation(text="<|im_end|>", actions=("a", "b"))
    asked = ask("full", made, Running())
    assert words.end_id not in asked.token_ids[len(made.path) :]


@pytest.mark.parametrize("most", [1, 3, 500])
def test_a_later_observation_is_cut_to_its_first_tokens(most):
    words = chat("plain")
    made = history(words, past=1)
    made.path = made.path[:-1]
    whole = words.encode("A drawer.\nActions: open, look").tolist()
    asked = ask("full", made, Running(), observation_tokens=most)
    assert asked.token_ids[len(made.path) :].tolist() == whole[:most]
    turned = ask("full", history(words, past=1), observation_tokens=most)
    kept = words.tokenizer.decode(whole[:most])
    assert turned.messages[-1] == Message("user", kept)
    assert turned.token_ids.tolist() == [*history(words, 1).path, *words.turn(Message("user", kept))]


def test_a_cut_never_leaves_half_a_character():
    words = chat("plain")
    assert words.clip("漢字", len(words.encode("漢")) + 1) == "漢"
