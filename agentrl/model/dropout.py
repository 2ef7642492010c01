"""Passes with gradients and without dropout: the policy that is trained is the policy that sampled."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer


@contextmanager
def restoring_modes(model: nn.Module) -> Iterator[None]:
    """After this `with` block, every module is in training or evaluation mode as before."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Inside this `with` block, the model computes as in evaluation mode, also if gradients are computed.

    This covers dropout of every kind (of hidden states, attention weights, adapters, or whole layers). Layers with
    gradient checkpointing still compute their activations again in the backward pass, for which transformers asks that
    they are in training mode.
    """
    with restoring_modes(model), ExitStack() as stack:
        model.eval()
        for layer in model.modules():
            if isinstance(layer, GradientCheckpointingLayer) and layer.gradient_checkpointing:
                stack.enter_context(_recomputing(layer))
        yield


@contextmanager
def _recomputing(layer: Any) -> Iterator[None]:
    """Inside this `with` block, a layer is in training mode, except while its own operations run."""
    recompute = layer._gradient_checkpointing_func

    def evaluated(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*inputs: Any, **options: Any) -> Any:
            layer.training = False
            try:
                return function(*inputs, **options)
            finally:
                layer.training = True

        return run

    def quietly(function: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
        return recompute(evaluated(function), *inputs, **options)

    layer._gradient_checkpointing_func = quietly
    layer.training = True
    try:
        yield
    finally:
        layer._gradient_checkpointing_func = recompute
