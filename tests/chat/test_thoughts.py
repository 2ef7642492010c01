"""Where the words behind the thoughts of an answer begin, in the spellings of published models."""

import time

import pytest

from agentrl.chat import answer_start, opened_thought, without_thoughts
from agentrl.chat.thoughts import SPELLINGS


@pytest.mark.parametrize("tags", SPELLINGS, ids=[tags.opening for tags in SPELLINGS])
def test_every_spelling_is_put_aside(tags):
    for before in ("", "\n ", "Let me think. ") if tags.opening[0] != "t" else ("", " "):
        assert without_thoughts(f"{before}{tags.opening}\nI go <action>left</action>{tags.closing}yes") == "yes"
        cut = f"{before}{tags.opening}\nI go <action>left</action>"
        assert answer_start(cut) is None and without_thoughts(cut) == ""
    twice = f"{tags.opening}a{tags.closing}\n{tags.opening.upper()}b{tags.closing.upper()} yes"
    assert without_thoughts(twice) == " yes"
    assert opened_thought(f"<|im_start|>assistant\n{tags.opening}\n") == tags
    assert opened_thought(f"assistant\n{tags.opening}\n\n{tags.closing}\n\n") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        ("go left", "go left"),
        ("so I go\n</think>\n\nleft", "\n\nleft"),  # the prompt has opened the thought
        ("so</think><think>again</think>left", "left"),
        ("</think></think>left", "</think>left"),
        ("<action>left</action> then <think></think>", "<action>left</action> then <think></think>"),
        ("<action>write <think> here</action>", "<action>write <think> here</action>"),
        ("<action>ok</action><think>more", "<action>ok</action><think>more"),
        ('{"name": "f", "arguments": {"x": "<think>"}}', '{"name": "f", "arguments": {"x": "<think>"}}'),
        ("I think <thin left", "I think <thin left"),
        ("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>yes", "yes"),
        ("<|channel|>final<|message|>yes", "yes"),
        (" to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>yes", "yes"),
        ("\u0130<think>\u0130</think>\u0130", "\u0130"),  # a letter whose small form has two characters
    ],
)
def test_by_hand(text, words):
    assert without_thoughts(text) == words
    assert answer_start(text) == len(text) - len(words)


def test_many_tags_take_linear_time():
    def cpu(text: str) -> float:
        began = time.process_time()
        answer_start(text)
        return time.process_time() - began

    for unit in ("<think>", "</think>", "<think></think>", "a ", "<", "<|channel|>"):
        few, many = (min(cpu(unit * n) for _ in range(3)) for n in (2_000, 20_000))
        assert many < 40 * max(few, 1e-4), unit
