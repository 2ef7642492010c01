"""What the files of a model say before torch is imported: its shape, its layers, and whether the files are whole."""

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentrl.model.fetching import FETCHABLE
from agentrl.model.loading import check_path
from agentrl.model.sections import ModelConfig

NEW_LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "embed_tokens", "lm_head")


def check_stored(config: ModelConfig) -> None:
    """Can the model be loaded on this machine, as far as its files say? A model made from scratch needs no files.

    Raises:
        ValueError: the folder does not exist, holds no model, or its files are not whole; or the model is named by its
            name on the hub, is not in the hub's cache, and the hub must not be asked.
    """
    if config.new is not None:
        return
    folder = Path(config.path)
    if folder.parent == Path("models") and folder.name in FETCHABLE and not folder.exists():
        fetch = f"agentrl model fetch {folder.name}"
        raise ValueError(f"model.path = {config.path!r}: no such folder; {fetch} writes it")
    if check_path(config.path):
        _check_files(folder.expanduser())
    elif (name := offline()) and hub_cache(config.path) is None:
        raise ValueError(not_reached(config.path, f"{name} is set"))


def offline() -> str:
    """The environment variable that forbids to ask the hub, as huggingface_hub reads it; empty if none does."""
    from huggingface_hub.constants import ENV_VARS_TRUE_VALUES

    name = "HF_HUB_OFFLINE" if os.environ.get("HF_HUB_OFFLINE") else "TRANSFORMERS_OFFLINE"
    return name if os.environ.get(name, "").upper() in ENV_VARS_TRUE_VALUES else ""


def not_reached(name: str, why: str) -> str:
    """The sentence on a model of the hub that is not on this machine and cannot be fetched, for the reason `why`."""
    return (
        f"model.path = {name!r} is no folder and not in the hub's cache, and the hub cannot be asked ({why}): on "
        f"another machine run hf download {name} --local-dir MODEL, copy MODEL here, and set model.path=MODEL"
    )


def hub_cache(name: str, *files: str) -> str | None:
    """The path of the first of these files of a model that the hub's cache has; None if it has none of them.

    Args:
        name: the model's name on the hub.
        files: names of files; none: config.json.
    """
    from huggingface_hub import try_to_load_from_cache

    try:
        found = [try_to_load_from_cache(name, file) for file in files or ("config.json",)]
    except ValueError:  # `name` is no name of a repository
        return None
    return next((one for one in found if isinstance(one, str)), None)


def check_fits(config: ModelConfig, max_context: int | None) -> None:
    """Do the context and the adapters of a recipe fit the model? Only a model whose files are here is checked.

    Args:
        config: section [model].
        max_context: `engine.max_context`; None for an engine without this option.

    Raises:
        ValueError: the model has fewer positions than `max_context`, peft is missing, the model has fewer layers than
            `lora.last_layers`, or `lora.target_modules` names no layer of it.
    """
    positions, layers = _shape(config)
    if max_context is not None and positions is not None and max_context > positions:
        raise ValueError(
            f"max_context is {max_context}, the model has {positions} positions: lower engine.max_context, or take a "
            "model with a longer context"
        )
    if config.lora is None:
        return
    if find_spec("peft") is None:
        raise ValueError("a [model.lora] section needs peft: pip install 'agentrl-stepgraph[lora]'")
    if layers is not None and config.lora.last_layers > layers:
        raise ValueError(
            f"model.lora.last_layers={config.lora.last_layers}: the model has {layers} layers. Use at most {layers}, "
            "or 0 for all"
        )
    names = NEW_LAYERS if config.new is not None else _layers(Path(config.path).expanduser())
    missing = [target for target in config.lora.target_modules if names and not _names(target, names)]
    if missing and len(missing) == len(config.lora.target_modules):
        last = sorted({name.rpartition(".")[2] for name in names})
        raise ValueError(
            f"model.lora.target_modules does not fit this model: it has no layer {', '.join(missing)}; it has "
            f"{', '.join(last)}"
        )


def _names(target: str, names: tuple[str, ...]) -> bool:
    """Does a target, as peft reads it, name one of these layers?"""
    return any(name == target or name.endswith(f".{target}") for name in names)


def _shape(config: ModelConfig) -> tuple[int | None, int | None]:
    """(number of positions, number of layers) of a model; None for what its files do not say."""
    if config.new is not None:
        return config.new.max_positions, config.new.layers
    table = _object(Path(config.path).expanduser() / "config.json")
    inner = table.get("text_config")
    text = inner if isinstance(inner, dict) else table
    found = [text.get(key) for key in ("max_position_embeddings", "num_hidden_layers")]
    positions, layers = (value if isinstance(value, int) else None for value in found)
    return positions, layers


def _layers(folder: Path) -> tuple[str, ...]:
    """Names of the layers that have weights in a folder; empty if its files do not name them."""
    indexed = _object(folder / "model.safetensors.index.json").get("weight_map")
    keys = list(indexed) if isinstance(indexed, dict) else []
    for path in () if keys else sorted(folder.glob("*.safetensors")):
        keys += _names_in(path)
    return tuple(sorted({key.rpartition(".")[0] for key in keys if key.endswith(".weight")}))


def _object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if there is none, which the loading of the model reports."""
    try:
        table = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return table if isinstance(table, dict) else {}


def _check_files(folder: Path) -> None:
    """Raises ValueError if the folder of a model lacks its tokenizer or its weights, or if a file of weights is cut."""
    missing = list[str]()
    if not any(folder.glob("tokenizer*")):
        missing.append("tokenizer.json")
    weights = sorted(folder.glob("*.safetensors"))
    if not weights and not any(folder.glob("pytorch_model*.bin")):
        missing.append("model.safetensors")
    if missing:
        raise ValueError(f"the model folder {folder} has no {' and no '.join(missing)}: copy it again")
    for path in weights:
        _names_in(path)


def _names_in(path: Path) -> list[str]:
    """The names of the weights in a safetensors file; ValueError if the file is cut or damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as stored:
            return list(stored.keys())
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is cut or damaged ({error}): copy it again") from None
