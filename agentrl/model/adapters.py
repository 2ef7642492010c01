"""Low-rank adapters (peft) on a model: add them, restore them, and merge them into plain weights."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentrl.model.sections import Lora


def add_adapters(model: Any, lora: Lora) -> Any:
    """The model with fresh adapters.

    Raises:
        ValueError: peft is missing, `target_modules` names no layer, or the model has fewer layers than `last_layers`.
    """
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise ValueError("a [model.lora] section needs peft: pip install 'agentrl-stepgraph[lora]'") from None
    settings = LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=list(lora.target_modules) or (linear_names(model) if lora.last_layers else "all-linear"),
        layers_to_transform=last_layers(model, lora.last_layers),
        task_type="CAUSAL_LM",
    )
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated")  # peft's own code causes it
            return get_peft_model(model, settings)
    except ValueError as error:
        raise ValueError(f"model.lora.target_modules does not fit this model: {error}") from error


def last_layers(model: Any, number: int) -> list[int] | None:
    """The indices of the last `number` transformer layers, or None for 0; ValueError if there are fewer layers."""
    layers = model.config.get_text_config().num_hidden_layers
    if number > layers:
        raise ValueError(
            f"model.lora.last_layers={number}: the model has {layers} layers. Use at most {layers}, or 0 for all"
        )
    return list(range(layers - number, layers)) if number else None


def linear_names(model: Any) -> list[str]:
    """The last parts of the names of all linear layers except the output head, such as "q_proj"; sorted."""
    from torch.nn import Linear

    output = model.get_output_embeddings()
    named = ((name, module) for name, module in model.named_modules() if isinstance(module, Linear))
    return sorted({name.rpartition(".")[2] for name, module in named if module is not output})


def restore(model: Any, source: Path) -> None:
    """Load the adapters in the folder `source` into a model with the same base model and the same section [model.lora].

    Raises:
        ValueError: `source` holds no adapters, adapters of another shape, or adapters of another model.
    """
    from peft import load_peft_weights, set_peft_model_state_dict

    if not (source / "adapter").is_dir():
        raise ValueError(f"{source} holds no adapter: it was saved from a model without LoRA")
    check_base(model, source)
    weights = load_peft_weights(str(source / "adapter"), device="cpu")
    try:
        outcome = set_peft_model_state_dict(model, weights)
    except RuntimeError as error:  # adapters of another rank
        wrong = str(error).splitlines()[1].strip() if "\n" in str(error) else str(error)
        raise ValueError(f"{source} holds adapters of another shape: {wrong}") from None
    if outcome.unexpected_keys:
        raise ValueError(f"{source} holds adapters of another model, e.g. {outcome.unexpected_keys[0]}")


def check_base(model: Any, source: Path) -> None:
    """Raises ValueError unless the weights in `source` come from the same base model as `model`.

    `source` holds weights into which adapters were merged. The shapes of all its weights are compared with those of the
    base model. The values are compared for vectors only, because adapters change matrices.
    """
    state = model.get_base_model().state_dict()
    base = {key.replace(".base_layer.", "."): weight for key, weight in state.items() if ".lora_" not in key}
    stored_keys: set[str] = set()
    for key, there, vector in _stored(source):
        stored_keys.add(key)
        here = tuple(base[key].shape) if key in base else None
        if there != here:
            raise ValueError(
                f"{source} holds another model: its {key} has the shape {there}, that of this model {here}"
            )
        if vector is not None and not _equal(vector, base[key].cpu()):
            raise ValueError(f"{source} holds adapters of another model: its {key} has other values")
    # A matrix may be missing: tied matrices are stored once, under one of their names.
    missing = [key for key in base if key not in stored_keys and base[key].ndim == 1]
    if missing:
        raise ValueError(f"{source} holds another model: it has no {missing[0]}")


def _stored(source: Path) -> Iterator[tuple[str, tuple[int, ...], Any]]:
    """Name and shape of every weight in a folder, and the weight itself if it is a vector, else None."""
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
    """Are two tensors equal after both are cast to the narrower of their floating types?"""
    narrow = min(a.dtype, b.dtype, key=lambda dtype: int(dtype.itemsize))
    return bool(a.to(narrow).equal(b.to(narrow)))


def merged_state(model: Any) -> dict[str, Any]:
    """The weights of a model with its adapters merged into them, named as in a model without adapters.

    The model itself is not changed: merging and unmerging in place would round the weights at every save.
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
