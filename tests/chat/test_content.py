"""The text of a message whose content is a text or a list of parts; by every entry point of the same message."""

import pytest

from agentrl.chat import text_of_content
from agentrl.envs.code_math.problems import read as read_problem
from agentrl.http import Refusal
from agentrl.programs.requests import read_chat, read_responses
from agentrl.tool_env import environment
from agentrl.types import Message

TWO = [{"type": "text", "text": "How many "}, {"type": "text", "text": "r?"}]
IMAGE = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": "data:"}}]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        (None, ""),
        ([], ""),
        (TWO, "How many r?"),
        ([{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b"}], "ab"),
        ([{"type": "text", "text": None, "image_url": None}], ""),  # columns of a table of rows
        ([{"type": "refusal", "refusal": "no"}], "no"),
        ([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "1"}], "1"),
        ([{"type": "reasoning", "summary": []}, {"type": "text", "text": "1"}], "1"),
    ],
)
def test_texts_by_hand(content, text):
    assert text_of_content(content, "it") == text
    asked = read_chat({"messages": [{"role": "user", "content": content}]})
    assert asked.messages[0].content == text
    assert read_responses({"input": [{"role": "user", "content": content}]}).messages == asked.messages


@pytest.mark.parametrize("content", [5, {"text": "a"}, ["a"], [None], IMAGE, [{"type": "text", "text": 5}], [{}]])
def test_what_is_no_text_is_named(content):
    with pytest.raises(ValueError, match=r"it (is neither a text|has a part of type)"):
        text_of_content(content, "it")
    with pytest.raises(Refusal, match=r"messages\[0\]\.content (is neither|has a part of type)"):
        read_chat({"messages": [{"role": "user", "content": content}]})


def test_the_prompt_of_a_row_may_have_parts():
    class Counts:
        def reset(self) -> None: ...

        def reward(self, answer: str) -> float:
            return float(answer == "3")

    system = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    rows = [{"prompt": [system, {"role": "user", "content": TWO}]}, {"prompt": [{"role": "user", "content": IMAGE}]}]
    hooks = environment(Counts, rows=rows, module=__name__)
    config = hooks.Config()
    first, second = hooks.tasks(config)
    seen = hooks.make(config).reset(first)
    assert seen.text == "How many r?" and seen.messages == (Message("system", "Be brief."), Message("user", seen.text))
    with pytest.raises(ValueError, match="the content of the first message has a part of type 'image_url'"):
        hooks.make(config).reset(second)
    problem = {"prompt": [{"role": "user", "content": TWO}], "answer": "3"}
    assert "How many r?" in str(read_problem(problem, "row 1"))
    with pytest.raises(ValueError, match="row 1: the content of its prompt has a part of type 'image_url'"):
        read_problem({**problem, "prompt": [{"role": "user", "content": IMAGE}]}, "row 1")
