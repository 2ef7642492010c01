"""The tokenizer of a model whose weights a training service holds. This machine has no weights of it.

`model.path` then names a folder that needs only the files of a tokenizer, or a name on the hub, of which only these
files are read.
"""

import json
from pathlib import Path
from typing import Any

from agentrl.chat import set_template
from agentrl.extras import require_training
from agentrl.files import regular
from agentrl.model.loading import HOW_IT_WAS_LOADED, named_on_hub, quietly, template_text, usable
from agentrl.model.sections import ModelConfig
from agentrl.model.stored_files import hub_cache, not_reached, offline

SERVED_FILE = "tinker.json"  # of a checkpoint: where a training service stored the weights of a policy
FILES = ("tokenizer.json", "tokenizer_config.json")  # a folder with one of these files holds a tokenizer


def check_tokenizer(config: ModelConfig) -> None:
    """Can the tokenizer that `model.path` names be read on this machine, as far as its files say?

    Raises:
        ValueError: the folder does not exist or holds no tokenizer; or the tokenizer is named by its name on the hub,
            is not in the hub's cache, and the hub must not be asked.
    """
    if named_on_hub(config.path):
        if (name := offline()) and hub_cache(config.path, *FILES) is None:
            raise ValueError(not_reached(config.path, f"{name} is set"))
        return
    folder = Path(config.path).expanduser()
    if not any((folder / name).is_file() for name in FILES):
        raise ValueError(
            f"model.path = {config.path!r}: the folder has no {' and no '.join(FILES)}: with learner.name=tinker it "
            "must hold the tokenizer of the service's base model; copy these files into it"
        )


def served_tokenizer(config: ModelConfig, *, ask_hub: bool = True) -> Any:
    """The tokenizer that `model.path` names, with the recipe's chat template. No weights are read.

    Args:
        config: section [model].
        ask_hub: whether the hub may be asked for a tokenizer that is not in its cache.

    Raises:
        ValueError: there is no such folder and no such name on the hub, or the files are damaged.
    """
    require_training("agentrl.model.served_tokenizer")
    from transformers import AutoTokenizer

    check_tokenizer(config)
    source, local = config.path, not ask_hub
    if not named_on_hub(config.path):
        folder = Path(config.path).expanduser()
        for file in folder.iterdir():
            if not file.is_dir():
                regular(file)
        source, local = str(folder), True
    try:
        with quietly():
            tokenizer = usable(AutoTokenizer.from_pretrained(source, trust_remote_code=False, local_files_only=local))
    except Exception as error:  # the packages raise anything at damaged files, also bare Exceptions
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"model.path = {config.path!r}: no tokenizer can be loaded from there ({first}): name a folder with the "
            "tokenizer of the service's base model, or its name on the hub"
        ) from error
    for name in HOW_IT_WAS_LOADED:
        tokenizer.init_kwargs.pop(name, None)
    set_template(tokenizer, template_text(config), config.template)
    return tokenizer


def read_served(folder: Path) -> dict[str, Any]:
    """The content of SERVED_FILE in a checkpoint's folder of a policy.

    Raises:
        ValueError: the file is missing or damaged.
    """
    file = folder / SERVED_FILE
    try:
        table = json.loads(file.read_text("utf-8"))
        if not all(isinstance(table[name], str) for name in ("url", "model", "state", "sampler", "sums")):
            raise TypeError("a value is no text")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{file} does not say where the service stored the weights ({error}): remove this checkpoint to continue "
            "from an older one"
        ) from None
    return dict(table)
