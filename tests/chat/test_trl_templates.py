"""Every chat template that TRL publishes as a data file: originals of model families, and TRL's training variants.

The files are taken from TRL's package, which is downloaded once into .venv-foreign (make foreign). No template file has
the tokenizer of its model beside it, so each gets a byte-level tokenizer with the words of the template as added words.
"""

import re
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from agentrl.chat import Chat, rewritten, template_report
from agentrl.chat.notes import difference
from agentrl.types import Message, ToolCall
from tests.chat.letters import byte_letters

pytestmark = [pytest.mark.foreign, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
WORD = re.compile(
    r"<\|[A-Za-z_0-9/]+\|>|<\uff5c[^\uff5c<>]+\uff5c>|</?s>|<(?:start|end)_of_turn>|\[/?[A-Z_]{3,}\]|</?think>"
    r"|</?tool_call>|</?tool_response>|<\|[a-z_]+>|<[a-z_]+\|>|<end_of_utterance>|\[gMASK\]|<sop>|</?arg_(?:key|value)>"
)
ENDS = {  # family -> eos_token of the published tokenizers
    "cohere": "<|END_OF_TURN_TOKEN|>", "deepseek": "<\uff5cend\u2581of\u2581sentence\uff5c>", "gemma": "<eos>",
    "diffusion_gemma": "<eos>", "glm": "<|endoftext|>", "gptoss": "<|return|>", "idefics": "<end_of_utterance>",
    "smolvlm": "<end_of_utterance>", "lfm": "<|im_end|>", "llama": "<|eot_id|>", "llava": "</s>", "muse": "<|eot|>",
    "nemotron": "<|im_end|>", "phi": "<|endoftext|>", "qwen": "<|im_end|>",
}  # fmt: skip
# Training variants that do not only append, and why.
NOT_APPENDING = {
    "deepseek": "the prompt opens a thought that the history does not repeat",
    "nemotron": "the prompt opens a thought in other blanks than the history",
    "gptoss": "the last answer has another end token",
}


@cache
def folder() -> Path:
    """The template files of TRL."""
    place = ROOT / ".venv-foreign" / "trl-1.16.0"
    if not any(place.glob("*.whl")):
        place.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(place), "trl==1.16.0"]
        subprocess.run(pip, check=True)
    if not (place / "trl" / "chat_templates").is_dir():
        with zipfile.ZipFile(next(place.glob("*.whl"))) as wheel:
            wheel.extractall(place, [name for name in wheel.namelist() if "/chat_templates/" in name])
    return place / "trl" / "chat_templates"


@cache
def chat(name: str) -> Chat:
    text = (folder() / f"{name}.jinja").read_text(encoding="utf-8")
    end = next(end for family, end in ENDS.items() if name.startswith(family))
    made = PreTrainedTokenizerFast(tokenizer_object=byte_letters(), eos_token=end, bos_token="<bos>")
    words = dict.fromkeys(WORD.findall(text))
    thoughts = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
    made.add_tokens([AddedToken(word, special=word not in thoughts, normalized=False) for word in words])
    made.chat_template = text
    return Chat(made)


CALL = '<tool_call>\n{"name": "f", "arguments": {"x": "y"}}\n</tool_call>'
PLAIN = [
    Message("system", "be brief"),
    Message("user", "q"),
    Message("assistant", "one"),
    Message("user", "r"),
    Message("assistant", "two"),
    Message("user", "s"),
    Message("assistant", "three"),
]
TOOLS = [
    Message("user", "q"),
    Message("assistant", f"{CALL}"),
    Message("tool", "42", "f"),
    Message("assistant", f"so {CALL}\n{CALL}"),
    Message("tool", "43", "f"),
    Message("tool", "44", "f"),
    Message("assistant", "done"),
    Message("user", "v"),
    Message("assistant", "bye"),
]


def names() -> list[str]:
    try:
        return sorted(path.stem for path in folder().glob("*.jinja"))
    except (OSError, subprocess.CalledProcessError):
        return []


def test_there_are_41_published_templates_and_31_training_variants():
    training = [name for name in names() if name.endswith("_training")]
    assert (len(names()) - len(training), len(training)) == (41, 31)


@pytest.mark.parametrize("messages", [PLAIN, TOOLS], ids=["plain", "tools"])
def test_a_chat_made_turn_by_turn_is_the_whole_chat_but_for_thoughts_and_ends(messages):
    wrong, differing = {}, []
    for name in names():
        if found := difference(chat(name), messages):
            differing.append(name)
            # DeepSeek's templates write the beginning of results once per chat, wherever it is.
            # GLM's training variant ends a turn as if a user answered, unless the calls are data.
            odd = name.startswith(("deepseek", "glm")) and messages is TOOLS
            if not odd and (rest := rewritten(chat(name), messages)):
                wrong[name] = rest
        exempt = name.startswith((*NOT_APPENDING,)) or (name.startswith("glm") and messages is TOOLS)
        if name.endswith("_training") and found and not exempt:
            wrong[name] = found
    assert not wrong
    families = {re.sub(r"(_[0-9a-z]+)*$", "", name) for name in differing}
    assert families <= {"deepseek", "deepseekv3", "glm4moe", "gptoss", "nemotron", "qwen3"}


def test_what_differs_is_named():
    silent = [
        name
        for name in names()
        if (difference(chat(name), PLAIN) or difference(chat(name), TOOLS)) and not template_report(chat(name))
    ]
    assert silent == []


@pytest.mark.parametrize("count", [1, 2])
def test_results_of_calls_as_data_are_the_end_of_the_whole_chat(count):
    wrong, single = {}, []
    for name in names():
        words, calls = chat(name), tuple(ToolCall(f"call0000{i}", "f", '{"x": "y"}') for i in range(count))
        if words.turns.calls is None:
            continue
        results = [Message("tool", f"r{i}", "f") for i in range(count)]
        try:
            whole = words.render([Message("user", "q"), Message("assistant", "", "", calls), *results], reply=True)
        except ValueError:
            single.append(name)
            continue
        end = words.turns.calls.end
        other = end not in ("", words.turns.end)  # the token that ends a turn with calls ends no other turn
        turn = words.turn(*results, end=words.tokenizer.convert_tokens_to_ids(end) if other else None)
        if not whole.endswith(words.tokenizer.decode(turn)):
            wrong[name] = words.tokenizer.decode(turn)
    assert not wrong
    assert single == (["llama3_1", "llama3_2"] if count > 1 else [])  # "only supports single tool-calls at once"
