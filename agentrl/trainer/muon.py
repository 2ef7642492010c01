"""The optimiser Muon, computed in the number format that is fast on the device."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from agentrl.trainer.fsdp import part_like, whole

# Newton-Schulz as in Jordan's implementation and torch.optim.Muon: coefficients, iterations, smallest divisor (a norm).
A, B, C = 3.4445, -4.7750, 2.0315
ITERATIONS = 5
SMALLEST = 1e-7


def orthogonalise(matrix: Tensor) -> Tensor:
    """The matrix with its singular values moved near 1, by five quintic Newton-Schulz iterations.

    Singular values above 1/250 of the matrix's Frobenius norm end between 0.68 and 1.2, smaller ones between
    0 and 1.2.

    The computation is in bfloat16 on a GPU and in float32 on a CPU, because many CPUs have no instructions for
    bfloat16, and a matrix product in bfloat16 takes ten times as long there. `torch.optim.Muon` computes in bfloat16 on
    every device.

    Source: K. Jordan et al., Muon: an optimizer for hidden layers in neural networks, 2024.

    Args:
        matrix: [m, n].

    Returns:
        [m, n], float32 or bfloat16.
    """
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix  # [m, n] with m <= n
    x = x.to(torch.float32 if matrix.device.type == "cpu" else torch.bfloat16)
    x = x / x.norm().clamp(min=SMALLEST)
    for _ in range(ITERATIONS):
        gram = x @ x.T  # [m, m]
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    """Makes the steps of `torch.optim.Muon`: momentum with Nesterov's look-ahead, orthogonalised.

    Only the number format differs on some devices; see `orthogonalise`.

    Args:
        params: matrices, or groups of them.
        lr: learning rate; the step of a matrix [m, n] is scaled by lr * sqrt(max(1, m / n)).
        weight_decay: weight decay, decoupled from the gradient as in AdamW.
        momentum: weight of the old average of gradients in the new average.
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step of the parameters that have a gradient; returns the loss of `closure`, or None if it is None."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group["lr"], group["weight_decay"], group["momentum"])
        return loss

    def _move(self, parameter: Tensor, lr: float, weight_decay: float, momentum: float) -> None:
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        average = state["momentum_buffer"].lerp_(gradient, 1 - momentum)  # [m, n]
        # Newton-Schulz needs the whole matrix. Every rank gathers it, computes the same direction, and uses its part.
        direction = orthogonalise(whole(gradient.lerp(average, momentum)))  # [m, n]
        rows, columns = parameter.shape
        parameter.mul_(1 - lr * weight_decay)
        parameter.add_(part_like(direction, parameter), alpha=-lr * math.sqrt(max(1.0, rows / columns)))
