"""Small step graphs with tokens, and a slow, plain account of what training on them means."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from agentrl.graph import COLUMNS, StepGraph, Tokens, path_lengths

VOCABULARY = 23
torch.set_num_threads(1)  # more threads are slower at this size, and far slower beside other work


@dataclass
class Row:
    """A step: its own tokens (prompt, then answer) after the first `keep` tokens of the path of row
    `context`."""

    prompt: Sequence[int]
    answer: Sequence[int]
    context: int = -1
    keep: int | None = None  # None: the whole path
    parent: int = -1
    episode: int = 0
    rollout: int | None = None
    group: int = 0
    turn: int = 0
    allowed: Sequence[Sequence[int]] | None = None
    columns: dict[str, Any] = field(default_factory=dict)


def build(rows: Sequence[Row]) -> StepGraph:
    """The step graph of these rows."""
    n = len(rows)
    columns = {name: np.zeros(n, kind) for name, kind in COLUMNS.items()}
    columns |= {"caller": np.full(n, -1), "valid": np.ones(n, bool), "weight": np.ones(n)}
    for i, row in enumerate(rows):
        columns["parent"][i], columns["episode"][i], columns["group"][i] = row.parent, row.episode, row.group
        columns["rollout"][i] = row.episode if row.rollout is None else row.rollout
        columns["turn"][i] = row.turn
        columns["tree"][i] = columns["tree"][row.parent] if row.parent >= 0 else i
        for name, value in row.columns.items():
            columns[name][i] = value
    return StepGraph(columns=columns, tokens=token_table(rows))


def token_table(rows: Sequence[Row]) -> Tokens:
    """Their tokens."""
    ids = [t for row in rows for t in (*row.prompt, *row.answer)]
    allowed = [list(a) for row in rows for a in ([()] * len(row.prompt) + list(row.allowed or [()] * len(row.answer)))]
    length: list[int] = []
    kept: list[int] = []
    for row in rows:
        kept.append(0 if row.context < 0 else length[row.context] if row.keep is None else row.keep)
        length.append(kept[-1] + len(row.prompt) + len(row.answer))
    return Tokens(
        offsets=np.cumsum([0] + [len(r.prompt) + len(r.answer) for r in rows]),
        ids=np.array(ids, np.int64),
        sampled=np.array([s for r in rows for s in [False] * len(r.prompt) + [True] * len(r.answer)], bool),
        logprobs=np.zeros(len(ids)),
        allowed_offsets=np.cumsum([0] + [len(a) for a in allowed]),
        allowed_ids=np.array([i for a in allowed for i in a], np.int64),
        context=np.array([r.context for r in rows], np.int64),
        context_tokens=np.array(kept, np.int64),
    )


def some_ids(rng: np.random.Generator, low: int, high: int) -> list[int]:
    """Between low and high random tokens."""
    return rng.integers(1, VOCABULARY, rng.integers(low, high + 1)).tolist()


def some_sets(rng: np.random.Generator, answer: Sequence[int]) -> list[list[int]]:
    """Allowed sets around an answer: some unrestricted, some of one member."""
    sets = []
    for token in answer:
        size = int(rng.integers(0, 5))
        others = rng.choice(VOCABULARY, size, replace=False).tolist()
        sets.append(sorted({token, *others}) if size else [])
        if rng.random() < 0.2:
            sets[-1] = [token]
    return sets


def chains(seed: int, episodes: int = 4, turns: int = 3, restricted: bool = False) -> StepGraph:
    """Append-only chats."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for episode in range(episodes):
        for turn in range(int(rng.integers(1, turns + 1))):
            above = len(rows) - 1 if turn else -1
            answer = some_ids(rng, 1, 5)
            sets = some_sets(rng, answer) if restricted else None
            rows.append(
                Row(
                    some_ids(rng, 2, 6),
                    answer,
                    above,
                    None,
                    above,
                    episode,
                    None,
                    episode // 2,
                    turn,
                    allowed=sets,
                )
            )
    return build(rows)


