"""A token table with more rows at its end: what a model is asked about a graph beyond the steps that were played."""

from collections.abc import Sequence

import numpy as np

from agentrl.graph.step_graph import Tokens


def appended(
    tokens: Tokens,
    pieces: Sequence[np.ndarray],
    sampled: Sequence[np.ndarray],
    context: np.ndarray,
    context_tokens: np.ndarray,
) -> Tokens:
    """The table with one more row a piece.

    Args:
        tokens: N rows, S tokens.
        pieces: ids of each new row, M of them.
        sampled: as many flags, true where a log-prob or a value is wanted.
        context: [M] the row whose path each new row continues, -1 for none.
        context_tokens: [M] how much of that path it keeps.
    """
    lengths = np.array([len(piece) for piece in pieces], np.int64)  # [M]
    added = int(lengths.sum())
    return Tokens(
        offsets=np.concatenate([tokens.offsets, tokens.offsets[-1] + np.cumsum(lengths)]),
        ids=np.concatenate([tokens.ids, *pieces]).astype(np.int64),
        sampled=np.concatenate([tokens.sampled, *sampled]).astype(bool),
        logprobs=np.concatenate([tokens.logprobs, np.zeros(added)]),
        allowed_offsets=np.concatenate([tokens.allowed_offsets, np.full(added, tokens.allowed_offsets[-1])]),
        allowed_ids=tokens.allowed_ids,
        context=np.concatenate([tokens.context, context]).astype(np.int64),
        context_tokens=np.concatenate([tokens.context_tokens, context_tokens]).astype(np.int64),
    )


def prompt_lengths(tokens: Tokens) -> np.ndarray:
    """[N] int64, how much of each row's path the model had read when it began to answer."""
    row = np.repeat(np.arange(len(tokens.context)), np.diff(tokens.offsets))  # [S]
    own = np.diff(tokens.offsets).copy()  # [N] all of it, for a row without a sampled token
    index = np.flatnonzero(tokens.sampled)
    rows, first = np.unique(row[index], return_index=True)
    own[rows] = index[first] - tokens.offsets[rows]
    return tokens.context_tokens + own
