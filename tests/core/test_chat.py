"""Chat templates as token streams: a continued prompt is what the template would give, token by token."""

import numpy as np
import pytest

from agentrl.chat import Chat, template_report
from agentrl.types import Message
from tests.core.chats import TEMPLATES, chat, tokenizer

TURNS = [
    "You are at 0, the goal is 2.",
    " padded  ",
    "",
    "Ünïcode 漢字\n\n",
    "You are at 1.\nActions: left, right",
]
ANSWERS = ["right", "left", "Ü", "left right", "right"]


def continued(words: Chat, system: str = "") -> tuple[np.ndarray, str]:
    """The token path of the whole chat, prompt by prompt, and the template's text of it."""
    messages = [Message("system", system)] if system else []
    path = np.zeros(0, np.int64)
    for turn, answer in zip(TURNS, ANSWERS, strict=True):
        message = Message("user", turn)
        added = words.turn(message) if len(path) else words.start([*messages, message])
        path = np.concatenate([path, added, words.answer(answer)])
        messages += [message, Message("assistant", answer)]
    return path, words.render(messages, reply=False)


@pytest.mark.parametrize("name", ["plain", "tight", "thinking"])
@pytest.mark.parametrize("system", ["", "Be brief."])
def test_a_continued_chat_is_the_rendered_chat_token_by_token(name, system):
    words = chat(name)
    path, text = continued(words, system)
    end = text.rindex("<|im_end|>") + len("<|im_end|>")  # what follows the last end token belongs to the next turn
    np.testing.assert_array_equal(path, words.encode(text[:end]))


def test_an_opened_assistant_turn_stays_in_the_path_as_the_model_saw_it():
    words = chat("empty_thought")
    path, _ = continued(words)
    decoded = words.tokenizer.decode(path)
    # each prompt ends with the empty thought, the template's own history would not repeat it
    assert decoded.count("<think></think>") == len(TURNS)
    assert decoded.startswith(
        "<|im_start|>user\nYou are at 0, the goal is 2.<|im_end|>\n<|im_start|>assistant\n<think>"
    )


def test_sampled_ids_are_never_encoded_again():
    words = chat("plain")
    odd = np.array([*words.encode("le"), *words.encode("ft"), words.end_id])  # "left" in other tokens than encode's
    assert odd.tolist() != words.answer("left").tolist()
    path = np.concatenate([words.start([Message("user", "where?")]), odd, words.turn(Message("user", "and now?"))])
    assert odd.tolist() == path[-len(odd) - len(words.turn(Message("user", "and now?"))) :][: len(odd)].tolist()
    assert words.tokenizer.decode(path) == words.render(
        [Message("user", "where?"), Message("assistant", "left"), Message("user", "and now?")], reply=True
    )


def test_a_template_that_rewrites_earlier_turns_says_so_at_the_first_continuation():
    words = chat("rewrites")
    words.start([Message("user", "hello")])  # one prompt alone is fine
    with pytest.raises(ValueError, match=r"rewrites earlier turns.*context\.name=last_k"):
        words.turn(Message("user", "again"))


@pytest.mark.parametrize(
    ("template", "eos", "sentence"),
    [
        (None, "<|im_end|>", "has no chat template"),
        (TEMPLATES["plain"], None, "has no end token"),
        (TEMPLATES["open_ended"], "<|im_end|>", r"does not close assistant turns with '<\|im_end\|>'"),
    ],
)
def test_tokenizers_that_cannot_chat_are_refused_with_a_reason(template, eos, sentence):
    with pytest.raises(ValueError, match=sentence):
        Chat(tokenizer(template, eos))


def test_the_report_names_templates_that_drop_thinking():
    assert template_report(chat("plain")) == ""
    assert "drops the thinking of turn 0" in template_report(chat("thinking"))


def test_answers_end_with_the_end_token_once():
    words = chat("plain")
    assert words.answer("left").tolist() == [*words.encode("left").tolist(), words.end_id]
    assert words.answer("").tolist() == [words.end_id]
