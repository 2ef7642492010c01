"""Convert a GGUF file, the format of llama.cpp, to a model folder in the HF layout."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from agentrl.files import refuse_existing, writing
from agentrl.model.loading import Loaded, quietly

MAGIC = b"GGUF"
ORIGIN = "origin"  # key of config.json that says where the weights come from; reports repeat it


class Card(NamedTuple):
    """Content of the model card (README.md) of a converted model; the origin of the weights is added to it.

    Attributes:
        name: name of the model.
        about: a text for readers of the card.
        head: further lines of the card's YAML header, such as the licence.
    """

    name: str
    about: str
    head: str = ""


def convert_gguf(
    file: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    dtype: Literal["float32", "bfloat16"] = "float32",
    card: Card | None = None,
) -> str:
    """Dequantise a GGUF file of an architecture that transformers reads, and write it as a model folder.

    The folder holds the weights, the tokenizer with its chat template, and a model card. The key `origin` of
    `config.json` says where the weights come from; reports repeat it.

    Args:
        file: the GGUF file.
        folder: must not exist; it appears when everything is written.
        dtype: type of the stored weights. float32 stores the dequantised values unrounded.
        card: content of the model card; None for a card that names the GGUF file.

    Returns:
        The origin, such as "SmolLM2-135M-Instruct, dequantised from Q4_1".

    Raises:
        ValueError: the package gguf is missing; `file` is no GGUF file, is damaged, or holds an architecture that
            transformers does not read; `folder` exists or cannot be written.
    """
    source, target = Path(file), Path(folder)
    refuse_existing(target)
    _check_file(source)
    import_gguf()
    card = card or Card(source.name, f"Converted from the GGUF file `{source.name}`.")
    origin = f"{card.name}, dequantised from {_main_type(source)}"
    loaded = _dequantised(source, dtype)
    setattr(loaded.model.config, ORIGIN, origin)
    text = f"---\nlibrary_name: transformers\n{card.head}---\n# {origin}\n\n{card.about}\n"
    with writing(target) as partial, quietly():
        loaded.tokenizer.save_pretrained(partial)
        loaded.model.save_pretrained(partial)
        (partial / "README.md").write_text(text, "utf-8")
    return origin


def import_gguf() -> None:
    """Raises ValueError if the package gguf is missing; the message says how to install it."""
    try:
        import gguf  # noqa: F401
    except ImportError:
        raise ValueError("reading GGUF files needs the package gguf: pip install 'agentrl-stepgraph[gguf]'") from None


def _check_file(file: Path) -> None:
    if not file.is_file():
        what = "is a folder: name the GGUF file in it" if file.is_dir() else "does not exist: check the path"
        raise ValueError(f"{file} {what}")
    with file.open("rb") as opened:
        beginning = opened.read(len(MAGIC))
    if beginning != MAGIC:
        raise ValueError(f"{file} is not a GGUF file: it begins with {beginning!r} instead of {MAGIC!r}")


def _main_type(file: Path) -> str:
    """The type in which most of a GGUF file's weights are stored, such as "Q4_1"."""
    from gguf import GGUFReader

    sizes: dict[str, int] = {}
    with _readable(file):
        for tensor in GGUFReader(file).tensors:
            kind = tensor.tensor_type.name
            sizes[kind] = sizes.get(kind, 0) + int(tensor.n_elements)
        if not sizes:
            raise ValueError("it holds no weights")
    return max(sizes, key=lambda kind: sizes[kind])


def _dequantised(file: Path, dtype: str) -> Loaded:
    """Model and tokenizer of a GGUF file, as transformers reads them."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, name = str(file.resolve().parent), file.name
    with _readable(file), quietly():
        tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name, trust_remote_code=False)
        read = AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=name, dtype=getattr(torch, dtype), trust_remote_code=False
        )
        return Loaded(_unquantised(read), tokenizer)


def _unquantised(read: Any) -> Any:
    """The same weights in a new model. transformers marks a model read from GGUF as quantised, and cannot save it."""
    import torch

    settings = read.config.to_dict()
    for key in ("quantization_config", "_model_name_or_path"):
        settings.pop(key, None)
    with torch.device("meta"):
        model = type(read)(type(read.config)(**settings))
    model.load_state_dict(read.state_dict(), assign=True)
    model.tie_weights()
    model.generation_config = read.generation_config
    return model


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """A context manager: an error while `file` is read becomes a ValueError, except the error of a full disk."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise
        why = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise ValueError(
            f"{file} cannot be converted ({why}): take a GGUF file of an architecture that transformers reads"
        ) from error
