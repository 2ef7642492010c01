"""A task for two trainers: read pages until you say "stop". Plain functions, so that neither side needs the other.

Every answer is free text. An answer without the word "stop" gets the next page, up to five answers; the reward is the
share of the task's four words that the answers hold.
"""

import random
import re
from collections.abc import Sequence

STARTS = ("ka", "lo", "mi", "nu", "pe", "ra", "so", "ti", "va", "wu", "ze", "bri", "clo", "dra", "fli", "gru")
WORDS = tuple(f"{a}{b}" for a in STARTS for b in ("ban", "dor", "fel", "gim", "hok", "jat", "kus", "lem"))
STOP = "stop"
ANSWERS = 5
TEMPLATE = """\
{%- for message in messages -%}
{%- if message['role'] == 'assistant' -%}
{{- '<|im_start|>' + message['content'] -}}
{%- for call in message['tool_calls'] or [] -%}
{{- call['function']['name'] + (call['function']['arguments'] | tojson) -}}
{%- endfor -%}
{{- '<|im_end|>' -}}
{%- else -%}
{{- message['content'] -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>' -}}{%- endif -%}
"""


def page(task: int, number: int, words: int) -> str:
    """A page of a task; number 0 is the question."""
    drawn = random.Random(f"{task}-{number}")
    return " ".join(drawn.choice(WORDS) for _ in range(words))


def stops(answer: str) -> bool:
    """Does the answer end the episode?"""
    return STOP in re.findall(r"\w+", answer)


def reward(task: int, answers: Sequence[str]) -> float:
    """Share of the task's four words that the answers hold."""
    wanted = set(random.Random(task).sample(WORDS, 4))
    return len(wanted & set(re.findall(r"\w+", " ".join(answers)))) / len(wanted)
