"""Forecasts how much memory an update needs, by running the update on tensors without memory.

The real `update` runs on tensors that have shapes and types and no memory. These are tensors on the device meta or, for
a divided learner and if meta does not work, fakes (`torch._subclasses.FakeTensorMode`). The optimiser already has its
state, as after a first step. `Peak` adds up the storages that would be alive. The forecast uses the attention for CPUs,
which stores the same tensors as FlexAttention: query, key, value, output and log-sum-exp. Some memory of a device is
not counted: its context, gaps of the allocator, workspaces of kernels, buffers of NCCL. A device therefore needs at
least as much memory as the forecast says. Page-locked buffers are not counted, because they are in the CPU's memory.
"""

import copy
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from agentrl.config import Entry
from agentrl.credit import Credit
from agentrl.graph import COLUMNS, StepGraph, Tokens
from agentrl.loss import Loss
from agentrl.model import Network, chunk_for
from agentrl.trainer.learner import Learner
from agentrl.trainer.local_passes import LocalPasses
from agentrl.trainer.meter import Meter
from agentrl.trainer.passes import StepReport
from agentrl.trainer.policy_update import update
from agentrl.trainer.ranks import Ranks
from agentrl.trainer.sections import LearnerConfig, OptimConfig, UpdateConfig

BLOCK = 512  # bytes; CUDA's allocator gives whole blocks of this size
SAMPLED = 0.25  # share of sampled tokens among the tokens of an episode of the forecast
TURNS = 8  # turns per episode of the forecast


class Need(NamedTuple):
    """The memory that one process needs, in bytes.

    Attributes:
        weights: trained and frozen weights, with their float32 copies.
        reference: the reference model.
        optimiser: the optimiser's state after the first step.
        peak: largest memory that is in use at one time in an update, or while a divided learner gathers its weights for
            engines one by one; it includes weights, reference and optimiser.
        whole: the undivided copy of the weights with which process 0 of a divided learner generates, if its engine
            generates in this process; `peak` does not include it.
    """

    weights: int
    reference: int
    optimiser: int
    peak: int
    whole: int = 0


