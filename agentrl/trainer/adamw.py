"""The optimiser AdamW in the kernel that takes the least memory on a device.

On CUDA, torch's default is the kernel `foreach`. In each step, this kernel holds a float32 root of all second moments,
which is 4 more bytes per parameter. The kernel `fused` holds no such tensor. On a CPU, torch's default is a loop over
the parameters, which holds two tensors of the size of one parameter.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor


def make(groups: Iterable[Mapping[str, Any]], **options: Any) -> torch.optim.AdamW:
    """torch's AdamW for groups of parameters; `options` are those of torch."""
    made = [dict(group) for group in groups]
    return torch.optim.AdamW(made, fused=fused([x for group in made for x in group["params"]]), **options)


def fused(tensors: Iterable[Tensor]) -> bool | None:
    """The option `fused` of `torch.optim.AdamW`: True if all trained tensors are on CUDA, else None (torch's choice).

    The parts of a divided tensor count where they are: on CUDA, or in the CPU's memory if they are offloaded.
    """
    return all(x.device.type == "cuda" for x in tensors) or None


def load(optimiser: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Load the result of an optimiser's `state_dict`, but keep the kernel that fits the device of this optimiser.

    torch's `load_state_dict` also loads the option `fused`, which a run on another device may have stored.

    Raises:
        ValueError: the state has other groups than the optimiser.
    """
    groups = [dict(group) for group in state["param_groups"]]
    for stored, group in zip(groups, optimiser.param_groups, strict=False):  # torch refuses another number of groups
        if "fused" in group:
            stored["fused"] = group["fused"]
    optimiser.load_state_dict({**state, "param_groups": groups})
