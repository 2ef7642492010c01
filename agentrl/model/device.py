"""On which device, and in which number type, a model computes; and how fast a CPU is in half precision.

A CPU without instructions for bfloat16 converts each number: a model in bfloat16 is then tens of times slower than in
float32. A CPU with such instructions (AVX512-BF16, AMX) is up to four times faster in bfloat16.
"""

import time
from typing import Any

PRODUCT = (128, 576, 576)  # rows, inner size and columns of the matrix product that is timed
TRIES = 3
SLOWER = 1.5  # from this multiple of the time in float32 on, a half-precision type is called slow
FASTER = 0.7  # up to this multiple, it is called fast


def device_named(name: str) -> Any:
    """The torch device of `model.device`.

    Raises:
        ValueError: torch knows no such device, or finds no CUDA device.
    """
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"model.device is {name!r}: use auto, cpu, cuda or cuda:N") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"model.device is {name!r}, but torch sees no CUDA device: use device=cpu")
    return device


def dtype_named(name: str, device: Any) -> Any:
    """The torch type of `model.dtype` on a device."""
    import torch

    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return getattr(torch, name)


def precision_note(name: str, device: Any) -> str:
    """A sentence if the weights have half precision and are on a CPU that is slow at it; else empty.

    The CPU is timed, which takes less than a second.

    Args:
        name: the value of `model.dtype`.
        device: the torch device of the weights.
    """
    if device.type != "cpu" or name not in ("bfloat16", "float16"):
        return ""
    ratio = product_ratio(dtype_named(name, device))
    if ratio < SLOWER:
        return ""
    return (
        f"a matrix product in {name} takes {ratio:.2g} times as long as in float32 on this CPU: set model.dtype=float32"
    )


def faster_note(name: str, device: Any) -> str:
    """A sentence if the weights are in float32 on a CPU that is faster in bfloat16; else empty.

    See `precision_note`.
    """
    if device.type != "cpu" or name not in ("auto", "float32"):
        return ""
    ratio = product_ratio(dtype_named("bfloat16", device))
    if ratio > FASTER:
        return ""
    return (
        f"a matrix product in bfloat16 takes {ratio:.2g} of its time in float32 on this CPU: model.dtype=bfloat16 is "
        "faster, and its log-probs are less exact (docs/models.md)"
    )


def product_ratio(dtype: Any) -> float:
    """The time of a matrix product in `dtype` divided by its time in float32, on this CPU with torch's threads."""
    import torch

    return _seconds(dtype) / _seconds(torch.float32)


def _seconds(dtype: Any) -> float:
    """The shortest of a few times of the product."""
    import torch

    rows, inner, columns = PRODUCT
    a, b = torch.ones(rows, inner, dtype=dtype), torch.ones(inner, columns, dtype=dtype)
    taken = []
    for _ in range(TRIES + 1):  # the first time includes what torch prepares
        start = time.perf_counter()
        a @ b
        taken.append(time.perf_counter() - start)
    return min(taken)
