"""A pretrained language model in small: a tied Llama with a byte-level BPE tokenizer, whose template adds a system
message, as SmolLM2's does. Its rounding in bfloat16 is as large as that of a pretrained model."""

from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agentrl.model import Loaded, save_model
from tests.chat.chats import TEMPLATES, tokenizer


def language_model(seed: int = 0, dtype: torch.dtype = torch.bfloat16, **options: Any) -> Loaded:
    """The model with random weights, and its tokenizer."""
    words = tokenizer(TEMPLATES["default_system"])
    config = LlamaConfig(
        **{
            "vocab_size": len(words),
            "hidden_size": 48,
            "intermediate_size": 64,
            "num_hidden_layers": 3,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "max_position_embeddings": 4096,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100_000.0},
            "tie_word_embeddings": True,
            "initializer_range": 0.1,
            "bos_token_id": words.convert_tokens_to_ids("<|im_start|>"),
            "eos_token_id": words.eos_token_id,
            "pad_token_id": words.eos_token_id,
            **options,
        }
    )
    torch.manual_seed(seed)
    return Loaded(LlamaForCausalLM(config).to(dtype).eval(), words)


def model_folder(folder: Path, **options: Any) -> Path:
    """The model as a folder in the HF layout."""
    save_model(language_model(**options), folder)
    return folder
