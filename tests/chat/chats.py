"""Small byte-level tokenizers with the chat templates that exist in the wild."""

from functools import cache
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from agentrl.chat import Chat

OPEN = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
TEMPLATES = {
    # ChatML, append-only
    "plain": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" + OPEN,
    # SmolLM2: a system message of its own where the chat has none
    "default_system": "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    # no newline after the end token, and content is trimmed
    "tight": "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}",
    # Qwen3: the thinking of earlier assistant turns is dropped
    "thinking": "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1] }}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}" + OPEN,
    # messages of tools have a role of their own, which stands in a user turn (Qwen2.5)
    "tool_role": "{% for m in messages %}<|im_start|>{% if m.role == 'tool' %}user\n<tool_response>\n{{ m.content }}\n"
    "</tool_response>{% else %}{{ m.role }}\n{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}" + OPEN,
    # the assistant turn is opened with an empty thought, which the history does not repeat
    "empty_thought": "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think></think>{% endif %}",
    # earlier turns depend on what follows: cannot be continued
    "rewrites": "{{ messages | length }} messages\n"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" + OPEN,
    # assistant turns are never closed
    "open_ended": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
}


@cache
def _vocabulary() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|im_start|>", "<|im_end|>"],
    )
    tokenizer.train_from_iterator(["left right user assistant system the goal is You are at left right"] * 9, trainer)
    return tokenizer


def tokenizer(template: str | None, eos: str | None = "<|im_end|>") -> Any:
    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(_vocabulary().to_str()), eos_token=eos)
    made.add_special_tokens({"additional_special_tokens": [AddedToken("<|im_start|>", special=True)]})
    made.chat_template = template
    return made


def chat(name: str) -> Chat:
    return Chat(tokenizer(TEMPLATES[name]))
