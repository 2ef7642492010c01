"""Stores and loads the tensors of a learner's state, whole or divided over ranks.

An undivided learner has its tensors in the state itself (`tensors`). A divided learner stores one safetensors file per
rank by torch.distributed.checkpoint. Each tensor in these files is named after its parameter, so that any number of
ranks (also one) can read the files:

    optimiser.PARAMETER/KEY    state of the optimiser, such as exp_avg
    weight.PARAMETER           float32 copy of a trained weight that the model holds in half precision
    reference.PARAMETER        weight of the reference model, or of its adapter
    critic.head.PARAMETER, critic.model.PARAMETER, critic.optimiser.PARAMETER/KEY
"""

import logging
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from agentrl.model import Network
from agentrl.trainer import adamw, fsdp
from agentrl.trainer.critic import Critic
from agentrl.trainer.float32_masters import HALF, Masters
from agentrl.trainer.ranks import Ranks

log = logging.getLogger(__name__)

Optimisers = list[torch.optim.Optimizer]


class LearnerParts(Protocol):
    """What this module reads and changes of a learner (`agentrl.trainer.Learner`)."""

    network: Network
    optimisers: Optimisers
    masters: Masters | None
    reference_copy: Network | None
    reference_adapter: dict[str, Tensor] | None
    critic: Critic | None
    ranks: Ranks


class TensorType(NamedTuple):
    """Type and shape of a stored tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]


class TensorTable(Protocol):
    """Stored tensors."""

    def kinds(self) -> Mapping[str, TensorType]:
        """Type and shape of each stored tensor, by name."""
        ...

    def fill(self, targets: Mapping[str, Tensor]) -> None:
        """Copy stored tensors into the targets of the same names; a target may be divided."""
        ...


class _Whole:
    """Whole tensors in memory."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors

    def kinds(self) -> Mapping[str, TensorType]:
        return {name: TensorType(x.dtype, tuple(x.shape)) for name, x in self._tensors.items()}

    @torch.no_grad()
    def fill(self, targets: Mapping[str, Tensor]) -> None:
        for name, target in targets.items():
            full = self._tensors[name].to(target.device, target.dtype)
            target.copy_(fsdp.part_like(full, target))


class _Parts:
    """The files of a divided learner.

    Args:
        folder: the folder with the files.
        group: process group of the ranks that read the files; None for one process.
    """

    def __init__(self, folder: Path, group: Any) -> None:
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

        if not any(folder.glob("*.safetensors")):
            raise ValueError(
                f"{folder} holds no state of an optimiser: remove this checkpoint to continue from an older one"
            )
        self._folder, self._group = folder, group
        self._reader = HuggingFaceStorageReader(str(folder))

    def kinds(self) -> Mapping[str, TensorType]:
        found: dict[str, Any] = self._reader.read_metadata().state_dict_metadata
        return {name: TensorType(one.properties.dtype, tuple(one.size)) for name, one in found.items()}

    def fill(self, targets: Mapping[str, Tensor]) -> None:
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.state_dict_loader import load as load_parts

        read = {name: target.detach() for name, target in targets.items()}  # `detach` makes no copy
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "torch.distributed is disabled")  # a warning of no_dist=True
                load_parts(read, storage_reader=self._reader, process_group=self._group, no_dist=self._group is None)
        except CheckpointException as error:
            raise ValueError(f"{self._folder} cannot be read: {_first_cause(error)}") from None


