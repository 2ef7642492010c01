"""Load, make, save and restore models and tokenizers.

A model is read from a folder or from the Hugging Face hub, or is made new and small from a configuration. Both kinds of
models can have LoRA adapters.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from agentrl.chat import build_word_tokenizer, check_arguments, set_template
from agentrl.extras import require_training
from agentrl.files import appearing, read_json, regular
from agentrl.model import adapters
from agentrl.model.device import device_named, dtype_named
from agentrl.model.divided import DividedModel
from agentrl.model.sections import SHAPE, ModelConfig, NewModel
from agentrl.model.template_syntax import check_syntax

MOST_LAYERS = 2000  # largest number of layers of a model folder; transformers makes them before it reads the weights
# Options that transformers adds to a tokenizer when it reads a folder. They are removed, so that a resumed run saves
# the same files as a run that was not stopped.
HOW_IT_WAS_LOADED = ("is_local", "local_files_only")
INIT_STD = 0.06  # standard deviation of the random weights of a new model


class Loaded(NamedTuple):
    """A model, in evaluation mode, and its tokenizer."""

    model: Any
    tokenizer: Any


def load_model(config: ModelConfig, seed: int, *, texts: Iterable[str] = (), entities: Sequence[str] = ()) -> Loaded:
    """The model and tokenizer that a configuration names. The same seed gives the same weights.

    Args:
        config: section [model].
        seed: seed of random weights (new models and adapters).
        texts: texts whose words a new model's tokenizer must know.
        entities: strings that are one token in a new model's tokenizer.

    Raises:
        ValueError: there is no such folder, name or device; the model is damaged or no language model; peft is missing,
            or `lora.target_modules` names no layer; or a new model has no texts and no entities.
    """
    require_training("agentrl.model.load_model")
    import torch

    device = device_named(config.device)
    dtype = dtype_named(config.dtype, device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if config.new is not None:
            new = config.new
            tokenizer = build_word_tokenizer(
                texts, entities, entity_pattern=new.entity_pattern, spells=new.vocabulary == "open"
            )
            model = _make(config.new, tokenizer, entities).to(dtype)
        else:
            model, tokenizer = _open(config.path, dtype)
            set_template(tokenizer, template_text(config), config.template)
        if config.lora is not None:
            model = adapters.add_adapters(model, config.lora)
    return Loaded(model.to(device).eval(), tokenizer)


def load_tokenizer(folder: str | os.PathLike[str], config: ModelConfig | None = None) -> Any:
    """The tokenizer in a model folder, with the chat template of `config`; ValueError if it is no model folder."""
    require_training("agentrl.model.load_tokenizer")
    from transformers import AutoTokenizer

    source = Path(folder)
    _check_folder(source)
    try:
        tokenizer = usable(AutoTokenizer.from_pretrained(str(source), trust_remote_code=False))
    except Exception as error:  # the packages raise anything at damaged files, also bare Exceptions
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"the tokenizer in the folder {source} cannot be loaded ({first}): copy it again") from error
    if config is not None:
        set_template(tokenizer, template_text(config), config.template)
    return tokenizer


def template_text(config: ModelConfig) -> str:
    """The text of `model.template_file`; empty if the option is not set. ValueError if the file cannot be read."""
    if not config.template_file:
        return ""
    try:
        text = regular(Path(config.template_file).expanduser()).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ValueError(f"model.template_file = {config.template_file} cannot be read: {error}") from None
    if not text.strip():
        raise ValueError(f"model.template_file = {config.template_file} is empty: name a file with a chat template")
    return text


def check_template(config: ModelConfig) -> None:
    """Check `model.template` and `model.template_file` by the files of a model folder, without a tokenizer.

    A model that is named by its name on the hub is checked when it is loaded.

    Raises:
        ValueError: the file of the template cannot be read or is no template, or the template does not read an
            argument.
    """
    text, folder = template_text(config), Path(config.path).expanduser()
    templates = {"": text} if text else _stored_templates(folder)
    for one in templates.values():
        check_syntax(one)
    if config.template and templates:
        check_arguments(templates, config.template)


def _stored_templates(folder: Path) -> dict[str, str]:
    """The chat templates in a model folder, by name; empty if there are none."""
    files = [folder / "chat_template.jinja", *sorted(folder.glob("additional_chat_templates/*.jinja"))]
    found = {path.stem: path.read_text(encoding="utf-8") for path in files if path.is_file()}
    settings = folder / "tokenizer_config.json"
    if found or not settings.is_file():
        return found
    own = read_json(settings, "configuration of a tokenizer").get("chat_template") or {}
    if isinstance(own, list):
        return {str(one.get("name")): str(one.get("template")) for one in own if isinstance(one, dict)}
    return {"": own} if isinstance(own, str) else {}


def save_model(loaded: Loaded, folder: str | os.PathLike[str]) -> None:
    """Write model and tokenizer in the HF layout; `folder` appears, or is replaced, only when everything is written.

    If the model has adapters, `folder` holds the merged weights, which any program can load, and the sub-folder
    `adapter` holds only the adapters.

    Raises:
        OSError: the files could not be written. The partial folder is removed, and an older `folder` is unchanged.
    """
    with appearing(Path(folder)) as partial, quietly():
        _write(loaded, partial)


def restore_model(loaded: Loaded, folder: str | os.PathLike[str]) -> None:
    """Load into a model the weights that `save_model` wrote for a model of the same configuration.

    Raises:
        ValueError: the folder holds another model, or no model.
    """
    import torch

    source = Path(folder)
    _check_folder(source)
    if hasattr(loaded.model, "get_base_model"):
        adapters.restore(loaded.model, source)
        return
    stored, _ = _open(str(source), loaded.model.dtype)
    try:
        with torch.no_grad():
            loaded.model.load_state_dict(stored.state_dict())
    except RuntimeError as error:
        wrong = str(error).splitlines()[1].strip() if "\n" in str(error) else str(error)
        raise ValueError(f"{source} holds another model ({type(stored).__name__}): {wrong}") from None


@contextmanager
def quietly() -> Iterator[None]:
    """Hide the progress bars of transformers, and its tables of missing weights.

    With checkpoints every few iterations, the bars would bury the run's own progress. The tables are not needed,
    because `_open` raises an error if weights are missing.
    """
    from transformers.utils import logging

    enabled, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if enabled:
            logging.enable_progress_bar()


def check_shape(model: Any, new: NewModel, where: Path) -> None:
    """Raises ValueError if a stored model has another shape than section [model.new] asks for."""
    for option, name in SHAPE.items():
        stored, asked = getattr(model.config, name, None), getattr(new, option)
        if stored != asked:
            raise ValueError(f"{where} holds another model: its {name} is {stored}, model.new.{option} is {asked}")


def _make(new: NewModel, tokenizer: Any, entities: Sequence[str]) -> Any:
    """A new model with random weights from torch's current seed."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=new.hidden,
        intermediate_size=new.intermediate,
        num_hidden_layers=new.layers,
        num_attention_heads=new.heads,
        num_key_value_heads=new.kv_heads,
        head_dim=new.hidden // new.heads,
        max_position_embeddings=new.max_positions,
        initializer_range=INIT_STD,
        tie_word_embeddings=new.tied,
        rope_parameters={"rope_type": "default", "rope_theta": new.rope_theta},
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    if new.compose_entities:
        layers = {id(m.weight): m.weight for m in (model.get_input_embeddings(), model.get_output_embeddings())}
        with torch.no_grad():
            for weight in layers.values():
                for entity in entities:
                    whole_id, *word_ids = tokenizer.convert_tokens_to_ids(
                        [f" {w}" for w in (entity, *entity.split(" "))]
                    )
                    weight[whole_id] = weight[word_ids].sum(0)
    return model


