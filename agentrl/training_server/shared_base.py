"""One base model in memory with the LoRA adapters of several models; at most one of them is in use at a time."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from agentrl.model import Loaded, Network, network
from agentrl.training_server.verbs import AdapterPlan

ALPHA = 32.0  # lora_alpha whatever the rank, as the hosted service and SkyRL have it: the output is times 32 / rank
IDLE = "idle"  # an adapter of rank 1 that stays zero; it is in use where the base model is meant


class Parts(NamedTuple):
    """The names of the linear layers of a model, by the part of the network to which they belong."""

    attn: tuple[str, ...]
    mlp: tuple[str, ...]
    unembed: tuple[str, ...]


class SharedBase:
    """A base model and its adapters, by names that this class gives.

    Adapters are float32, for every type of the base model's weights.

    Args:
        loaded: the base model and its tokenizer. The model is changed in place: its linear layers take adapters.

    Raises:
        ValueError: peft is missing, or the model has no linear layers.
    """

    def __init__(self, loaded: Loaded) -> None:
        try:
            from peft import get_peft_model
        except ImportError:
            raise ValueError("a training server needs peft: pip install 'agentrl-stepgraph[lora]'") from None
        self.tokenizer = loaded.tokenizer
        self.parts = parts_of(loaded.model)
        every = [name for part in self.parts for name in part]
        if not every:
            raise ValueError(f"{type(loaded.model).__name__} has no linear layers for adapters: use another model")
        with _quietly():
            self.model: Any = get_peft_model(loaded.model, _config(1, every[:1]), adapter_name=IDLE)
        self.model.eval()
        self.network: Network = network(self.model)
        self._used, self._made = IDLE, 0

    def add(self, plan: AdapterPlan) -> str:
        """Make fresh adapters, with random weights from the seed of the plan, and return their name.

        Raises:
            ValueError: the plan has no part of the network that this model has.
        """
        names = [name for part, wanted in zip(self.parts, plan[2:], strict=True) if wanted for name in part]
        if not names:
            raise ValueError("train_attn, train_mlp and train_unembed name no layer of this model: set one of them")
        self._made += 1
        name = f"a{self._made}"
        device = self.network.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []), _quietly():
            torch.manual_seed(plan.seed)
            self.model.add_adapter(name, _config(plan.rank, names))
        self.model.eval()
        return name

    def remove(self, name: str) -> None:
        """Drop adapters and their memory."""
        self.use(IDLE)
        self.model.delete_adapter(name)

    def use(self, name: str) -> None:
        """Use these adapters, and no others, in passes from now on; they are the trained parameters then."""
        if name != self._used:
            self.model.set_adapter(name)
            self._used = name

    def named(self, name: str) -> Iterator[tuple[str, nn.Parameter]]:
        """The tensors of adapters, with the names that peft gives them in files."""
        mark = f".{name}."
        for full, parameter in self.model.named_parameters():
            if mark in full:
                yield full.replace(mark, "."), parameter

    def copy_of(self, name: str) -> dict[str, Tensor]:
        """Copies of the tensors of adapters, in the CPU's memory."""
        return {key: parameter.detach().to("cpu", copy=True) for key, parameter in self.named(name)}

    @torch.no_grad()
    def fill(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Copy tensors into adapters.

        Raises:
            ValueError: the tensors are those of other adapters.
        """
        own = dict(self.named(name))
        if {key: p.shape for key, p in own.items()} != {key: x.shape for key, x in tensors.items()}:
            raise ValueError("the stored adapters are of another base model: use the one with which they were trained")
        for key, parameter in own.items():
            parameter.copy_(tensors[key])

    def settings(self, name: str) -> dict[str, Any]:
        """The content of `adapter_config.json` for adapters."""
        found = self.model.peft_config[name].to_dict()
        plain = {key: sorted(value) if isinstance(value, set) else value for key, value in found.items()}
        return {key: getattr(value, "value", value) for key, value in plain.items()} | {"inference_mode": True}


def parts_of(model: Any) -> Parts:
    """The names of a model's linear layers: those of attention, those of the feed-forward layers, the output head.

    A name is the last part of the full name, such as "q_proj", if it means one part of the network only.
    """
    head = model.get_output_embeddings()
    found: dict[str, str] = {}  # full name -> part
    for name, module in model.named_modules():
        if module is head:
            found[name] = "unembed"
        elif isinstance(module, nn.Linear):
            found[name] = "attn" if "attn" in name or "attention" in name else "mlp"
    last: dict[str, set[str]] = {}
    for name, part in found.items():
        last.setdefault(name.rpartition(".")[2], set()).add(part)
    short = {name: name.rpartition(".")[2] for name in found}
    named = {name: short[name] if len(last[short[name]]) == 1 else name for name in found}
    return Parts(*(tuple(sorted({named[name] for name in found if found[name] == part})) for part in Parts._fields))


def _config(rank: int, names: list[str]) -> Any:
    from peft import LoraConfig

    return LoraConfig(r=rank, lora_alpha=ALPHA, target_modules=names, task_type="CAUSAL_LM")


@contextmanager
def _quietly() -> Iterator[None]:
    """Hide peft's warnings: adapters on a tied output head are meant, and never merged here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
