"""A tiny Qwen3 with random weights and the toy tokenizer, as a folder: SkyRL's JAX back end reads this architecture.

Its weights are large for a random model, so that adapters beside them can make an answer nearly certain.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from agentrl.model import Loaded, save_model, toy_tokenizer


def model_folder(folder: Path, seed: int = 0, words: Any = None, **options: Any) -> Path:
    """Write the model; returns the folder.

    Args:
        folder: a folder that does not exist.
        seed: of the weights.
        words: the tokenizer; None for the toy tokenizer.
        options: of the configuration.
    """
    words = words or toy_tokenizer()
    config = Qwen3Config(  # without pad_token_id: the embedding of that token would be 0, and it ends an answer here
        **{
            "vocab_size": len(words),
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": 512,
            "tie_word_embeddings": True,
            "initializer_range": 0.3,
            "eos_token_id": words.eos_token_id,
            **options,
        }
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config).to(torch.float32).eval()
    save_model(Loaded(model, words), folder)
    return folder
