"""Is half precision slow on this CPU? The sentences by hand, and one measured ratio."""

import math

import pytest
import torch

from agentrl.model import device, faster_note, precision_note

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("ratio", "slow", "fast"),
    [(48.0, "takes 48 times as long", ""), (1.2, "", ""), (0.25, "", "takes 0.25 of its time")],
)
def test_a_type_is_called_slow_or_fast_by_the_measured_ratio(monkeypatch, ratio, slow, fast):
    monkeypatch.setattr(device, "product_ratio", lambda dtype: ratio)
    for name in ("bfloat16", "float16"):
        note = precision_note(name, CPU)
        assert (
            (f"a matrix product in {name} {slow}" in note and "set model.dtype=float32" in note) if slow else not note
        )
        assert not faster_note(name, CPU)
    for name in ("auto", "float32"):
        note = faster_note(name, CPU)
        assert (fast in note and "model.dtype=bfloat16 is faster" in note) if fast else not note
        assert not precision_note(name, CPU)


def test_other_devices_are_not_timed(monkeypatch):
    monkeypatch.setattr(device, "product_ratio", lambda dtype: pytest.fail("timed"))
    for name in ("auto", "float32", "bfloat16"):
        assert not precision_note(name, torch.device("cuda")) and not faster_note(name, torch.device("cuda"))


def test_the_ratio_is_measured():
    ratio = device.product_ratio(torch.bfloat16)
    assert math.isfinite(ratio) and ratio > 0.01
