"""Every model family that people train, tiny and with random weights, is trained, stopped, resumed and loaded again.

The classes are transformers' own, the templates those that TRL publishes. The tokenizers are of the family's type
(byte-level BPE, or SentencePiece with a normalizer), with one token per letter in place of a published vocabulary.
"""

import json
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from agentrl.chat import Chat
from agentrl.cli import main
from tests.chat.letters import byte_letters
from tests.chat.test_trl_templates import WORD, folder

pytestmark = [pytest.mark.foreign, pytest.mark.slow]

RECIPE = """
[run]
checkpoint_every = 1
keep = 9
[env]
name = "tests.toys.lengths"
split = "train"
[eval]
every = 0
tasks = 1
[eval.env]
split = "test"
[engine]
max_context = 3000
[limits]
turns = 3
turn_tokens = 12
[warmup]
updates = 0
[batch]
tasks = 2
copies = 4
[credit]
name = "grpo"
[optim]
name = "adamw"
lr = 1e-3
"""
SHAPE = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 4096,
}  # fmt: skip
HYBRID = {
    **SHAPE, "num_hidden_layers": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
}  # fmt: skip
EXPERTS = {**SHAPE, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 64}
GLM = {
    **SHAPE, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 32,
    "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
}  # fmt: skip


class Family(NamedTuple):
    """A model class, its configuration, template, end token and kind of tokenizer, and what a note says of packing."""

    model: str
    config: str
    shape: dict[str, Any]
    template: str
    end: str
    kind: str = "bytes"
    packed: str = "packed as trees"


FAMILIES = {
    "qwen3": Family("Qwen3ForCausalLM", "Qwen3Config", SHAPE, "qwen3", "<|im_end|>"),
    "qwen3.5": Family(
        "Qwen3_5ForCausalLM", "Qwen3_5TextConfig", HYBRID, "qwen3_5_think", "<|im_end|>", packed="linear_attention"
    ),
    "llama3.2": Family("LlamaForCausalLM", "LlamaConfig", SHAPE, "llama3_2", "<|eot_id|>"),
    "gemma3": Family(
        "Gemma3ForCausalLM", "Gemma3TextConfig", {**SHAPE, "sliding_window": 64, "query_pre_attn_scalar": 16}, "gemma3",
        "<eos>", "spaces", "sliding_attention",
    ),
    "gpt-oss": Family(
        "GptOssForCausalLM", "GptOssConfig", EXPERTS, "gptoss", "<|return|>", packed="sliding_attention"
    ),
    "phi3.5": Family("Phi3ForCausalLM", "Phi3Config", SHAPE, "phi3_5", "<|endoftext|>", "prepended"),
    "glm4.5": Family("Glm4MoeForCausalLM", "Glm4MoeConfig", GLM, "glm4moe", "<|endoftext|>"),
}  # fmt: skip


def core(kind: str) -> Tokenizer:
    if kind == "bytes":
        return byte_letters()
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *sorted({*string.printable, "\u2581"})]
    made = Tokenizer(models.BPE({w: i for i, w in enumerate(words)}, [], unk_token="<unk>", byte_fallback=True))
    steps = [normalizers.Replace(" ", "\u2581")]
    made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), *steps] if kind == "prepended" else steps)
    made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return made


def tokenizer(family: Family) -> Any:
    text = (folder() / f"{family.template}.jinja").read_text(encoding="utf-8")
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core(family.kind), eos_token=family.end, bos_token="<bos>", pad_token="<pad>"
    )
    soft = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
    swallows = family.template.startswith("phi3")  # as Phi-3's own words do
    made.add_tokens(
        [
            AddedToken(word, special=word not in soft, normalized=False, rstrip=swallows)
            for word in dict.fromkeys(WORD.findall(text))
        ]
    )
    made.chat_template = text
    return made


def write_model(family: Family, where: Path) -> None:
    words = tokenizer(family)
    ids = {"eos_token_id": words.eos_token_id, "bos_token_id": words.bos_token_id, "pad_token_id": words.pad_token_id}
    torch.manual_seed(0)
    config: Callable[..., Any] = getattr(transformers, family.config)
    getattr(transformers, family.model)(config(vocab_size=len(words), **ids, **family.shape)).save_pretrained(where)
    words.save_pretrained(where)


def train(model: Path, folder: Path, *words: str) -> list[dict[str, Any]]:
    """Train on the toy tool environment; returns the rows of the updates, without times."""
    recipe = folder / "recipe.toml"
    folder.mkdir(exist_ok=True)
    recipe.write_text(RECIPE)
    assert main(["train", str(recipe), f"model.path={model}", f"run.folder={folder}", "run.name=run", *words]) == 0
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    timed = ("seconds", "_s", "tokens_per")
    return [{k: v for k, v in r.items() if not any(t in k for t in timed)} for r in rows if r["stage"] == "train"]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_trained_stopped_resumed_and_loaded(name, tmp_path, capfd):
    family = FAMILIES[name]
    write_model(family, tmp_path / "model")
    train(tmp_path / "model", tmp_path / "stopped", "run.iterations=1")
    said = capfd.readouterr().err
    assert family.packed in said
    rows = train(tmp_path / "model", tmp_path / "stopped", "run.iterations=2", "--resume")
    assert rows == train(tmp_path / "model", tmp_path / "whole", "run.iterations=2")
    assert [row["step"] for row in rows] == [0, 1]
    assert all(row["mismatch_max"] < 1e-4 for row in rows)  # engine and trainer agree, in nats
    (last,) = sorted((tmp_path / "stopped" / "run" / "checkpoints").iterdir())[-1].glob("policy")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(last)
    words = transformers.AutoTokenizer.from_pretrained(last)
    assert type(loaded).__name__ == family.model
    assert Chat(words).end_ids == Chat(tokenizer(family)).end_ids


def test_template_arguments_hold_in_training_checkpoints_and_evaluations(tmp_path, capfd):
    write_model(FAMILIES["qwen3"], tmp_path / "model")
    train(tmp_path / "model", tmp_path, "run.iterations=1", "model.template.enable_thinking=false")
    (last,) = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1].glob("policy")
    trained = Chat(transformers.AutoTokenizer.from_pretrained(last))
    assert trained.turns.opening.endswith("<think>\n\n</think>\n\n")
    assert main(["model", "export", str(tmp_path / "run"), str(tmp_path / "exported")]) == 0
    exported = Chat(transformers.AutoTokenizer.from_pretrained(tmp_path / "exported"))
    assert exported.turns.opening == trained.turns.opening
    words = ["eval", "tests.toys.lengths", "--tasks", "1", "limits.turn_tokens=8", "--json"]
    for policy, more in ((tmp_path / "run", []), (tmp_path / "model", ["model.template.enable_thinking=false"])):
        assert main([*words, "--policy", str(policy), *more]) == 0
    capfd.readouterr()
    assert main([*words, "--policy", str(tmp_path / "run"), "model.template.enable_thinking=false"]) == 2
    assert "model.template is an option of model folders" in capfd.readouterr().err
    assert main([*words, "--policy", str(tmp_path / "model"), "model.template.enable_thinkin=false"]) == 2
    assert "did you mean enable_thinking?" in capfd.readouterr().err
