"""Finds out whether a model can run on a packed trie, from its configuration and from a test with a small tree.

The structure of a model is judged in float32. In half precision, rounding makes two correct evaluations of the same
text differ. This difference may be larger than that between a correct and a wrong evaluation, because pretrained models
have huge activations at some tokens. A model in half precision is therefore tested twice. First, a copy of its
architecture with few layers and random float32 weights must give equal hidden states over a tree and the tree's paths.
Then the hidden states of the model itself over a tree and over the tree's paths must differ by no more than
`NOISE_FACTOR` times the noise of the model (`_probe_noise` defines the noise).

Letters: T packed tokens, L tokens of a path, d width.
"""

import copy
import math
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from agentrl.model.forward import Network
from agentrl.model.layout import Layout
from agentrl.model.packing import Batch, Sharing
from agentrl.model.tree_attention import LEAST_WIDTH, KernelError, attending_by

TOLERANCE = 1e-3  # relative difference; in float32 or wider types, a larger difference is not rounding
NOISE_FACTOR = 4.0  # allowed difference in half precision, as a multiple of the noise (see `_probe_noise`)
PROBED_LAYERS, PROBED_WIDTH, PROBED_VOCABULARY = 2, 64, 64  # largest sizes of the copy in float32
WIDE = (torch.float32, torch.float64)
PATHS = ([0, 1, 2, 3, 4], [0, 1, 2, 5, 6, 7])  # packed indices of the small tree's two paths


def network(model: nn.Module, sharing: Sharing | None = None, *, dropout: bool = False) -> Network:
    """Find out whether a model can run on a packed trie: read its configuration, then run it on a small tree.

    Args:
        model: a transformers causal language model, or a peft model around one.
        sharing: how the trainer shall call the model. None: on a packed trie if this function finds that the model
            can run on it. "tree": on a packed trie, without a test. "paths": on separate paths, without a test.
        dropout: the model must run in training mode, with its dropout, too.

    Raises:
        ValueError: the model's log-probabilities cannot be computed from its hidden states, or it uses prompt tuning,
            or its heads are too narrow for the kernel on CUDA.
        KernelError: the kernel on CUDA fails. This is a ValueError too.
    """
    outer: Any = model
    inner = outer.get_base_model() if hasattr(outer, "get_base_model") else outer
    if getattr(getattr(outer, "active_peft_config", None), "is_prompt_learning", False):
        raise ValueError("prompt-tuning adapters add tokens of their own, which packing cannot place: use LoRA")
    training = inner.training
    inner.eval()
    try:
        with torch.no_grad():
            _check_head(Network(model=inner, sharing="paths"))
            if sharing is None:
                reason = _why_paths(inner) or (_why_not_dropping(inner) if dropout else "")
            else:
                reason = "asked for" if sharing == "paths" else ""
    finally:
        inner.train(training)
    return Network(model=inner, sharing="paths" if reason else "tree", reason=reason)


def _why_paths(model: Any) -> str:
    """Why this model cannot take a packed trie; empty if it can."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"]) - {"full_attention"}
    if kinds:
        return f"{config.model_type} has layers of kind {', '.join(sorted(map(str, kinds)))}"
    for name in ("sliding_window", "attention_chunk_size"):
        if getattr(config, name, None) and getattr(config, f"use_{name}", True):
            return f"{config.model_type} has {name}={getattr(config, name)}"
    if getattr(model, "_is_stateful", False):
        return f"{config.model_type} carries a state from token to token"
    if not getattr(model, "_supports_attention_backend", False):
        return f"{config.model_type} does not call transformers' attention interface"
    width = _too_narrow(model)
    if model.dtype in WIDE and not width:
        return _probe_structure(model)
    try:
        small = _shallow_copy(model)
    except Exception as error:  # noqa: BLE001  the constructor of an architecture may raise anything
        why = " ".join(str(error).split())[:200] or type(error).__name__
        return f"{config.model_type} cannot be made in float32 with {PROBED_LAYERS} layers, to be probed ({why})"
    why = _probe_structure(small)
    if width and not why:
        raise ValueError(
            f"the heads of {config.model_type} have width {width}, and attention over a tree on CUDA needs at least "
            f"{LEAST_WIDTH}: make the model with fewer heads or a larger hidden size, or set model.device=cpu"
        )
    return why or _probe_noise(model)


def _why_not_dropping(model: Any) -> str:
    """Why a model that can take a packed trie in evaluation mode cannot take one with dropout; empty if it can."""
    device = Network(model=model, sharing="tree").device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        model.train()
        try:
            _Probe(model, np.arange(1, 9)).packed()
        except KernelError:
            raise
        except ValueError as error:
            return f"with learner.keep_dropout, {str(error).partition(';')[0]}"
        finally:
            model.eval()
    return ""


def _too_narrow(model: Any) -> int:
    """The width of the model's heads if it is on CUDA and its heads are too narrow for the kernel there; else 0."""
    if Network(model=model, sharing="tree").device.type != "cuda":
        return 0
    config = model.config.get_text_config()
    width = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    return width if width < LEAST_WIDTH else 0