def trees(seed: int, roots: int = 2, size: int = 6, restricted: bool = False) -> StepGraph:
    """Random trees: siblings continue one path, half of them after the same observation."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for root in range(roots):
        first = len(rows)
        seen: dict[int, list[int]] = {}
        for i in range(size):
            above = int(rng.integers(first, first + i)) if i else -1
            prompt = seen.setdefault(above, some_ids(rng, 1, 24))
            if rng.random() < 0.5:
                prompt = some_ids(rng, 1, 24)
            answer = some_ids(rng, 1, 4)
            sets = some_sets(rng, answer) if restricted else None
            turn = rows[above].turn + 1 if above >= 0 else 0
            rows.append(Row(prompt, answer, above, None, above, first + i, root, root, turn, allowed=sets))
    return build(rows)


def windows(seed: int, episodes: int = 3, turns: int = 4) -> StepGraph:
    """Prompts built anew at each step: a system prompt shared by all, a task shared by an episode, a moving
    window."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    system = some_ids(rng, 20, 20)
    for episode in range(episodes):
        task = some_ids(rng, 3, 20)
        for turn in range(turns):
            above = len(rows) - 1 if turn else -1
            rows.append(
                Row(
                    system + task + some_ids(rng, 1, 9),
                    some_ids(rng, 1, 4),
                    -1,
                    None,
                    above,
                    episode,
                    None,
                    0,
                    turn,
                )
            )
    return build(rows)


def partial(seed: int, episodes: int = 3, turns: int = 5) -> StepGraph:
    """Each step keeps only part of an earlier path, cut anywhere, also inside a sampled answer."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for episode in range(episodes):
        first = len(rows)
        for turn in range(turns):
            above = len(rows) - 1 if turn else -1
            context = int(rng.integers(first, len(rows))) if turn else -1
            keep = int(rng.integers(0, path_lengths(token_table(rows))[context] + 1)) if turn else None
            rows.append(
                Row(
                    some_ids(rng, 1, 22),
                    some_ids(rng, 1, 5),
                    context,
                    keep,
                    above,
                    episode,
                    None,
                    episode,
                    turn,
                )
            )
    return build(rows)


def tiny_model(seed: int = 0, config: Any = None) -> Any:
    """Two layers, grouped-query attention; in float64, so that laws can be held to 1e-6 (norms stay
    float32)."""
    torch.manual_seed(seed)
    config = config or Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=4,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.3,
    )
    return AutoModelForCausalLM.from_config(config).double()


def loaded(model: Any) -> SimpleNamespace:
    """What a Learner is made of."""
    return SimpleNamespace(model=model, tokenizer=None)


def plain_logits(model: Any, graph: StepGraph, row: int) -> torch.Tensor:
    """[L, V] logits of a row's whole path, by the plain forward pass of transformers."""
    assert graph.tokens is not None
    return model(input_ids=torch.from_numpy(graph.tokens.path(row))[None], use_cache=False).logits[0]


def plain_tokens(
    model: Any, graph: StepGraph, row: int, temperature: float = 1.0
) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
    """(token table index, log-prob, entropy) of each decision of a row, one at a time."""
    assert graph.tokens is not None
    tokens, logits, found = graph.tokens, plain_logits(model, graph, row) / temperature, []
    for s in range(tokens.offsets[row], tokens.offsets[row + 1]):
        allowed = tokens.allowed_ids[tokens.allowed_offsets[s] : tokens.allowed_offsets[s + 1]]
        if not tokens.sampled[s] or len(allowed) == 1:
            continue
        depth = int(tokens.context_tokens[row] + s - tokens.offsets[row])
        candidates = torch.from_numpy(allowed if len(allowed) else np.arange(VOCABULARY))
        logprobs = torch.log_softmax(logits[depth - 1][candidates], 0)
        chosen = logprobs[(candidates == int(tokens.ids[s])).nonzero()[0, 0]]
        found.append((s, chosen, -(logprobs.exp() * logprobs).sum()))
    return found


def gradient(model: Any) -> torch.Tensor:
    """All gradients in one vector."""
    return torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])
