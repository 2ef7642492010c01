"""Token trie of the choices of a step: which token ids may follow a prefix, and which tokens have no alternative."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Forced(NamedTuple):
    """Tokens that follow a node without an alternative, and the node that they lead to."""

    tokens: tuple[int, ...]
    node: int


class Trie:
    """Choices as a tree of tokens. Node 0 is the root; a leaf is the end of one choice.

    Args:
        choices: token sequences, each with its end token, so that no choice is the beginning of another one.

    Raises:
        ValueError: no choice, an empty choice, or a choice that is the beginning of another.
    """

    def __init__(self, choices: Sequence[np.ndarray]) -> None:
        if not len(choices):
            raise ValueError("a trie needs at least one choice: give the step's admissible actions")
        self._children: list[dict[int, int]] = [{}]
        self._choice: list[int] = [-1]
        for number, choice in enumerate(choices):
            self._add(choice.tolist(), number)
        self._allowed: list[np.ndarray | None] = [None] * len(self._children)
        self._forced: list[Forced | None] = [None] * len(self._children)

    def __len__(self) -> int:
        """Number of nodes, the root included."""
        return len(self._children)

    def _add(self, tokens: list[int], number: int) -> None:
        node = 0
        for token in tokens:
            if self._choice[node] >= 0:
                self._refuse(self._choice[node], number)
            following = self._children[node].get(token)
            if following is None:
                following = self._children[node][token] = len(self._children)
                self._children.append({})
                self._choice.append(-1)
            node = following
        if self._children[node] or node == 0:
            self._refuse(number, number)
        if self._choice[node] < 0:
            self._choice[node] = number

    @staticmethod
    def _refuse(short: int, number: int) -> None:
        raise ValueError(
            f"choice {short} is empty or the beginning of another (seen at choice {number}): "
            "end every choice with the end token"
        )

    def allowed(self, node: int) -> np.ndarray:
        """[A] int64, the ids that may follow, ascending; empty at a leaf."""
        ids = self._allowed[node]
        if ids is None:
            ids = self._allowed[node] = np.array(sorted(self._children[node]), np.int64)  # [A]
            ids.flags.writeable = False
        return ids

    def follow(self, node: int, token: int) -> int:
        """The node that `token` leads to from `node`; KeyError if the token is not allowed there."""
        return self._children[node][token]

    def forced(self, node: int) -> Forced:
        """The tokens that follow without an alternative; none at a leaf, or if several tokens may follow."""
        forced = self._forced[node]
        if forced is None:
            tokens: list[int] = []
            end = node
            while len(self._children[end]) == 1:
                token, end = next(iter(self._children[end].items()))
                tokens.append(token)
            forced = self._forced[node] = Forced(tuple(tokens), end)
        return forced

    def is_leaf(self, node: int) -> bool:
        """Does a choice end at this node?"""
        return not self._children[node]

    def choice(self, leaf: int) -> int:
        """Index of the (first) choice that ends at this leaf."""
        return self._choice[leaf]

    def sets(self, tokens: Sequence[int]) -> tuple[np.ndarray, ...]:
        """The allowed set of each token of one choice, for the mask of an expert's answer.

        Raises:
            ValueError: no choice begins with these tokens.
        """
        node, sets = 0, []
        for place, token in enumerate(tokens):
            sets.append(self.allowed(node))
            try:
                node = self.follow(node, int(token))
            except KeyError:
                raise ValueError(f"token {int(token)} at place {place} follows no choice of this step") from None
        return tuple(sets)


class Tries:
    """A cache of tries, by their choices. It saves time because the copies of a task need the same tries.

    Args:
        capacity: largest number of nodes in the cache, counted over all tries; a node takes about 400 bytes. Above this
            number, the least recently used tries are dropped. The newest trie always stays, even if it alone has more
            nodes.
    """

    def __init__(self, capacity: int = 2**16) -> None:
        self._capacity, self._nodes = capacity, 0
        self._known: OrderedDict[tuple[bytes, ...], Trie] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, choices: Sequence[np.ndarray]) -> Trie:
        """The trie of these choices, built if it is not in the cache."""
        key = tuple([choice.tobytes() for choice in choices])
        trie = self._known.get(key)
        if trie is not None:
            self._known.move_to_end(key)
            return trie
        trie = self._known[key] = Trie(choices)
        self._nodes += len(trie)
        while self._nodes > self._capacity and len(self._known) > 1:
            _, dropped = self._known.popitem(last=False)
            self._nodes -= len(dropped)
        return trie
