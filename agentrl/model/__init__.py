"""A causal language model as the trainer sees it: loading, packing, tree attention, log-probabilities."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentrl.model.adapters import add_adapters
    from agentrl.model.device import device_named, faster_note, precision_note
    from agentrl.model.exporting import export_model, exported_form
    from agentrl.model.fetching import FETCHABLE, fetch_model
    from agentrl.model.forward import Network
    from agentrl.model.gguf import convert_gguf
    from agentrl.model.layout import unshared
    from agentrl.model.loading import (
        Loaded,
        check_path,
        check_shape,
        load_model,
        load_tokenizer,
        restore_model,
        save_model,
    )
    from agentrl.model.logprobs import EntropyMode, TokenStats, token_stats
    from agentrl.model.packing import Batch, Sharing, microbatches, pack
    from agentrl.model.probing import network
    from agentrl.model.publishing import check_room, publish, publish_adapter, whole_state
    from agentrl.model.sections import Lora, ModelConfig, NewModel
    from agentrl.model.weights import Mark, WeightFolder, Weights

__all__ = [
    "FETCHABLE",
    "Batch",
    "EntropyMode",
    "Loaded",
    "Lora",
    "Mark",
    "ModelConfig",
    "Network",
    "NewModel",
    "Sharing",
    "TokenStats",
    "WeightFolder",
    "Weights",
    "add_adapters",
    "check_path",
    "check_room",
    "check_shape",
    "convert_gguf",
    "device_named",
    "export_model",
    "exported_form",
    "faster_note",
    "fetch_model",
    "load_model",
    "load_tokenizer",
    "microbatches",
    "network",
    "pack",
    "precision_note",
    "publish",
    "publish_adapter",
    "restore_model",
    "save_model",
    "token_stats",
    "unshared",
    "whole_state",
]

_HOME = {
    "Batch": "agentrl.model.packing",
    "EntropyMode": "agentrl.model.logprobs",
    "Loaded": "agentrl.model.loading",
    "Lora": "agentrl.model.sections",
    "Mark": "agentrl.model.weights",
    "ModelConfig": "agentrl.model.sections",
    "Network": "agentrl.model.forward",
    "add_adapters": "agentrl.model.adapters",
    "NewModel": "agentrl.model.sections",
    "Sharing": "agentrl.model.packing",
    "TokenStats": "agentrl.model.logprobs",
    "WeightFolder": "agentrl.model.weights",
    "Weights": "agentrl.model.weights",
    "check_room": "agentrl.model.publishing",
    "check_path": "agentrl.model.loading",
    "check_shape": "agentrl.model.loading",
    "convert_gguf": "agentrl.model.gguf",
    "device_named": "agentrl.model.device",
    "export_model": "agentrl.model.exporting",
    "exported_form": "agentrl.model.exporting",
    "faster_note": "agentrl.model.device",
    "FETCHABLE": "agentrl.model.fetching",
    "fetch_model": "agentrl.model.fetching",
    "load_model": "agentrl.model.loading",
    "load_tokenizer": "agentrl.model.loading",
    "microbatches": "agentrl.model.packing",
    "network": "agentrl.model.probing",
    "pack": "agentrl.model.packing",
    "precision_note": "agentrl.model.device",
    "publish": "agentrl.model.publishing",
    "publish_adapter": "agentrl.model.publishing",
    "restore_model": "agentrl.model.loading",
    "save_model": "agentrl.model.loading",
    "token_stats": "agentrl.model.logprobs",
    "unshared": "agentrl.model.layout",
    "whole_state": "agentrl.model.publishing",
}


def __getattr__(name: str) -> Any:
    """Import the module of a public name when the name is first used."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
