"""The layout of a packed batch: the tokens of some rows as a trie in pre-order.

Row n continues the path of row `Tokens.context[n]` after the first `Tokens.context_tokens[n]` tokens of that path. This
point may be in the middle of a row. The trie holds each token of the table at most once. In addition, prompt tokens of
different rows are merged if they have equal ids and follow the same path. Sampled tokens are never merged, even if they
have equal ids.

Letters: T packed tokens, S tokens of the graph, N rows of the graph.
"""

from dataclasses import dataclass

import numpy as np

from agentrl.graph import Tokens, path_lengths

# Merging fewer equal tokens than this saves no time; `benchmarks/update.py --crossover` measures it.
MIN_SHARED = 16


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """Packed tokens in pre-order. Token q may attend to token kv iff kv <= q < subtree_end[kv].

    Attributes:
        source: [T] int64, index of each packed token in the graph's token table; for merged prompts, the index in the
            first of these prompts.
        position: [T] int64, number of tokens before each token on its path.
        predictor: [T] int64, packed index of the previous token on the path, whose hidden state predicts this token;
            -1 at a root.
        subtree_end: [T] int64, packed index after the last token of each token's subtree.
    """

    source: np.ndarray
    position: np.ndarray
    predictor: np.ndarray
    subtree_end: np.ndarray

    def __len__(self) -> int:
        return len(self.source)

    def run_starts(self) -> np.ndarray:
        """[R] int64 packed index of the first token of each run.

        A run is a longest possible piece of the trie without a branch.
        """
        if not len(self):
            return np.zeros(0, np.int64)
        fresh = np.ones(len(self), bool)  # [T]
        follows = self.predictor[1:] == np.arange(len(self) - 1)
        fresh[1:] = ~follows | (self.subtree_end[1:] != self.subtree_end[:-1])
        return np.flatnonzero(fresh)

    def take(self, keep: np.ndarray) -> "Layout":
        """The layout of some packed tokens, with renumbered links.

        `keep`: [K] int64 packed indices, ascending; for each token they include the token's `predictor`.
        """
        above = self.predictor[keep]
        return Layout(
            source=self.source[keep],
            position=self.position[keep],
            predictor=np.where(above >= 0, np.searchsorted(keep, above), -1),
            subtree_end=np.searchsorted(keep, self.subtree_end[keep]),
        )


def lay_out(tokens: Tokens, rows: np.ndarray, min_shared: int = MIN_SHARED) -> Layout:
    """The trie of `rows` and of those parts of other rows that `rows` continue.

    Args:
        tokens: the graph's token table.
        rows: [R] int64, ascending.
        min_shared: prompts merge if at least this many of their leading tokens are equal.
    """
    need = needed(tokens, rows)  # [N] tokens of each row's path
    trie = _Trie(tokens, max(1, min_shared))
    for row in np.flatnonzero(need > 0).tolist():
        trie.insert(row, int(need[row]))
    return trie.layout()


def unshared(tokens: Tokens, rows: np.ndarray) -> Layout:
    """The complete paths to `rows`, one after another.

    A path is left out if the path to another row in `rows` contains all of it. Rows that add no tokens get no path. A
    row on several paths is repeated; equal entries of `source` are copies of one token.
    """
    need = needed(tokens, rows)  # [N]
    length = path_lengths(tokens)  # [N]
    continues_all = (tokens.context >= 0) & (need > tokens.context_tokens)  # [N] continues all of another row's path
    continues_all[continues_all] = tokens.context_tokens[continues_all] == length[tokens.context[continues_all]]
    leaf = length > tokens.context_tokens  # [N] the row adds tokens, and no row continues its end
    leaf[tokens.context[continues_all]] = False
    order = rows[np.argsort(length[rows], kind="stable")]  # similar lengths side by side, for little padding
    chains = [_path_source(tokens, int(row)) for row in order if leaf[row]]
    sizes = np.array([len(chain) for chain in chains], np.int64)
    end = np.cumsum(sizes)
    position = np.arange(sizes.sum()) - np.repeat(end - sizes, sizes)  # [T]
    return Layout(
        source=np.concatenate(chains) if chains else np.zeros(0, np.int64),
        position=position,
        predictor=np.where(position > 0, np.arange(len(position)) - 1, -1),
        subtree_end=np.repeat(end, sizes),
    )


def needed(tokens: Tokens, rows: np.ndarray) -> np.ndarray:
    """[N] int64, number of leading tokens of each row's path that the paths to `rows` contain.

    The path of a row in `rows` counts whole. The path of a row that another needed row continues counts up to the token
    after which it is continued. All other numbers are 0.
    """
    need = np.zeros(len(tokens.context), np.int64)
    need[rows] = path_lengths(tokens)[rows]
    context, context_tokens = tokens.context.tolist(), tokens.context_tokens.tolist()
    for row in range(len(need) - 1, -1, -1):
        above = context[row]
        if above >= 0 and need[row] > 0:
            need[above] = max(need[above], min(context_tokens[row], need[row]))
    return need


def _path_source(tokens: Tokens, row: int) -> np.ndarray:
    """[L] int64, the indices of a row's path in the token table (`Tokens.path` gives the token ids)."""
    pieces: list[np.ndarray] = []
    end = int(tokens.context_tokens[row] + tokens.offsets[row + 1] - tokens.offsets[row])
    while row >= 0:
        start = int(tokens.context_tokens[row])
        if end > start:
            pieces.append(tokens.offsets[row] + np.arange(end - start))
            end = start
        row = int(tokens.context[row])
    return np.concatenate(pieces[::-1]) if pieces else np.zeros(0, np.int64)