def write(learner: LearnerParts, folder: Path) -> None:
    """Store the tensors of a divided learner; every rank calls this.

    Raises:
        OSError: a rank could not write its file.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save as save_parts

    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        save_parts(dict(_flat(learner)), storage_writer=writer, process_group=learner.ranks.messages)
    except CheckpointException as error:
        raise OSError(_first_cause(error)) from error


def tensors(learner: LearnerParts) -> dict[str, Any]:
    """The tensors of an undivided learner, as its checkpoint holds them."""
    reference = learner.reference_copy
    frozen = learner.reference_adapter if reference is None else reference.model.state_dict()
    return {
        "optimisers": [optimiser.state_dict() for optimiser in learner.optimisers],
        "masters": learner.masters.state() if learner.masters else [],
        "reference": frozen,
        "critic": None if learner.critic is None else learner.critic.state_dict(),
    }


def load_tensors(learner: LearnerParts, state: Mapping[str, Any]) -> None:
    """Load the state that `tensors` returned into an undivided learner.

    Raises:
        ValueError: see `Learner.load_state_dict`.
    """
    reference = learner.reference_copy
    try:
        for optimiser, saved in zip(learner.optimisers, state["optimisers"], strict=True):
            adamw.load(optimiser, saved)
            _check_shapes(optimiser)
        if learner.masters is not None:
            learner.masters.load(state.get("masters", []))
        if reference is not None and state["reference"] is not None:
            reference.model.load_state_dict(state["reference"])
        _load_adapter(learner, state["reference"])
    except (ValueError, RuntimeError, KeyError) as error:
        raise _of_another_model(str(error)) from None
    _require(learner, critic=state.get("critic") is not None, reference=state["reference"] is not None)
    if learner.critic is not None:
        learner.critic.load_state_dict(state["critic"])


def load(learner: LearnerParts, state: Mapping[str, Any], parts: Path | None) -> None:
    """Load a state that a learner with any number of ranks has stored; every rank calls this.

    Args:
        learner: the learner to fill, divided or not.
        state: the result of `Learner.state_dict`.
        parts: the folder that `write` wrote, if the stored learner was divided; else None.

    Raises:
        ValueError: see `Learner.load_state_dict`.
    """
    if "divided" in state:
        assert parts is not None, "the tensors of a divided learner are in a folder of their own"
        table: TensorTable = _Parts(parts, learner.ranks.messages)
    else:
        table = _Whole(_named(learner, state))
    kinds = table.kinds()
    stored = {name.split(".", 1)[0] for name in kinds}
    if "reference" not in stored:
        _without_adapter(learner)
    _require(learner, critic="critic" in stored, reference="reference" in stored)
    targets = dict(_weights(learner))
    for prefix, optimisers, names in _optimised(learner):
        targets |= _blank_states(prefix, optimisers, names, kinds)
    for name, target in targets.items():
        if name not in kinds:
            raise _of_another_model(f"the stored state has no {name}")
        if kinds[name].shape != tuple(target.shape):
            raise _of_another_model(f"{name} has shape {[*kinds[name].shape]}, and the learner's {[*target.shape]}")
    extra = sorted(
        name for name in kinds if name not in targets and ("optimiser." in name or name.startswith("weight."))
    )
    if extra:
        raise _of_another_model(f"the learner has no {extra[0]}")
    table.fill(targets)
    if learner.masters is not None:
        learner.masters.write_back()


def _require(learner: LearnerParts, *, critic: bool, reference: bool) -> None:
    """Raise ValueError if the learner has a critic or a reference copy that the stored state lacks."""
    if learner.critic is not None and not critic:
        raise ValueError("the checkpoint has no critic: resume with the critic.model that the run was started with")
    if learner.reference_copy is not None and not reference:
        raise ValueError(
            "the checkpoint has no reference model: resume with the update.kl_coef that the run was started with"
        )


def _load_adapter(learner: LearnerParts, stored: Mapping[str, Tensor] | None) -> None:
    """Set the adapter of the reference model to a stored one.

    Raises:
        ValueError: the stored adapter is of another model.
    """
    if stored is None:
        _without_adapter(learner)
        return
    for name, weight in (learner.reference_adapter or {}).items():
        if name not in stored or stored[name].shape != weight.shape:
            raise ValueError(f"the stored reference has no {name} of shape {[*weight.shape]}")
        weight.copy_(stored[name])


def _without_adapter(learner: LearnerParts) -> None:
    """Let the reference be the model without its adapter, as in states of versions that stored no adapter."""
    if learner.reference_adapter is not None:
        log.warning("the checkpoint holds no adapter of the reference model: the reference is the model without one")
        learner.reference_adapter = None


def _of_another_model(why: str) -> ValueError:
    return ValueError(f"the stored optimiser belongs to another model or another section [optim]: {why}")


def _flat(learner: LearnerParts) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of the learner's state, with its name in the files."""
    yield from _weights(learner)
    for prefix, optimisers, names in _optimised(learner):
        for optimiser in optimisers:
            for parameter, state in optimiser.state.items():
                for key, value in state.items():
                    yield f"{prefix}.{names[id(parameter)]}/{key}", value