class Peak(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all living storages that operators have returned (`now`), and their maximum (`most`).

    torch's own MemTracker refuses a module that is called several times. The output head is such a module: it is called
    once per chunk of targets.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self._size: dict[int, int] = {}

    def hold(self, tensor: Any) -> None:
        """Count a tensor's storage as long as the storage lives."""
        local = getattr(tensor, "_local_tensor", tensor)  # a DTensor reports the storage size of the undivided tensor
        storage = local.untyped_storage()
        if storage._cdata not in self._size:
            self._size[storage._cdata] = 0
            weakref.finalize(storage, self._drop, storage._cdata)
        self.resized(storage)

    def resized(self, storage: Any) -> None:
        """Count the new size of a storage that `hold` has seen."""
        if storage._cdata in self._size:
            size = -(-storage.nbytes() // BLOCK) * BLOCK
            self.now += size - self._size[storage._cdata]
            self._size[storage._cdata] = size
            self.most = max(self.most, self.now)

    def _drop(self, key: int) -> None:
        self.now -= self._size.pop(key, 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, Tensor):
                self.hold(x)
        return out


class _Silent(Meter):
    """A meter that counts nothing, because the tensors have no values."""

    def add(self, *told: Any) -> None:
        pass

    def observe(self, *told: Any) -> None:
        pass

    def means(self, ranks: Any = None) -> dict[str, float]:
        return {}


class _OneOfMany(Ranks):
    """Rank 0 of a group whose other ranks do not exist; it computes all micro-batches itself."""

    def __init__(self, size: int) -> None:
        self.grouped, self.size, self.rank, self.messages = True, size, 0, None

    def share(self, parts: Any) -> Iterator[Any]:
        yield from ((part, True) for part in parts)

    def mesh(self, kind: str) -> Any:
        with unset_fake_temporarily():  # the tensor inside a mesh needs values
            return super().mesh(kind)

    def other(self, value: Any) -> int | None:
        return None


class _BriefNetwork(Network):
    """A network whose attention computes only the two longest episodes (`runs` of the attention's plan).

    The attention computes episodes one after another. Further episodes would not need more memory, and would take most
    of the forecast's time. Two episodes are needed, because tensors of the first are still alive while the second is
    computed. No episode may branch. The backward pass does not divide an episode, because calls on tensors without
    values take time.
    """

    def plan(self, layout: Any) -> Any:
        plan = super().plan(layout)
        assert all(end == below for _, end, below in plan.runs)
        longest = sorted(plan.runs, key=lambda run: run[0] - run[1])[:2]
        return replace(plan, runs=longest, piece=len(layout))


class _SilentPasses(LocalPasses):
    """Passes that draw no noise, because the generator of the model's device may be missing."""

    @contextmanager
    def noise(self, seed: int) -> Iterator[None]:
        yield


class _Simulated(Learner):
    """A learner that reads no value of a tensor, because its tensors may have no values.

    Its AdamW is the kernel of a GPU (`agentrl.trainer.adamw.fused`), whatever device the tensors are on. If offloaded
    tensors are simulated, the AdamW is torch's loop, which a CPU runs.
    """

    meter = _Silent

    def restart(self, optim: OptimConfig, updates: int) -> None:
        super().restart(optim, updates)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["fused"] = not self.config.offload and not self._on_meta(optimiser)

    @staticmethod
    def _on_meta(optimiser: torch.optim.Optimizer) -> bool:
        return any(x.is_meta for group in optimiser.param_groups for x in group["params"])

    @property
    def passes(self) -> LocalPasses:
        return _SilentPasses(self.network, self.config.keep_dropout)

    def step(self) -> StepReport:
        assert self.masters is not None
        for optimiser in self.optimisers:
            # Meta has no fused kernel. After the first step, which makes the state, the kernel allocates nothing.
            if not (optimiser.state and self._on_meta(optimiser)):
                optimiser.step()
        self.masters.write_back()
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)
        return StepReport(0.0, False)


def episodes(tokens: int, vocabulary: int, longest: int) -> StepGraph:
    """The graph of one micro-batch with about `tokens` packed tokens; about the share `SAMPLED` of them is sampled.

    Its episodes have about `longest` tokens each. If more than 2 * TURNS tokens remain, one more episode has these.
    """
    lengths = [longest] * (tokens // longest) + ([tokens % longest] if tokens % longest > 2 * TURNS else [])
    rows: list[tuple[int, int, int, int]] = []  # prompt, answer, row above, episode
    for episode, length in enumerate(lengths):
        for turn in range(TURNS):
            size = length // TURNS
            answer = max(1, int(SAMPLED * size))
            rows.append((size - answer, answer, len(rows) - 1 if turn else -1, episode))
    n = len(rows)
    columns: dict[str, np.ndarray] = {name: np.zeros(n, kind) for name, kind in COLUMNS.items()}
    above, episode_of = (np.array([row[place] for row in rows]) for place in (2, 3))
    columns |= {"caller": np.full(n, -1), "valid": np.ones(n, bool), "weight": np.ones(n), "parent": above}
    columns |= {name: episode_of.copy() for name in ("episode", "rollout", "group")}
    columns["turn"] = np.arange(n) % TURNS
    columns["tree"] = np.arange(n) - np.arange(n) % TURNS
    own = np.array([row[0] + row[1] for row in rows])
    sampled = np.concatenate([np.repeat([False, True], row[:2]) for row in rows])
    ids = np.random.default_rng(0).integers(0, vocabulary, own.sum())
    before = np.array([sum(own[i - i % TURNS : i]) for i in range(n)])
    table = Tokens(
        offsets=np.append(0, np.cumsum(own)),
        ids=ids,
        sampled=sampled,
        logprobs=np.full(len(ids), -1.0),
        allowed_offsets=np.zeros(len(ids) + 1, np.int64),
        allowed_ids=np.zeros(0, np.int64),
        context=above,
        context_tokens=before,
    )
    columns = {name: x.astype(COLUMNS[name]) for name, x in columns.items()}
    graph = StepGraph(columns=columns, tokens=table)
    return graph.with_token_columns(old_logprob=table.logprobs, ref_logprob=table.logprobs)


def forecast_update(
    empty: Any,
    tokens: int,
    longest: int,
    config: UpdateConfig,
    loss: Entry[Loss],
    learner: LearnerConfig,
    reference: bool,
    copied: bool = True,
    memory: int = 0,
) -> Need:
    """The memory that the update on one micro-batch needs on one of the `learner.processes` processes.

    Args:
        empty: a transformers model on the meta device, with adapters already inside.
        tokens: number of packed tokens of the micro-batch.
        longest: number of tokens of an episode.
        config, loss, learner: sections [update], [loss] and [learner] of the run.
        reference: is there a reference model?
        copied: does process 0 of a divided learner keep an undivided copy of the weights (see `Learner`)?
        memory: bytes of the memory of the GPU; the number of logits per chunk depends on it. 0 takes the smallest.

    Raises:
        torch._subclasses.fake_tensor.DataDependentOutputException: the loss reads values.
        torch._subclasses.fake_tensor.DynamicOutputShapeException: the shape of a tensor in the loss depends on values.
    """
    graph = episodes(tokens, empty.config.get_text_config().vocab_size, longest)
    if not learner.divided:  # tensors on meta are about five times as fast as fakes, but FSDP2 refuses them
        with suppress(RuntimeError):  # if an operator reads values or does not exist on meta, fakes are tried
            return measured(copy.deepcopy(empty), graph, config, loss, learner, reference, memory=memory)
    with FakeTensorMode(allow_non_fake_inputs=True):
        return measured(without_values(empty), graph, config, loss, learner, reference, copied, memory)


def measured(
    model: Any,
    graph: StepGraph,
    config: UpdateConfig,
    loss: Entry[Loss],
    learner: LearnerConfig,
    reference: bool,
    copied: bool = True,
    memory: int = 0,
) -> Need:
    """The memory that an update on this graph needs, if the optimiser already has its state.

    The weights of the model may be real, fakes, or on the device meta. For the other arguments see `forecast_update`.
    """
    peak = Peak()
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    weight = next(inner.parameters())
    kind = _BriefNetwork if weight.is_meta or isinstance(weight, FakeTensor) else Network
    with ExitStack() as stack:
        ranks = stack.enter_context(_absent_ranks(learner.processes, peak)) if learner.divided else None
        loaded: Any = SimpleNamespace(model=model, tokenizer=None)
        known = kind(model=inner, sharing="tree", chunk=chunk_for(memory))
        made = _Simulated(
            loaded, OptimConfig(), known=known, config=learner, reference=reference, ranks=ranks, copied=copied
        )
        whole = _bytes([*made.generating.parameters()]) if learner.divided and copied else 0
        made.generating = None
        kept = _bytes([*made.network.model.parameters(), *made.network.model.buffers(), *made.trained])
        frozen = made.reference_copy
        beside = _bytes([*([] if frozen is None else frozen.model.parameters()), *_frozen_adapter(made)])
        for parameter in made.trained:
            parameter.grad = torch.zeros_like(parameter)
        made.step()  # makes the optimiser's state
        states = [x for one in made.optimisers for state in one.state.values() for x in state.values()]
        for x in [*_held(made), *states]:
            peak.hold(x)
        credit = Credit.of(np.random.default_rng(0).normal(size=len(graph)))
        with peak:
            update(made, graph, credit, config, loss, temperature=1.0)
            for _ in made.gathered([name for name, _ in inner.named_parameters()]) if learner.divided else ():
                pass
        return Need(kept, beside, _bytes(states), peak.most, whole)


@contextmanager
def _absent_ranks(size: int, peak: Peak) -> Iterator[Ranks]:
    """The ranks of a process group in which only this process exists and messages do nothing.

    FSDP2 frees gathered weights by giving their storages the size 0. No operator does this, so `peak` cannot see it.
    Inside this context, the functions of FSDP2 that change the size also call `peak.hold`.
    """
    import torch.distributed as dist
    from torch.distributed.fsdp._fully_shard import _fsdp_param, _fsdp_param_group
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def told(change: Callable[[Tensor], None]) -> Callable[[Tensor], None]:
        def changed(tensor: Tensor) -> None:
            change(tensor)
            peak.hold(tensor)

        return changed

    places = [
        (module, name, getattr(module, name))
        for module in (_fsdp_param, _fsdp_param_group)
        for name in ("free_storage", "alloc_storage")
        if hasattr(module, name)
    ]
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
    try:
        for module, name, change in places:
            setattr(module, name, told(change))
        yield _OneOfMany(size)
    finally:
        for module, name, change in places:
            setattr(module, name, change)
        dist.destroy_process_group()


def _held(learner: Learner) -> list[Tensor]:
    model: nn.Module = learner.network.model
    frozen = [] if learner.reference_copy is None else [*learner.reference_copy.model.parameters()]
    return [*model.parameters(), *model.buffers(), *learner.trained, *frozen, *_frozen_adapter(learner)]


def _frozen_adapter(learner: Learner) -> list[Tensor]:
    """The tensors of the reference model's adapter."""
    return [*(learner.reference_adapter or {}).values()]


def _bytes(tensors: Sequence[Tensor]) -> int:
    storages: dict[int, int] = {}
    for x in tensors:
        storage = getattr(x, "_local_tensor", x).untyped_storage()
        storages[storage._cdata] = storage.nbytes()
    return sum(storages.values())


def without_values(model: Any) -> Any:
    """Replace all tensors of a model on the meta device by fakes on the CPU, in place; needs a `FakeTensorMode`."""
    made: dict[int, Tensor] = {}
    for module in model.modules():
        for table in (module._parameters, module._buffers):
            for name, x in table.items():
                if x is None:
                    continue
                if id(x) not in made:
                    fake = torch.empty(x.shape, dtype=x.dtype, device="cpu")
                    trained = isinstance(x, nn.Parameter) and x.requires_grad
                    made[id(x)] = nn.Parameter(fake, requires_grad=trained) if isinstance(x, nn.Parameter) else fake
                table[name] = made[id(x)]
    return model