class _Trie:
    """A radix trie under construction. Node 0 is the empty root; every other node owns a range of the token table."""

    def __init__(self, tokens: Tokens, min_shared: int) -> None:
        self.tokens, self.min_shared = tokens, min_shared
        self.parent, self.start, self.end, self.depth = [-1], [0], [0], [0]
        self.children: list[list[int]] = [[]]
        self.last = np.zeros(len(tokens.context), np.int64)  # [N] the node in which each row ends
        self.prompts: dict[tuple[int, bytes], int] = {}  # (node, first min_shared ids of a child) -> the child
        self.offsets = tokens.offsets.tolist()
        sampled = np.append(np.flatnonzero(tokens.sampled), len(tokens.ids))
        self.next_sampled = sampled[np.searchsorted(sampled, np.arange(len(tokens.ids) + 1))]  # [S+1]

    def insert(self, row: int, need: int) -> None:
        """Add the first `need` tokens of a row's path; the row that it continues must already be in the trie."""
        keep = min(int(self.tokens.context_tokens[row]), need)
        above = int(self.tokens.context[row])
        node = self.locate(int(self.last[above]), keep) if above >= 0 else 0
        start = self.offsets[row]
        end = start + need - keep
        node, start = self.merge(node, start, end)
        if start < end:
            node = self.add(node, start, end, self.depth_end(node))
        self.last[row] = node

    def merge(self, node: int, start: int, end: int) -> tuple[int, int]:
        """Walk down from `node` along prompt tokens that are equal to the tokens start:end.

        Returns:
            The node at which the walk ends, and the index of the first of the tokens start:end that is not on its path.
        """
        ids = self.tokens.ids
        prompt_end = min(end, int(self.next_sampled[start]))
        while prompt_end - start >= self.min_shared:
            child = self.prompts.get((node, ids[start : start + self.min_shared].tobytes()))
            if child is None:
                break
            first = self.start[child]
            room = min(prompt_end - start, min(self.end[child], int(self.next_sampled[first])) - first)
            differs = np.flatnonzero(ids[start : start + room] != ids[first : first + room])
            equal = int(differs[0]) if len(differs) else room
            node = self.split(child, equal)
            start += equal
        return node, start

    def locate(self, node: int, depth: int) -> int:
        """The node that ends at `depth` on the path of `node`; if no node ends there, a node is split at `depth`."""
        while node and depth <= self.depth[node]:
            node = self.parent[node]
        return self.split(node, depth - self.depth[node])

    def split(self, node: int, size: int) -> int:
        """Move the first `size` tokens of a node to a new node above it, and return the new node."""
        if size == self.end[node] - self.start[node]:
            return node
        start, parent = self.start[node], self.parent[node]
        # Two nodes may have the same key, and the dict holds one of them. The other can no longer be found for merging.
        # Fewer tokens are then shared, and the result is the same.
        self.prompts.pop(self.prompt_key(node), None)
        top = self.add(parent, start, start + size, self.depth[node], listed=False)
        siblings = self.children[parent]
        siblings[siblings.index(node)] = top
        self.children[top] = [node]
        self.start[node], self.depth[node], self.parent[node] = start + size, self.depth[node] + size, top
        self.remember(node)
        return top

    def add(self, parent: int, start: int, end: int, depth: int, listed: bool = True) -> int:
        node = len(self.parent)
        self.parent.append(parent)
        self.start.append(start)
        self.end.append(end)
        self.depth.append(depth)
        self.children.append([])
        if listed:
            self.children[parent].append(node)
        self.remember(node)
        return node

    def remember(self, node: int) -> None:
        """Register a node under the prompt tokens that it begins with."""
        start = self.start[node]
        if min(self.end[node], int(self.next_sampled[start])) - start >= self.min_shared:
            self.prompts[self.prompt_key(node)] = node

    def prompt_key(self, node: int) -> tuple[int, bytes]:
        start = self.start[node]
        return self.parent[node], self.tokens.ids[start : start + self.min_shared].tobytes()

    def depth_end(self, node: int) -> int:
        return self.depth[node] + self.end[node] - self.start[node]

    def layout(self) -> Layout:
        """The layout in pre-order, children in the order of insertion.

        If a branch leaves a row in its middle, the rest of the row is laid out before the branch.
        """
        order, stack = [], [0]
        while stack:
            node = stack.pop()
            order.append(node)
            stack.extend(reversed(self.children[node]))
        size = np.array(self.end, np.int64) - np.array(self.start, np.int64)  # [nodes]
        below = size.copy()  # [nodes] tokens of the subtree
        for node in reversed(order[1:]):
            below[self.parent[node]] += below[node]
        at = np.zeros(len(size), np.int64)  # [nodes] first packed index
        at[order] = np.cumsum(size[order]) - size[order]
        nodes = np.array(order[1:], np.int64)
        sizes, parent = size[nodes], np.array(self.parent)[nodes]
        inner = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # [T] index in the node
        above = np.where(parent > 0, at[parent] + size[parent] - 1, -1)  # [nodes] last packed token of the parent
        return Layout(
            source=np.repeat(np.array(self.start)[nodes], sizes) + inner,
            position=np.repeat(np.array(self.depth)[nodes], sizes) + inner,
            predictor=np.where(inner > 0, np.arange(len(inner)) - 1, np.repeat(above, sizes)),
            subtree_end=np.repeat((at + below)[nodes], sizes),
        )
