"""The token table of a step graph: what each step adds to its context.

The one rule for columns: a column with one entry per step [N] lives in `StepGraph.columns`, a column with one entry per
token [S] lives in `Tokens.columns`. No name is in both, and neither a name nor a length says which kind a column is.

Glossary:
    step: one turn of one agent: the observation, the answer and the reward.
    row: the place of a step in the columns of a graph, 0 to N-1.
    token: the place of one piece of text in the token table, 0 to S-1.
    token id: the number of a token's entry in the tokenizer's vocabulary.
    packed index: the place of a token in the packed input of one forward pass.
    path: the rows from a root of the graph to a step, and the tokens that the model has read and sampled by the end of
        that step.
    decision: a sampled token that had an alternative.
    group: the rollouts of one task, which are compared with each other.
    rollout: what one copy of a task produced: one episode, and the episodes of the agents that were called in it.
    episode: one agent's chain of steps in a rollout.
    tree: the episodes that grew from one root prompt.
    leaf: a row that no step continues; each root-to-leaf path ends in a leaf.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np


@dataclass(frozen=True, kw_only=True, eq=False)
class Tokens:
    """The tokens that each step adds to its context, and the context that the step continues.

    A step stores only the tokens that it adds. By the end of row n, the model has read or sampled the path of row n:
    the first `context_tokens[n]` tokens of the path of row `context[n]`, then the tokens of row n.

    Attributes:
        offsets: [N+1] int64, row n owns tokens offsets[n]:offsets[n+1].
        ids: [S] int64.
        sampled: [S] bool, true for tokens of answers (drawn by a policy, or taken from a demonstration), false for
            prompt tokens.
        logprobs: [S] float64, log-probabilities in nats under the policy that sampled the tokens; 0 for prompt tokens.
        allowed_offsets: [S+1] int64; token s was chosen from `allowed_ids[allowed_offsets[s]:allowed_offsets[s+1]]`. If
            this slice is empty, every token id was allowed.
        allowed_ids: int64 token ids, ascending in each slice.
        context: [N] int64, the row whose path this step's prompt continues; -1 for a fresh prompt.
        context_tokens: [N] int64, how many tokens of that path the prompt keeps.
        columns: further columns by name, each [S], such as `old_logprob`.
    """

    offsets: np.ndarray
    ids: np.ndarray
    sampled: np.ndarray
    logprobs: np.ndarray
    allowed_offsets: np.ndarray
    allowed_ids: np.ndarray
    context: np.ndarray
    context_tokens: np.ndarray
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", MappingProxyType(dict(self.columns)))

    def path(self, row: int) -> np.ndarray:
        """[L] int64, the token ids that the model has read and sampled by the end of `row`."""
        ids: np.ndarray = self.ids[self.path_index(row)]
        return ids

    def path_index(self, row: int) -> np.ndarray:
        """[L] int64, the places of the tokens of `path` in the table."""
        pieces: list[np.ndarray] = []
        keep = -1  # -1: all of the row's path
        while row >= 0:
            added = np.arange(self.offsets[row], self.offsets[row + 1])
            start = int(self.context_tokens[row])
            if keep < 0 or keep > start:
                pieces.append(added if keep < 0 else added[: keep - start])
                keep = start
            row = int(self.context[row])
        return np.concatenate(pieces[::-1]) if pieces else np.zeros(0, np.int64)


def check_tokens(tokens: Tokens, n: int) -> None:
    """Assert the invariants of a token table of n rows."""
    assert len(tokens.offsets) == n + 1, "offsets needs one entry more than there are rows"
    s = len(tokens.ids)
    assert tokens.offsets[0] == 0 and tokens.offsets[-1] == s, "offsets must cover the tokens"
    assert (np.diff(tokens.offsets) >= 0).all(), "offsets must ascend"
    for name, column in tokens.columns.items():
        assert len(column) == s, f"token column {name} has {len(column)} entries, not one for each of {s} tokens"
    assert len(tokens.sampled) == len(tokens.logprobs) == s, "one flag and one log-prob per token"
    assert len(tokens.allowed_offsets) == s + 1, "allowed_offsets needs one entry more than there are tokens"
    assert np.isfinite(tokens.logprobs).all(), "log-probabilities must be finite"
    assert tokens.allowed_offsets[0] == 0 and tokens.allowed_offsets[-1] == len(tokens.allowed_ids), (
        "allowed_offsets must cover allowed_ids"
    )
    assert (np.diff(tokens.allowed_offsets) >= 0).all(), "allowed_offsets must ascend"
    assert len(tokens.context) == len(tokens.context_tokens) == n, "one context per row"
    assert (tokens.context >= -1).all() and (tokens.context_tokens >= 0).all(), "a context is a row, or -1 for none"
    assert (tokens.context < np.arange(n)).all(), "a context must come before the step that continues it"
    length = path_lengths(tokens)
    available = np.where(tokens.context >= 0, length[tokens.context], 0)  # [N]
    assert (tokens.context_tokens <= available).all(), "a step cannot keep more tokens of a path than the path has"


def path_lengths(tokens: Tokens) -> np.ndarray:
    """[N] int64, number of tokens on each row's path: all that the model has read and sampled by the end of the row."""
    return tokens.context_tokens + np.diff(tokens.offsets)


