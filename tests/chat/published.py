# ruff: noqa: E501
"""Templates with the constructs of published templates, written anew and short; the end token of each.

The published templates themselves are read where TRL is installed, see tests/chat/test_trl_templates.py.
"""

from typing import NamedTuple


class Published(NamedTuple):
    """A template, its words and how it treats a chat.

    Attributes:
        text: the template.
        end: the tokenizer's eos_token.
        words: further added words, special.
        plain_words: further added words that are not flagged special.
        appends: a chat that is made turn by turn has the tokens of the whole chat.
    """

    text: str
    end: str
    words: tuple[str, ...]
    plain_words: tuple[str, ...] = ()
    appends: bool = True


CHATML = ("<|im_start|>",)
THINK = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
RESULTS = (
    "{% if m.role == 'tool' %}{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}"
    "\n<tool_response>\n{{ m.content }}\n</tool_response>"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
)
CALLS = (
    "{% for c in m.tool_calls or [] %}\n<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}'
)
PUBLISHED = {
    # Qwen3 hybrid: an empty thought in the last turn only, thoughts of earlier turns are dropped
    "empty thought last": Published(
        "{% for m in messages %}" + RESULTS + "{% else %}<|im_start|>{{ m.role }}\n"
        "{% if m.role == 'assistant' and loop.last and '<think>' not in m.content %}<think>\n\n</think>\n\n{% endif %}"
        "{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1].lstrip('\n') }}"
        "{% else %}{{ m.content }}{% endif %}" + CALLS + "<|im_end|>\n{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n"
        "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}",
        "<|im_end|>",
        CHATML,
        THINK,
        appends=False,
    ),
    # Qwen3.5, Qwen3-Thinking-2507: the prompt opens a thought
    "opened thought": Published(
        "{% for m in messages %}" + RESULTS + "{% else %}<|im_start|>{{ m.role }}\n"
        "{% if m.role == 'assistant' and '</think>' not in m.content %}<think>\n\n</think>\n\n{% endif %}{{ m.content }}"
        + CALLS
        + "<|im_end|>\n{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}",
        "<|im_end|>",
        CHATML,
        THINK,
    ),
    # Phi-3.5: another token at the very end, and an eos_token that closes no turn
    "text at the very end": Published(
        "{% for m in messages %}{% if m.role in ('system', 'user', 'assistant') %}<|{{ m.role }}|>\n"
        "{{ m.content }}<|end|>\n{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}",
        "<|endoftext|>",
        ("<|end|>", "<|system|>", "<|user|>", "<|assistant|>"),
    ),
    # gpt-oss: the last answer ends with another token than earlier answers, channels, the date
    "other end token last": Published(
        "<|start|>system<|message|>Current date: {{ strftime_now('%Y-%m-%d') }}<|end|>"
        "{% for m in messages %}{% if m.role == 'assistant' %}{% if m.tool_calls %}"
        "<|start|>assistant to=functions.{{ m.tool_calls[0].function.name }}<|channel|>commentary json<|message|>"
        "{{ m.tool_calls[0].function.arguments | tojson }}<|call|>"
        "{% else %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}"
        "{% if loop.last and not add_generation_prompt %}<|return|>{% else %}<|end|>{% endif %}{% endif %}"
        "{% elif m.role == 'tool' %}{% if not messages[loop.index0 - 1].tool_calls %}{{ raise_exception('no call') }}"
        "{% endif %}<|start|>functions.{{ messages[loop.index0 - 1].tool_calls[0].function.name }} to=assistant"
        "<|channel|>commentary<|message|>{{ m.content | tojson }}<|end|>"
        "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant{% endif %}",
        "<|return|>",
        ("<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|call|>"),
        appends=False,
    ),
    # GLM-4.5: nothing closes a turn, so that the mark of the next message ends it
    "no end token": Published(
        "[gMASK]<sop>{% for m in messages %}{% if m.role == 'assistant' %}<|assistant|>\n{{ m.content }}"
        "{% for c in m.tool_calls or [] %}\n<tool_call>{{ c.function.name }}\n<arg_value>{{ c.function.arguments.x }}"
        "</arg_value>\n</tool_call>{% endfor %}"
        "{% elif m.role == 'tool' %}{% if messages[loop.index0 - 1].role != 'tool' %}<|observation|>{% endif %}"
        "\n<tool_response>\n{{ m.content }}\n</tool_response>{% else %}<|{{ m.role }}|>\n{{ m.content }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
        "<|endoftext|>",
        ("[gMASK]", "<sop>", "<|assistant|>", "<|user|>", "<|system|>", "<|observation|>"),
        ("<tool_call>", "</tool_call>", "<arg_value>", "</arg_value>"),
    ),
    # Gemma: no system messages, users and models in turn
    "strict turns": Published(
        "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
        "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end_of_turn>\n"
        "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
        "<eos>",
        ("<start_of_turn>", "<end_of_turn>"),
    ),
    # Llama 3: headers of several tokens, trimmed contents, the date, one call per turn
    "headers": Published(
        "{{ bos_token }}<|start_header_id|>system<|end_header_id|>\n\nToday Date: {{ strftime_now('%d %b %Y') }}"
        "<|eot_id|>{% for m in messages %}{% if m.tool_calls %}{% if m.tool_calls | length != 1 %}"
        "{{ raise_exception('This model only supports single tool-calls at once!') }}{% endif %}"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
        '{"name": "{{ m.tool_calls[0].function.name }}", "parameters": {{ m.tool_calls[0].function.arguments | tojson }}}'
        "<|eot_id|>{% elif m.role == 'tool' %}<|start_header_id|>ipython<|end_header_id|>\n\n{{ m.content | tojson }}"
        "<|eot_id|>{% else %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
        "<|eot_id|>",
        ("<|start_header_id|>", "<|end_header_id|>"),
    ),
    # Mistral, Llama 2: no header before an answer, a blank around it
    "instructions": Published(
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
        "{% elif m.role == 'assistant' %} {{ m.content }}</s>{% else %}{{ raise_exception('no such role') }}{% endif %}"
        "{% endfor %}",
        "</s>",
        ("[INST]", "[/INST]"),
    ),
    # Mistral 0.3, Nemo: no header before an answer, calls and results as data, ids of nine characters
    "calls without an opening": Published(
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }}[/INST]"
        "{% elif m.tool_calls %}[TOOL_CALLS] [{% for c in m.tool_calls %}{% if c.id | length != 9 %}"
        "{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{% endif %}"
        '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}, "id": "{{ c.id }}"}'
        "{% if not loop.last %}, {% endif %}{% endfor %}]</s>{% elif m.role == 'assistant' %} {{ m.content }}</s>"
        "{% elif m.role == 'tool' %}[TOOL_RESULTS] {{ m.content }}, {{ m.tool_call_id }}[/TOOL_RESULTS]"
        "{% else %}{{ raise_exception('no such role') }}{% endif %}{% endfor %}",
        "</s>",
        ("[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    ),
    # Cohere: two tokens end a turn
    "two end tokens": Published(
        "{{ bos_token }}{% for m in messages %}<|START_OF_TURN_TOKEN|><|{{ m.role | upper }}_TOKEN|>"
        "{% if m.role == 'assistant' %}<|START_RESPONSE|>{{ m.content }}<|END_RESPONSE|>{% else %}{{ m.content }}"
        "{% endif %}<|END_OF_TURN_TOKEN|>{% endfor %}"
        "{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|ASSISTANT_TOKEN|><|START_RESPONSE|>{% endif %}",
        "<|END_OF_TURN_TOKEN|>",
        ("<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|ASSISTANT_TOKEN|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ),
    # DeepSeek-R1-Distill: role marks that are not flagged special, a thought that the history does not repeat
    "marks that are not special": Published(
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}<|Assistant|>"
        "{{ m.content.split('</think>')[-1] }}<|end_of_sentence|>{% else %}<|User|>{{ m.content }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|Assistant|><think>\n{% endif %}",
        "<|end_of_sentence|>",
        (),
        ("<|User|>", "<|Assistant|>", "<think>", "</think>"),
        appends=False,
    ),
    # models of pictures: the content is a list of parts
    "parts": Published(
        "{% for m in messages %}{{ m.role | capitalize }}:{% for part in m.content %}{% if part.type == 'text' %} "
        "{{ part.text }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
        "{% if add_generation_prompt %}Assistant:{% endif %}",
        "<end_of_utterance>",
        (),
    ),
}
