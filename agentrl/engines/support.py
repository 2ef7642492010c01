"""Which models the embedded engine can run packed: models whose layers are all plain causal attention."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

# Largest allowed difference between a plain and a packed logit, divided by the largest |logit|; 0.1 for other types.
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}


def base_config(model: Any) -> Any:
    """The configuration of the model's text part."""
    config = model.config
    return config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config


def end_ids(named: int | Sequence[int] | None, tokenizer: Any) -> frozenset[int]:
    """The ids that end an answer: the tokenizer's end token, and the ids `named` by a generation configuration.

    Raises:
        ValueError: neither names an end token.
    """
    found: set[int] = set()
    for ids in (getattr(tokenizer, "eos_token_id", None), named):
        found.update([ids] if isinstance(ids, int) else ids or ())
    if not found:
        raise ValueError(
            "neither the tokenizer nor the model names an end token: set eos_token in the tokenizer, or pass end_ids"
        )
    return frozenset(found)


def unsupported(model: Any, context: int) -> str:
    """Why this model's keys and values cannot be kept in slots, read from its configuration; empty if they can.

    Args:
        model: a transformers causal language model, or peft around one.
        context: largest number of tokens per sequence; a sliding window of at least this many tokens has no effect.
    """
    config = base_config(model)
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    slides = window is not None and 0 < window < context
    plain = {"full_attention", "attention"} if slides else {"full_attention", "attention", "sliding_attention"}
    kinds = set(getattr(config, "layer_types", None) or ()) - plain
    if slides and not hasattr(config, "layer_types"):
        kinds = {"sliding_attention"}
    if kinds:
        named = ", ".join(sorted(kinds)) + (f" over {window} tokens" if "sliding_attention" in kinds else "")
        return f"{type(inner).__name__} has layers that are not plain attention: {named}"
    for name in ("attn_logit_softcapping", "attention_chunk_size", "kv_lora_rank", "state_size", "ssm_cfg"):
        if getattr(config, name, None):
            return f"{type(inner).__name__} sets {name}, which plain attention does not have"
    if not getattr(inner, "_supports_attention_backend", False):
        return f"{type(inner).__name__} does not take a registered attention function"
    if getattr(config, "alibi", False) or getattr(config, "is_encoder_decoder", False):
        return f"{type(inner).__name__} does not place tokens by position ids alone"
    return ""


def disagreement(plain: Tensor, packed: Tensor) -> str:
    """Empty if the plain and the packed logits agree up to rounding, else the difference in words."""
    scale = float(plain.float().abs().max()) or 1.0
    worst = float((plain.float() - packed.float()).abs().max()) / scale
    if worst <= _TOLERANCE.get(plain.dtype, 0.1):
        return ""
    return f"packed logits differ from those of a plain forward pass by {worst:.1e} of the largest logit"
