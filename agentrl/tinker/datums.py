"""A token table as the sequences of a service that knows no trees, and token columns there and back.

Letters: S tokens of the table, D sequences, L tokens of one sequence.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from agentrl.engines.tinker import Datum
from agentrl.graph import Tokens


class Sequences(NamedTuple):
    """Paths that together show every wanted token once.

    Attributes:
        places: D arrays [L] int64, the places of each path's tokens in the table; a path starts at the first token of
            its root.
        counts: D arrays [L] bool, the tokens that this sequence stands for. Where paths share tokens, one of them
            counts each shared token.
    """

    places: list[np.ndarray]
    counts: list[np.ndarray]

    @property
    def sent(self) -> int:
        """Number of tokens that the service reads, shared prefixes once per path."""
        return sum(len(place) - 1 for place in self.places)

    @property
    def distinct(self) -> int:
        """Number of tokens that a packed tree would hold."""
        return len(np.unique(np.concatenate([place[:-1] for place in self.places]))) if self.places else 0


def unroll(tokens: Tokens, wanted: np.ndarray) -> Sequences:
    """The longest paths first: a step whose tokens a later step's context keeps needs no sequence of its own.

    A chat that only grows is one sequence, a window or a rewritten context one per rewrite, and a tree one per leaf.

    Args:
        tokens: a token table.
        wanted: [S] bool, the tokens whose log-probs or gradients are needed.

    Raises:
        ValueError: the first token of a path is wanted, and nothing predicts it.
    """
    left = wanted.copy()  # [S] wanted, and in no sequence yet
    places: list[np.ndarray] = []
    counts: list[np.ndarray] = []
    for row in range(len(tokens.context) - 1, -1, -1):
        if not left[tokens.offsets[row] : tokens.offsets[row + 1]].any():
            continue
        place = tokens.path_index(row)
        if left[place[0]]:
            raise ValueError(
                f"row {row} continues a path that begins with a sampled token, and no token before it predicts it: "
                "give the prompt at least one token, such as a beginning-of-text token"
            )
        place = place[: np.flatnonzero(left[place])[-1] + 1]  # a tail that nobody asks for is not sent
        places.append(place)
        counts.append(left[place])
        left[place] = False
    return Sequences(places[::-1], counts[::-1])


def datums(tokens: Tokens, on: Sequences, columns: Mapping[str, np.ndarray]) -> list[Datum]:
    """The D sequences with token columns [S]; a column is 0 where the sequence does not count the token.

    The log-prob of token t + 1 is read off position t, so targets and columns are shifted by one.
    """
    made = []
    for place, counts in zip(on.places, on.counts, strict=True):
        ids = tokens.ids[place]
        values = {name: np.where(counts, x[place], 0.0)[1:].astype(np.float32) for name, x in columns.items()}
        made.append(Datum(ids[:-1], ids[1:], values))
    return made


def gathered(values: Sequence[np.ndarray], on: Sequences, size: int) -> np.ndarray:
    """[S] float64, the column whose entries the D sequences computed; NaN for tokens that no sequence counts.

    Args:
        values: D arrays [L - 1], the value of each target.
        on: the sequences.
        size: S.
    """
    column = np.full(size, np.nan)
    for value, place, counts in zip(values, on.places, on.counts, strict=True):
        column[place[1:][counts[1:]]] = np.asarray(value, np.float64)[counts[1:]]
    return column
