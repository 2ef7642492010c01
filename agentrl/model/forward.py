"""How the trainer calls a causal language model: on a packed trie if its layers allow it, else with one path per row.

Letters: T packed tokens, B paths, L longest path, d width, V vocabulary.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from agentrl.model.layout import Layout
from agentrl.model.packing import Batch, Sharing
from agentrl.model.tree_attention import BLOCK, NAME, attending_over_trees, make_plan

TOLERANCE = 1e-3  # relative; a probe that differs by more is not rounding


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """A causal language model as the trainer sees it.

    Attributes:
        model: the transformers model; adapters (peft) are already part of its layers.
        sharing: "tree" if all layers of the model are plain causal attention, else "paths".
        reason: why the model needs "paths", for the report; empty for "tree".
    """

    model: nn.Module
    sharing: Sharing
    reason: str = ""

    @property
    def config(self) -> Any:
        """The configuration of the model's text part."""
        config: Any = self.model.config
        return config.get_text_config()

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def attending(self) -> AbstractContextManager[None]:
        """Context in which the model attends over trees.

        It must be open around `hidden` and around the backward pass, in which gradient checkpointing reruns the layers.
        """
        return attending_over_trees(self.model) if self.sharing == "tree" else nullcontext()

    def hidden(self, batch: Batch) -> Tensor:
        """[T, d] hidden state of every packed token, after the last norm."""
        return self._over_tree(batch) if batch.sharing == "tree" else self._over_paths(batch)

    def logits(self, hidden: Tensor) -> Tensor:
        """[k, V] logits from hidden states [k, d], with the scale or cap that some architectures apply to logits."""
        model: Any = self.model
        logits: Tensor = model.get_output_embeddings()(hidden)
        for name, divides in (("logits_scaling", True), ("logit_scale", False)):  # Granite; Cohere
            factor = getattr(self.config, name, None)
            if factor:
                logits = logits / factor if divides else logits * factor
        cap = getattr(self.config, "final_logit_softcapping", None)  # Gemma 2
        return cap * torch.tanh(logits / cap) if cap else logits

    def _decoder(self, ids: Tensor, **options: Any) -> Tensor:
        # Limit: FSDP2 hooks on the outermost module do not run here; shard the decoder itself.
        model: Any = self.model
        states: Tensor = model.get_decoder()(input_ids=ids, use_cache=False, **options).last_hidden_state
        return states

    def _over_tree(self, batch: Batch) -> Tensor:
        layout, ids = batch.layout, batch.ids
        if self.device.type == "cuda":
            layout, ids = _whole_blocks(layout, ids)
        plan = make_plan(layout, self.device)
        row, position = (torch.from_numpy(x).to(self.device)[None] for x in (ids, layout.position))
        assert self.config._attn_implementation == NAME, "call hidden inside `with network.attending()`"
        return self._decoder(row, position_ids=position, tree_plan=plan)[0, : len(batch)]

    def _over_paths(self, batch: Batch) -> Tensor:
        # Right padding needs no mask: no layer of a causal model carries anything backwards.
        start = np.flatnonzero(batch.layout.position == 0)  # [B]
        path = np.repeat(np.arange(len(start)), np.diff(start, append=len(batch)))  # [T]
        table = np.zeros((len(start), int(batch.layout.position.max()) + 1), np.int64)  # [B, L]
        table[path, batch.layout.position] = batch.ids
        states = self._decoder(torch.from_numpy(table).to(self.device))  # [B, L, d]
        return states[torch.from_numpy(path), torch.from_numpy(batch.layout.position)]


def network(model: nn.Module, sharing: Sharing | None = None) -> Network:
    """Find out how a model may be called: read its configuration, then run it on a small tree.

    Args:
        model: a transformers causal language model, or a peft model around one.
        sharing: how to call the model; None finds out.

    Raises:
        ValueError: the model's log-probabilities cannot be computed from its hidden states, or it uses prompt tuning.
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
            reason = "" if sharing == "tree" else _why_paths(inner)
    finally:
        inner.train(training)
    if sharing == "paths" and not reason:
        reason = "asked for"
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
    return _probe_tree(model)


def _probe_tree(model: Any) -> str:
    """Run a small tree, and each of its two paths alone; the reason if the hidden states differ, else empty."""
    stem, left, right = (np.arange(n) for n in (3, 2, 3))
    ids = np.concatenate([stem + 1, left + 2, right + 3]) % model.config.get_text_config().vocab_size  # [8]
    tree = Layout(
        source=np.arange(8),
        position=np.concatenate([stem, 3 + left, 3 + right]),
        predictor=np.array([-1, 0, 1, 2, 3, 2, 5, 6]),
        subtree_end=np.array([8, 8, 8, 5, 5, 8, 8, 8]),
    )
    network = Network(model=model, sharing="tree")
    try:
        with network.attending():
            packed = network.hidden(_batch_of(tree, ids, "tree"))  # [8, d]
    except (ValueError, TypeError, RuntimeError, AttributeError) as error:
        return f"{model.config.model_type}: {error}"
    for path in ([0, 1, 2, 3, 4], [0, 1, 2, 5, 6, 7]):
        plain = network._decoder(torch.from_numpy(ids[path]).to(network.device)[None])[0]
        worst = float((packed[path] - plain).abs().max() / plain.abs().max())
        if not worst < (TOLERANCE if plain.dtype == torch.float32 else 50 * TOLERANCE):
            return f"{model.config.model_type} gives other hidden states over a tree (by {worst:.1e})"
    return ""


def _check_head(network: Network) -> None:
    """Raises ValueError unless `Network.logits` of the hidden states equals the logits that the model returns."""
    model: Any = network.model
    ids = torch.arange(1, 5, device=network.device)[None] % network.config.vocab_size
    ours = network.logits(network._decoder(ids))[0].float()
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


def _whole_blocks(layout: Layout, ids: np.ndarray) -> tuple[Layout, np.ndarray]:
    """Layout and ids, padded to a multiple of `BLOCK` with tokens that attend to themselves only."""
    n = len(layout)
    more = -n % BLOCK
    alone = np.arange(n, n + more)
    padded = replace(
        layout,
        source=np.append(layout.source, np.zeros(more, np.int64)),
        position=np.append(layout.position, np.zeros(more, np.int64)),
        predictor=np.append(layout.predictor, np.full(more, -1)),
        subtree_end=np.append(layout.subtree_end, alone + 1),
    )
    return padded, np.append(ids, np.zeros(more, np.int64))
