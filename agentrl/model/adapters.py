"""Low-rank adapters on a model (peft): added, stored, brought back, and merged for whoever wants plain weights."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentrl.model.sections import Lora


def add(model: Any, lora: Lora) -> Any:
    """The model with fresh adapters; ValueError if peft is missing or no layer is meant."""
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise ValueError("a [lora] section needs peft: pip install 'agentrl-stepgraph[lora]'") from None
    settings = LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=list(lora.target_modules) or "all-linear",
        task_type="CAUSAL_LM",
    )
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated")  # peft's affair
            return get_peft_model(model, settings)
    except ValueError as error:
        raise ValueError(f"lora.target_modules does not fit this model: {error}") from error


def restore(model: Any, source: Path) -> None:
    """Put the adapters that lie in `source` back into a model of the same base and the same `Lora`.

    Raises:
        ValueError: `source` holds no adapters, or those of another model.
    """
    from peft import load_peft_weights, set_peft_model_state_dict

    if not (source / "adapter").is_dir():
        raise ValueError(f"{source} holds no adapter: it was saved from a model without LoRA")
    check_base(model, source)
    given = load_peft_weights(str(source / "adapter"), device="cpu")
    try:
        outcome = set_peft_model_state_dict(model, given)
    except RuntimeError as error:  # adapters of another rank
        wrong = str(error).splitlines()[1].strip() if "\n" in str(error) else str(error)
        raise ValueError(f"{source} holds adapters of another shape: {wrong}") from None
    if outcome.unexpected_keys:
        raise ValueError(f"{source} holds adapters of another model, e.g. {outcome.unexpected_keys[0]}")


def check_base(model: Any, source: Path) -> None:
    """Raises ValueError unless the model below the adapters is the one whose merged weights lie in `source`: shapes
    of everything, and the values of what is no matrix, which adapters do not touch."""
    state = model.get_base_model().state_dict()
    own = {key.replace(".base_layer.", "."): weight for key, weight in state.items() if ".lora_" not in key}
    found: set[str] = set()
    for key, there, vector in _stored(source):
        found.add(key)
        here = tuple(own[key].shape) if key in own else None
        if there != here:
            raise ValueError(f"{source} holds another model: its {key} is {there}, here it is {here}")
        if vector is not None and not _equal(vector, own[key].cpu()):
            raise ValueError(f"{source} holds adapters of another model: its {key} has other values")
    missing = [key for key in own if key not in found and own[key].ndim == 1]  # tied matrices are stored once
    if missing:
        raise ValueError(f"{source} holds another model: it has no {missing[0]}")


def _stored(source: Path) -> Iterator[tuple[str, tuple[int, ...], Any]]:
    """Name, shape and, if it is one, the vector of every weight in a folder."""
    from safetensors import SafetensorError, safe_open

    try:
        for file in sorted(source.glob("*.safetensors")):
            with safe_open(file, "pt") as stored:
                for key in stored.keys():  # noqa: SIM118  a file, not a dict
                    shape = tuple(stored.get_slice(key).get_shape())
                    yield key, shape, stored.get_tensor(key) if len(shape) == 1 else None
    except SafetensorError as error:
        raise ValueError(f"{source} is damaged: {error}") from None


def _equal(a: Any, b: Any) -> bool:
    """Equal values, as far as the narrower of two floating types can tell."""
    narrow = min(a.dtype, b.dtype, key=lambda dtype: int(dtype.itemsize))
    return bool(a.to(narrow).equal(b.to(narrow)))


def merged_state(model: Any) -> dict[str, Any]:
    """The weights of a model with adapters as if it had none, without touching the model.

    Merging in place and unmerging would change the weights by rounding at every save.
    """
    import torch

    base = model.get_base_model()
    with torch.no_grad():
        deltas = {
            f"{name}.base_layer.weight": module.get_delta_weight(model.active_adapter)
            for name, module in base.named_modules()
            if hasattr(module, "get_delta_weight") and model.active_adapter in getattr(module, "lora_A", {})
        }
        return {
            key.replace(".base_layer.", "."): weight + deltas[key] if key in deltas else weight
            for key, weight in base.state_dict().items()
            if ".lora_" not in key
        }