def _shallow_copy(model: Any) -> Any:
    """A model of the same class on the CPU with random float32 weights.

    It has fewer layers, narrower feed-forward layers and a smaller vocabulary.
    """
    config = copy.deepcopy(model.config)
    text = config.get_text_config()
    layers = int(text.num_hidden_layers)
    for name, value in list(vars(text).items()):
        if isinstance(value, list | tuple) and len(value) == layers:  # one value per layer
            setattr(text, name, value[:PROBED_LAYERS])
        elif name.endswith("intermediate_size") and isinstance(value, int):
            setattr(text, name, min(value, PROBED_WIDTH))
    text.num_hidden_layers = min(layers, PROBED_LAYERS)
    text.vocab_size, text.pad_token_id = min(text.vocab_size, PROBED_VOCABULARY), None
    config._attn_implementation = "eager"  # the model's own attention may not run on the CPU
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(0)
        return type(model)(config).float().eval()


def _probe_structure(model: Any) -> str:
    """Why a float32 or float64 model cannot take a packed trie; empty if it can."""
    probe, kind = _Probe(model, np.arange(1, 9)), model.config.model_type
    try:
        worst = probe.apart(probe.packed(), probe.plain())
    except KernelError:
        raise
    except (ValueError, TypeError, RuntimeError, AttributeError) as error:
        return f"{kind}: {error}"
    return "" if worst < TOLERANCE else f"{kind} gives other hidden states over a tree (by {worst:.1e})"


def _probe_noise(model: Any) -> str:
    """Why a half-precision model cannot take a packed trie; empty if it can.

    It cannot if its hidden states over a tree and over paths differ by more than `NOISE_FACTOR` times its noise. The
    noise is the difference between evaluations of the same paths by two attention functions, which round differently;
    it is at least the relative precision (`eps`) of the type.
    """
    vocabulary = model.config.get_text_config().vocab_size
    probe = _Probe(model, (2 * np.arange(8) + 1) * vocabulary // 16)  # spread over the whole vocabulary
    plain = probe.plain()
    try:
        worst = probe.apart(probe.packed(), plain)
    except KernelError:
        raise
    except (ValueError, TypeError, RuntimeError, AttributeError) as error:
        return f"{model.config.model_type}: {error}"
    noise = max(probe.apart(probe.plain(other_attention=True), plain), torch.finfo(model.dtype).eps)
    if np.isfinite(noise) and worst <= NOISE_FACTOR * noise:
        return ""
    kind = str(model.dtype).removeprefix("torch.")
    return (
        f"{model.config.model_type} gives other hidden states over a tree in {kind} (by {worst:.1e}, its own noise is "
        f"{noise:.1e})"
    )


class _Probe:
    """A small tree of eight tokens, and its two paths."""

    tree = Layout(
        source=np.arange(8),
        position=np.array([0, 1, 2, 3, 4, 3, 4, 5]),
        predictor=np.array([-1, 0, 1, 2, 3, 2, 5, 6]),
        subtree_end=np.array([8, 8, 8, 5, 5, 8, 8, 8]),
    )

    def __init__(self, model: Any, ids: np.ndarray) -> None:
        self.ids = ids % model.config.get_text_config().vocab_size  # [8]
        self.network = Network(model=model, sharing="tree")

    def packed(self) -> list[Tensor]:
        """[L, d] hidden states of each path, from one pass over the tree; an error if the model cannot run on it."""
        with self.network.attending():
            hidden = self.network.hidden(_batch_of(self.tree, self.ids, "tree"))  # [8, d]
        return [hidden[path] for path in PATHS]

    def plain(self, *, other_attention: bool = False) -> list[Tensor]:
        """[L, d] hidden states of each path, from one pass per path; the attention is the model's, or another one."""
        used = self.network.config._attn_implementation
        other = "sdpa" if used == "eager" else "eager"
        with attending_by(other, self.network.model) if other_attention else nullcontext():
            ids = (torch.from_numpy(self.ids[path]).to(self.network.device) for path in PATHS)
            return [self.network.decoder(path[None])[0] for path in ids]

    @staticmethod
    def apart(found: list[Tensor], wanted: list[Tensor]) -> float:
        """The largest difference, relative to the largest |value| of `wanted` on the path; inf if one is not finite."""
        worst = [float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, wanted, strict=True)]
        return max(worst) if all(map(math.isfinite, worst)) else math.inf


def _check_head(network: Network) -> None:
    """Raises ValueError if `Network.logits` differs from the logits that the model returns by more than rounding."""
    model: Any = network.model
    ids = torch.arange(1, 5, device=network.device)[None] % network.config.vocab_size
    ours = network.logits(network.decoder(ids))[0].float()
    theirs = model(input_ids=ids, use_cache=False).logits[0].float()
    if not torch.allclose(ours, theirs, rtol=1e-2, atol=1e-2 * float(theirs.abs().max())):
        raise ValueError(
            f"{network.config.model_type} post-processes its logits in a way that the trainer does not reproduce: "
            "add it to agentrl.model.Network.logits"
        )


def _batch_of(layout: Layout, ids: np.ndarray, sharing: Sharing) -> Batch:
    """A batch without targets, to compute hidden states only."""
    none = np.zeros(0, np.int64)
    return Batch(
        layout=layout,
        ids=ids,
        sharing=sharing,
        target=none,
        at=none,
        source=none,
        row=none,
        weight=np.zeros(0),
        allowed_offsets=np.zeros(1, np.int64),
        allowed_ids=none,
    )