def _weights(learner: LearnerParts) -> Iterator[tuple[str, Tensor]]:
    """The tensors that exist before the first optimiser step: float32 weights, reference, critic."""
    assert learner.masters is not None
    half = _half(learner)
    for name, parameter in learner.network.model.named_parameters():
        if name in half:
            yield f"weight.{name}", learner.masters.of(parameter).detach()
    if learner.reference_copy is not None:
        for name, parameter in learner.reference_copy.model.named_parameters():
            yield f"reference.{name}", parameter.detach()
    for name, weight in (learner.reference_adapter or {}).items():
        yield f"reference.{name}", weight
    if learner.critic is not None:
        for name, parameter in learner.critic.named_parameters():
            yield f"critic.{name}", parameter.detach()


def _half(learner: LearnerParts) -> list[str]:
    """Names of the trained weights of which the optimiser changes a float32 copy, in the model's order."""
    model = fsdp.before(learner.network.model)
    return [name for name, p in model.named_parameters() if p.requires_grad and p.dtype in HALF]


def _optimised(learner: LearnerParts) -> Iterator[tuple[str, Optimisers, dict[int, str]]]:
    """For the policy, then for the critic: prefix, optimisers, and the name of each optimised tensor by its `id`."""
    assert learner.masters is not None
    model: nn.Module = learner.network.model
    yield "optimiser", learner.optimisers, {id(learner.masters.of(p)): name for name, p in model.named_parameters()}
    if learner.critic is not None:
        named = {id(p): name for name, p in learner.critic.named_parameters()}
        yield "critic.optimiser", [learner.critic.optimiser], named


def _blank_states(
    prefix: str, optimisers: Optimisers, names: Mapping[int, str], kinds: Mapping[str, TensorType]
) -> dict[str, Tensor]:
    """Give the optimisers a tensor of zeros for each stored tensor of their states. Returns the new tensors by name."""
    made: dict[str, Tensor] = {}
    for optimiser in optimisers:
        for group, parameter in ((one, p) for one in optimiser.param_groups for p in one["params"]):
            start = f"{prefix}.{names[id(parameter)]}/"
            for name in (name for name in kinds if name.startswith(start)):
                whole = not kinds[name].shape and parameter.ndim  # a scalar, such as the count of steps
                home = parameter.device if group.get("fused") else "cpu"  # where AdamW counts its steps
                blank = (
                    torch.zeros((), dtype=kinds[name].dtype, device=home)
                    if whole
                    else torch.zeros_like(parameter.detach())
                )
                made[name] = optimiser.state[parameter][name.removeprefix(start)] = blank
    return made


def _named(learner: LearnerParts, state: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a state that `tensors` returned, by the names that the files of a divided learner use."""
    try:
        named = {f"weight.{name}": x for name, x in zip(_half(learner), state.get("masters") or [], strict=True)}
        named |= {f"reference.{name}": x for name, x in (state["reference"] or {}).items()}
        stored = [state["optimisers"]]
        if learner.critic is not None and state.get("critic") is not None:
            critic = state["critic"]
            named |= {f"critic.head.{name}": x for name, x in critic["head"].items()}
            named |= {f"critic.model.{name}": x for name, x in (critic["model"] or {}).items()}
            stored.append([critic["optimiser"]])
        for (prefix, optimisers, names), saved in zip(_optimised(learner), stored, strict=False):
            for optimiser, one in zip(optimisers, saved, strict=True):
                order = [p for group in optimiser.param_groups for p in group["params"]]
                numbers = [number for group in one["param_groups"] for number in group["params"]]
                for parameter, number in zip(order, numbers, strict=True):
                    for key, value in one["state"].get(number, {}).items():
                        named[f"{prefix}.{names[id(parameter)]}/{key}"] = value
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _of_another_model(str(error)) from None
    return named


def _check_shapes(optimiser: torch.optim.Optimizer) -> None:
    """Raise ValueError if a parameter's state has another shape than the parameter.

    Without this check, torch would fail only in the next update.
    """
    for parameter, state in optimiser.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.ndim and value.shape != parameter.shape:
                raise ValueError(f"{name} has shape {[*value.shape]} for a parameter of shape {[*parameter.shape]}")


def _first_cause(error: Any) -> str:
    """The message of the first rank that failed, at most 200 characters."""
    causes = [str(one[0] if isinstance(one, tuple) else one) for one in getattr(error, "failures", {}).values()]
    return " ".join((causes[0] if causes else str(error)).split())[:200]