def check_path(path: str) -> bool:
    """Is `path` a folder, and not a name on the hub?

    Raises:
        ValueError: the folder does not hold a model; or `path` does not exist and cannot be a name on the hub, because
            it begins with ".", "~" or the path separator, or has two or more "/".
    """
    if named_on_hub(path):
        return False
    _check_folder(Path(path).expanduser())
    return True


def named_on_hub(path: str) -> bool:
    """Is `path` a name on the hub? False if a folder of this name exists, or if the hub has no such names.

    Raises:
        ValueError: no folder of this name exists, and the hub has no such names.
    """
    folder = Path(path).expanduser()
    if folder.exists():
        return False
    if path.startswith((".", "~", os.sep)) or path.count("/") >= 2:
        raise ValueError(_no_folder(folder))
    return True


def _check_folder(folder: Path) -> None:
    if not folder.exists():
        raise ValueError(_no_folder(folder))
    if not (folder / "config.json").is_file():
        inside = _models_in(folder)
        named = f"; the model in it is the folder {inside[-1]}" if inside else ""
        raise ValueError(f"{folder} is not a model folder: it has no config.json{named}")
    for file in folder.iterdir():
        if not file.is_dir():
            regular(file)
    config = read_json(folder / "config.json", "configuration of a model")
    layers = config.get("num_hidden_layers") if isinstance(config, dict) else None
    if isinstance(layers, int) and layers > MOST_LAYERS:
        raise ValueError(f"{folder / 'config.json'} has num_hidden_layers = {layers}, and the limit is {MOST_LAYERS}")


