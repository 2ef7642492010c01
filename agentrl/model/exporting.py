"""Copies the weights of a checkpoint into a folder for other programs: a whole model, or only its adapters."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from agentrl.files import refuse_existing, writing

ADAPTER = "adapter"  # the sub-folder of a checkpoint's model that holds the adapters
SETTINGS = "adapter_config.json"
Form = Literal["model", "merged", "adapter"]


def exported_form(source: Path, wanted: Literal["", "merged", "adapter"]) -> Form:
    """The form of the export: `model` for a model without adapters, else `wanted`, or `merged` if `wanted` is empty.

    Raises:
        ValueError: `wanted` is not empty, and the model has no adapters.
    """
    if (source / ADAPTER).is_dir():
        return wanted or "merged"
    if wanted:
        raise ValueError(f"{source} was trained without adapters ([model.lora]): leave out --{wanted}")
    return "model"


def export_model(source: Path, target: Path, form: Form, base: str, finish: Callable[[Path], None]) -> None:
    """Write a folder in the layout of transformers (`model`, `merged`) or of peft (`adapter`).

    Args:
        source: the model of a checkpoint, as `save_model` wrote it.
        target: must not exist; it appears when everything is written.
        form: see `exported_form`.
        base: path or hub name of the model below the adapters; it is written into peft's settings.
        finish: writes further files into the folder before it appears, such as a card.

    Raises:
        ValueError: the folder exists or cannot be written.
    """
    refuse_existing(target)
    with writing(target) as partial:
        weights = ("*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json")
        left_out = (ADAPTER, *(weights if form == "adapter" else ()))
        shutil.copytree(source, partial, ignore=shutil.ignore_patterns(*left_out))
        if form == "adapter":
            for file in (source / ADAPTER).glob("*.safetensors"):
                shutil.copy2(file, partial)
            settings = json.loads((source / ADAPTER / SETTINGS).read_text("utf-8"))
            settings["base_model_name_or_path"] = base
            (partial / SETTINGS).write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", "utf-8")
        finish(partial)
