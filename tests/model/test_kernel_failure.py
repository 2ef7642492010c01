"""A kernel for CUDA that fails is an error, not a slow run.

There is no GPU here. The layout gets a stand-in for the block mask, so that a CPU calls what CUDA calls, and a function
that fails, or whose backward pass fails, stands in for the compiled FlexAttention.
"""

import subprocess

import numpy as np
import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch.utils.checkpoint import _StopRecomputationError

from agentrl.model import KernelError, forward, network, probing, tree_attention
from agentrl.model.tree_attention import BLOCK, TreePlan, attending_over_trees, kernel_failure
from tests.toys.language_model import language_model

NO_COMPILER = RuntimeError("Failed to find C compiler.\nPlease specify via CC environment variable.")
HALF = [torch.float32, torch.bfloat16]


def compile_error() -> Exception:
    return BackendCompilerFailed(lambda graph, inputs: None, RuntimeError("no triton"), None)


def stand_in(monkeypatch, kernel) -> None:
    """Let the CPU call `kernel` where CUDA calls the compiled FlexAttention."""
    mask = object()
    for module in (forward, tree_attention):
        monkeypatch.setattr(module, "make_plan", lambda layout, device: TreePlan(runs=[], block_mask=mask))
    monkeypatch.setattr(tree_attention, "_compiled", [kernel])


def failing(error):
    def kernel(query, key, value, **options):
        raise error

    return kernel


class BackwardFails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query):
        return query.clone()

    @staticmethod
    def backward(ctx, grad):
        raise compile_error()


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize(
    "error", [NO_COMPILER, subprocess.CalledProcessError(1, ["gcc"]), AssertionError("width"), compile_error()]
)
def test_a_kernel_that_does_not_compile_ends_the_run_in_one_sentence(monkeypatch, dtype, error):
    stand_in(monkeypatch, failing(error))
    with pytest.raises(KernelError, match=r"FlexAttention failed on the GPU .* or set model\.device=cpu$") as found:
        network(language_model(0, dtype).model)
    assert type(error).__name__ in str(found.value) and "\n" not in str(found.value)
    assert found.value.__cause__ is error


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("full"), _StopRecomputationError()])
def test_what_is_no_failure_of_the_kernel_passes_unchanged(monkeypatch, error):
    stand_in(monkeypatch, failing(error))
    query = torch.zeros(1, 1, BLOCK, 16)
    plan = tree_attention.make_plan(None, None)
    with pytest.raises(type(error)) as found, attending_over_trees(torch.nn.Identity()):
        tree_attention.tree_attention(torch.nn.Identity(), query, query, query, None, tree_plan=plan)
    assert found.value is error


def test_a_backward_pass_that_does_not_compile_is_the_same_error(monkeypatch):
    stand_in(monkeypatch, lambda query, key, value, **options: BackwardFails.apply(query))
    model = language_model(0, torch.float32).model
    known = forward.Network(model=model, sharing="tree")
    batch = probing._batch_of(probing._Probe.tree, np.arange(8), "tree")
    with pytest.raises(KernelError, match="no triton"), known.attending():
        known.hidden(batch).sum().backward()
    assert model.config._attn_implementation != tree_attention.NAME
    with pytest.raises(RuntimeError, match="another"), known.attending():
        raise RuntimeError("another")


def test_doctor_s_trial_runs_forward_and_backward(monkeypatch):
    cpu = torch.device("cpu")
    assert kernel_failure(cpu) == ""
    stand_in(monkeypatch, lambda query, key, value, **options: BackwardFails.apply(query))
    assert "BackendCompilerFailed" in kernel_failure(cpu)
    stand_in(monkeypatch, failing(NO_COMPILER))
    assert "Failed to find C compiler. Please specify" in kernel_failure(cpu)


@pytest.mark.parametrize("dtype", HALF)
def test_heads_that_are_too_narrow_for_cuda_are_refused(monkeypatch, dtype):
    model = language_model(0, dtype).model
    width = model.config.head_dim
    assert probing._too_narrow(model) == 0 and network(model).sharing == "tree"  # a CPU computes any width
    monkeypatch.setattr(forward.Network, "device", torch.device("cuda"))
    assert probing._too_narrow(model) == (width if width < 16 else 0)
    monkeypatch.undo()
    monkeypatch.setattr(probing, "_too_narrow", lambda model: 8)
    with pytest.raises(ValueError, match=r"have width 8, and attention over a tree on CUDA needs at least 16: .*"):
        network(model)
    monkeypatch.setattr(probing, "_probe_structure", lambda model: "it has another structure")
    assert network(model).reason == "it has another structure"  # the kernel would not be used


def test_paths_that_are_asked_for_are_not_probed(monkeypatch):
    stand_in(monkeypatch, failing(NO_COMPILER))
    found = network(language_model(0, torch.float32).model, "paths")
    assert (found.sharing, found.reason) == ("paths", "asked for")
