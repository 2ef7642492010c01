"""What a run is told of a chat template that does not fit."""

import pytest

from agentrl.chat import Chat, build_word_tokenizer
from agentrl.env import Plain, prompt_of
from agentrl.tool import load_format
from agentrl.tool_env import template_fit
from agentrl.tool_env.tools_prompt import ToolWords, broken_turn, conversation
from tests.chat.chats import TEMPLATES, tokenizer
from tests.tool_env.test_prompt import ON, PLAIN, QWEN

SCHEMAS = prompt_of(ON).schemas


def words(name: str) -> ToolWords:
    return ToolWords(load_format(name, SCHEMAS), SCHEMAS)


def test_a_template_that_fits_has_nothing_to_be_said():
    assert template_fit(Chat(tokenizer(QWEN)), words("hermes")) == ""
    assert template_fit(Chat(build_word_tokenizer(["a b"])), words("hermes")) == ""
    assert template_fit(Chat(tokenizer(PLAIN)), Plain()) == ""


def test_a_format_the_template_does_not_teach_is_named_with_the_one_it_does():
    said = template_fit(Chat(tokenizer(QWEN)), words("xml_parameters"))
    assert "does not teach call_format=xml_parameters" in said and "env.call_format=hermes" in said


def test_a_template_without_a_role_for_tools_says_where_answers_go():
    said = template_fit(Chat(tokenizer(PLAIN)), words("hermes")).splitlines()
    assert len(said) == 2 and "the system message has the tools" in said[0] and "no role for tools" in said[1]


# every call but the last turn's loses its first letter
FORGETS = QWEN.replace(
    "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}",
    "{% else %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.index0 + 2 < messages | length %}"
    "{{ m.content | replace('<', '', 1) }}{% else %}{{ m.content }}{% endif %}",
)


def test_the_turn_that_is_rewritten_is_named():
    assert "rewrites turns as soon as later turns begin" in template_fit(Chat(tokenizer(FORGETS)), words("hermes"))
    thinking = template_fit(Chat(tokenizer(TEMPLATES["thinking"])), words("hermes"))
    assert "drops the thinking of turn 0" in thinking and "rewrites turn" not in thinking


@pytest.mark.parametrize("name", ["hermes", "llama_json", "xml_parameters", "action"])
def test_every_format_appends_in_a_plain_template(name):
    form = load_format(name, SCHEMAS)
    for template in (QWEN, PLAIN, TEMPLATES["plain"], TEMPLATES["tight"]):
        assert broken_turn(Chat(tokenizer(template)), conversation(form, SCHEMAS)) == ""