def _no_folder(folder: Path) -> str:
    return f"the model folder {folder} does not exist{_did_you_mean(folder) or ': check the path'}"


def _models_in(folder: Path) -> list[Path]:
    """The model folders in a checkpoint or in a run folder, those of the newest checkpoint last."""
    patterns = ("*/config.json", "*/*/config.json", "checkpoints/*/*/config.json")
    found = [path.parent for pattern in patterns for path in folder.glob(pattern)]
    shown = [path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    # Checkpoints of the warm-up, `clone-NNNNNN`, are older than those of the training, `NNNNNN`.
    return sorted(shown, key=lambda path: (path.parent.name.isdecimal(), path.parent.name, path.name == "policy"))


def _did_you_mean(folder: Path) -> str:
    """The end of a sentence about a folder that does not exist: a path of a similar name; empty if there is none."""
    missing = next(one for one in (*reversed(folder.parents), folder) if not one.exists())
    if not missing.parent.is_dir() or not os.access(missing.parent, os.R_OK):
        return ""
    beside = sorted(path.name for path in missing.parent.iterdir() if path.is_dir())
    close = get_close_matches(missing.name, beside, n=1)
    return f": did you mean {missing.parent / close[0] / folder.relative_to(missing)}?" if close else ""


def _open(path: str, dtype: Any) -> tuple[Any, Any]:
    """Model and tokenizer of a folder or a hub name."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = Path(path).expanduser()
    if check_path(path):
        path = str(folder)
    try:
        with quietly():
            # Without trust_remote_code, transformers asks on the terminal whether it may run code of the folder.
            model, found = AutoModelForCausalLM.from_pretrained(
                path, dtype=dtype, trust_remote_code=False, output_loading_info=True
            )
            tokenizer = usable(AutoTokenizer.from_pretrained(path, trust_remote_code=False))
    except Exception as error:  # the packages raise anything at damaged files, also bare Exceptions
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        if "trust_remote_code" in str(error):
            raise ValueError(
                f"the model {path!r} asks for Python code of its own, which is never run here: choose a model of a "
                "type that transformers knows"
            ) from error
        if folder.exists():
            raise ValueError(
                f"the model in the folder {path} cannot be loaded ({first}): copy the folder again, or, if it belongs "
                "to a checkpoint, remove that checkpoint to continue from the checkpoint before it"
            ) from error
        raise ValueError(
            f"no language model could be loaded from {path!r}, which is no folder, nor from the hub under this name"
            f"{_did_you_mean(folder)}: {first}"
        ) from error
    missing = sorted(found["missing_keys"])
    if missing:  # transformers gives them random values
        raise ValueError(
            f"the model {path!r} has no weights for {missing[0]} and {len(missing) - 1} more: its files are damaged, "
            "or it is no language model; copy or download it again"
        )
    own_memory(model)
    _check_finite(model, path)
    for name in HOW_IT_WAS_LOADED:
        tokenizer.init_kwargs.pop(name, None)
    return model, tokenizer


def usable(tokenizer: Any) -> Any:
    """The tokenizer; ValueError if it cannot read a text, because its settings are damaged."""
    tokenizer("a")
    return tokenizer


def own_memory(model: Any) -> None:
    """Move every parameter and buffer into memory that torch allocates; a new model has such memory from the start.

    Tensors read from safetensors lie inside the file's memory, at any multiple of 8 bytes. CPU kernels choose their
    blocks by alignment, and other blocks round differently. A resumed run would then differ from an uninterrupted run.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()


def _check_finite(model: Any, path: str) -> None:
    """Raises ValueError if a weight is NaN or infinite. Without this check, only sampling would fail, much later."""
    import torch

    for name, weight in model.named_parameters():
        comparable = weight.numel() and weight.dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64)
        if comparable and not all(torch.isfinite(bound) for bound in torch.aminmax(weight.detach())):
            raise ValueError(
                f"the model {path!r} has weights that are not finite, in {name}: take an earlier checkpoint, "
                "and lower optim.lr"
            )


def _write(loaded: Loaded, folder: Path) -> None:
    loaded.tokenizer.save_pretrained(folder)
    model = loaded.model
    if isinstance(model, DividedModel):
        model.base.save_pretrained(folder, state_dict=model.whole_state())
        if model.base is not model.shell:
            model.shell.save_pretrained(folder / "adapter", state_dict=model.adapter())
        return
    if not hasattr(model, "get_base_model"):
        model.save_pretrained(folder)
        return
    model.get_base_model().save_pretrained(folder, state_dict=adapters.merged_state(model))
    model.save_pretrained(folder / "adapter")
