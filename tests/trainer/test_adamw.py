"""AdamW's kernel: the fused one where all trained tensors are on CUDA, for which fake tensors stand here."""

import copy

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from agentrl.trainer import adamw


def tensors(*devices: str) -> list[torch.Tensor]:
    return [torch.empty(4, 3, device=device, requires_grad=True) for device in devices]


def test_the_kernel_is_fused_where_all_trained_tensors_are_on_cuda():
    with FakeTensorMode():
        assert adamw.fused(tensors("cuda", "cuda")) is True
        assert adamw.fused(tensors("cuda", "cpu")) is None  # an offloaded part
        assert adamw.fused(tensors("cpu")) is None and adamw.fused(tensors("meta")) is None


def test_the_learner_s_optimiser_of_tensors_on_cuda_is_fused_and_counts_its_steps_there():
    with FakeTensorMode():
        parameters = tensors("cuda", "cuda")
        optimiser = adamw.make([{"params": parameters[:1]}, {"params": parameters[1:]}], lr=0.1)
        for parameter in parameters:
            parameter.grad = torch.empty_like(parameter)
        optimiser.step()
    assert [group["fused"] for group in optimiser.param_groups] == [True, True]
    assert {x.device.type for state in optimiser.state.values() for x in state.values()} == {"cuda"}


def stepped(fused: bool | None) -> torch.optim.Optimizer:
    parameter = torch.ones(4, 3, requires_grad=True)
    parameter.grad = torch.full_like(parameter, 0.5)
    optimiser = torch.optim.AdamW([parameter], lr=0.1, fused=fused)
    optimiser.step()
    return optimiser


@pytest.mark.parametrize("stored", [None, True])
@pytest.mark.parametrize("here", [None, True])
def test_a_state_that_another_device_stored_keeps_the_kernel_of_this_device(stored, here):
    state = copy.deepcopy(stepped(stored).state_dict())
    optimiser = stepped(here)
    adamw.load(optimiser, state)
    (group,) = optimiser.param_groups
    assert group["fused"] is here and group["lr"] == 0.1
    optimiser.step()
    # two steps of lr * mean / root with a constant gradient are 0.1 each, and each step decays the weight by 0.1 * 0.01
    assert group["params"][0].detach() == pytest.approx(torch.full((4, 3), 0.899 * 0.999 - 0.1), abs=1e-5)
    with pytest.raises(ValueError, match="different number of parameter groups"):
        adamw.load(optimiser, {**state, "param_groups": []})


def test_the_steps_of_a_state_on_a_cpu_move_to_cuda():
    with FakeTensorMode():
        (parameter,) = tensors("cuda")
        optimiser = adamw.make([{"params": [parameter]}], lr=0.1)
        moments = {key: torch.zeros(4, 3) for key in ("exp_avg", "exp_avg_sq")}
        state = optimiser.state_dict()
        state["param_groups"][0] |= {"fused": None, "lr": 0.2}  # as a learner on a CPU has stored it
        adamw.load(optimiser, {**state, "state": {0: {"step": torch.tensor(1.0), **moments}}})
    assert {x.device.type for x in optimiser.state[parameter].values()} == {"cuda"}
    assert optimiser.param_groups[0]["fused"] is True and optimiser.param_groups[0]["lr"] == 0.2
