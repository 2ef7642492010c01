"""What a model reads of tools and their answers: by its chat template, or in words where that has none for tools."""

import json
from typing import Any

import numpy as np

from agentrl.chat import Chat
from agentrl.env import make_pool, prompt_of, tasks_of
from agentrl.rollout import ExpertActor
from agentrl.tool_env import environment
from agentrl.types import Message
from tests.chat.chats import tokenizer
from tests.rollout.playing import entry, play_all, player
from tests.toys import sums

ON = entry("tests.toys.sums")


def written(name: str, **arguments: Any) -> str:
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


QWEN = (
    "{% if tools %}<|im_start|>system\n<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>"
    ' write <tool_call>{"name": , "arguments": }</tool_call><|im_end|>\n{% endif %}'
    "{% for m in messages %}{% if m.role == 'tool' %}"
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}"
    "\n<tool_response>\n{{ m.content }}\n</tool_response>"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
    "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PLAIN = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def prompts(template: str) -> str:
    """Everything a model saw and said in an episode of two tool turns, decoded from the stored tokens."""
    chat = Chat(tokenizer(template))
    actor = ExpertActor("expert", prompt_of(ON), chat)
    (record,) = play_all(player(ON, make_pool(ON, "inline"), actor=actor), [tasks_of(ON)[7]])
    ids = [i for s in record.steps for i in (*s.added.tolist(), *s.generation.token_ids.tolist())]
    return str(chat.tokenizer.decode(ids))


def test_the_template_writes_tools_and_their_answers_where_it_can():
    schema = prompt_of(ON).schemas[0]
    text = prompts(QWEN)
    assert json.dumps(schema, ensure_ascii=False) in text and "# Tools" not in text
    call = written("add", a=1, b=2)
    assert f"What is 1 + 2?<|im_end|>\n<|im_start|>assistant\n{call}<|im_end|>\n" in text
    assert text.endswith(
        "<|im_start|>user<tool_response>\n3\n</tool_response><|im_end|>\n<|im_start|>assistant\n3<|im_end|>"
    )


def test_else_they_stand_in_the_system_message_and_results_in_the_users():
    text = prompts(PLAIN)
    assert text.startswith("<|im_start|>system\n# Tools") and '"name": "add"' in text
    assert text.endswith("<|im_start|>user\n3<|im_end|>\n<|im_start|>assistant\n3<|im_end|>")


def test_tools_can_be_left_out_of_the_prompt():
    hidden = environment(sums.Sums, show_tools=False, module=__name__)
    assert hidden.prompt(hidden.Config()).show(None, None).system == ""  # type: ignore[arg-type]


def test_the_word_tokenizer_speaks_tools():
    from agentrl.chat import build_word_tokenizer
    from agentrl.run import vocabulary

    words = prompt_of(ON)
    seen = sums.make(sums.Config()).reset(tasks_of(ON)[7])
    built = build_word_tokenizer([vocabulary.opening(words, seen), "\n3", written("add", a=1, b=2)])
    chat = Chat(built)
    assert words.show(seen, chat).tools == words.schemas
    ids = np.concatenate([chat.start([Message("user", seen.text)], words.schemas), chat.turn(Message("tool", "3"))])
    assert built.unk_token_id not in ids.tolist()
    assert built.decode(ids).startswith('Tools:\n{"name": "add"') and built.decode(ids).endswith("3<|im_start|>")