def decisions(tokens: Tokens) -> np.ndarray:
    """[S] bool, sampled tokens that had an alternative."""
    has_alternative: np.ndarray = tokens.sampled & (np.diff(tokens.allowed_offsets) != 1)
    return has_alternative


def token_rows(tokens: Tokens) -> np.ndarray:
    """[S] int64, the row of each token."""
    return np.repeat(np.arange(len(tokens.context)), np.diff(tokens.offsets))


def first_sampled(tokens: Tokens) -> np.ndarray:
    """[S] bool, the first sampled token of each row; rows without sampled tokens have no true entry."""
    index = np.flatnonzero(tokens.sampled)
    first = np.zeros(len(tokens.ids), bool)
    first[index[np.unique(token_rows(tokens)[index], return_index=True)[1]]] = True
    return first


def append_rows(
    tokens: Tokens,
    pieces: Sequence[np.ndarray],
    sampled: Sequence[np.ndarray],
    context: np.ndarray,
    context_tokens: np.ndarray,
) -> Tokens:
    """The table with one more row per piece; the new tokens have NaN in the token columns.

    Args:
        tokens: N rows, S tokens.
        pieces: M arrays, the token ids of each new row.
        sampled: M arrays of flags, true for the tokens whose log-prob or value is to be computed.
        context: [M] the row whose path each new row continues, -1 for none.
        context_tokens: [M] how many tokens of that path the new row keeps.
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
        columns=pad_columns(tokens.columns, added),
    )


def take_rows(tokens: Tokens, rows: np.ndarray) -> Tokens:
    """The table of `rows` (ascending), with their contexts renumbered; each context must be one of `rows`, or -1."""
    mask = np.isin(token_rows(tokens), rows)  # [S]
    sizes = np.diff(tokens.allowed_offsets)  # [S]
    place = np.full(len(tokens.context) + 1, -1, np.int64)  # the last entry is for the index -1
    place[rows] = np.arange(len(rows))
    return Tokens(
        offsets=np.concatenate([[0], np.cumsum(np.diff(tokens.offsets)[rows])]),
        ids=tokens.ids[mask],
        sampled=tokens.sampled[mask],
        logprobs=tokens.logprobs[mask],
        allowed_offsets=np.concatenate([[0], np.cumsum(sizes[mask])]),
        allowed_ids=tokens.allowed_ids[np.repeat(mask, sizes)],
        context=place[tokens.context[rows]],
        context_tokens=tokens.context_tokens[rows],
        columns={name: column[mask] for name, column in tokens.columns.items()},
    )


def pad_columns(columns: Mapping[str, np.ndarray], count: int) -> dict[str, np.ndarray]:
    """Columns [S] with NaN for `count` more tokens, [S + count]; a column of integers becomes one of floats."""
    return {name: np.concatenate([column, np.full(count, np.nan)]) for name, column in columns.items()}


def prompt_lengths(tokens: Tokens) -> np.ndarray:
    """[N] int64, how many tokens of each row's path the model had read when it began to answer."""
    before_answer = np.diff(tokens.offsets)  # [N] all tokens of a row without a sampled token
    index = np.flatnonzero(tokens.sampled)
    rows, first = np.unique(token_rows(tokens)[index], return_index=True)
    before_answer[rows] = index[first] - tokens.offsets[rows]
    return tokens.context_tokens + before_answer
