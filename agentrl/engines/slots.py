"""Which tokens the KV cache holds: one row (slot) a session, kept across turns.

Only bookkeeping lives here, in NumPy; the tensors are in `agentrl.engines.kv_store`.
"""

from typing import NamedTuple

import numpy as np


class Donor(NamedTuple):
    """A slot that holds the first `length` tokens of a prompt; `computed` of them are in the cache already."""

    slot: int
    length: int
    computed: int


class Slots:
    """A table of sessions, slots and their tokens.

    Args:
        count: number of slots.
        capacity: most tokens a slot holds.
    """

    def __init__(self, count: int, capacity: int) -> None:
        self.count, self.capacity = count, capacity
        self.tokens = np.full((count, min(capacity, 512)), -1, np.int32)  # what is, or is about to be, cached
        self.planned = np.zeros(count, np.int64)  # tokens of `tokens` that are valid
        self.computed = np.zeros(count, np.int64)  # those of them whose keys and values exist
        self.version = np.zeros(count, np.int64)  # oldest weights that took part
        self.evictions = 0
        self._owner: list[int | None] = [None] * count
        self._slot: dict[int, int] = {}
        self._left: dict[int, int] = {}  # where released sessions left their tokens
        self._source: dict[int, int] = {}  # sessions that will go on from another one's tokens
        self._used = np.zeros(count, np.int64)
        self._clock = 0

    def clear(self) -> None:
        """Forget everything (the weights changed)."""
        self.planned[:] = self.computed[:] = self._used[:] = 0
        self._owner = [None] * self.count
        self._slot.clear()
        self._left.clear()
        self._source.clear()
        self._clock = 0

    def fork(self, session: int, of: int) -> None:
        """The session will go on from the tokens of another, open or released: keep them for it if possible."""
        self._source[session] = of

    def release(self, session: int) -> None:
        """The session's slot is free; its tokens stay as a donor until another session takes the slot."""
        self._source.pop(session, None)
        slot = self._slot.pop(session, None)
        if slot is not None:
            self._owner[slot] = None
            self._left[session] = slot

    def owned(self, session: int) -> bool:
        """Does the session have a slot?"""
        return session in self._slot

    def acquire(self, session: int, busy: set[int], *, evict: bool) -> int:
        """The session's slot, else a free one, else the least recently used one that is not busy; -1 if none.

        Args:
            session: whose.
            busy: slots that may not be taken away.
            evict: may another session lose its slot?
        """
        self._clock += 1
        slot = self._slot.get(session)
        if slot is None:
            source = self._source_slot(session)
            slot = self._pick(busy, evict, source)
            if slot < 0:
                return -1
            owner = self._owner[slot]
            if owner is not None:
                self.evictions += 1
                del self._slot[owner]
            self._owner[slot], self._slot[session] = session, slot
            if slot != source:  # else the session takes its source's tokens over as they are
                self.planned[slot] = self.computed[slot] = 0
                self._left = {other: s for other, s in self._left.items() if s != slot}
        self._used[slot] = self._clock
        return slot

    def _source_slot(self, session: int) -> int:
        """Where the tokens lie that a session goes on from; -1 if it does not, or they are gone."""
        of = self._source.get(session)
        return -1 if of is None else self._slot.get(of, self._left.get(of, -1))

    def _pick(self, busy: set[int], evict: bool, source: int) -> int:
        free = [s for s in range(self.count) if self._owner[s] is None]
        if free:
            # Empty ones first, so that what released sessions left behind stays available to copies; then those that
            # no session is to go on from; then the session's own source.
            wanted = {self._source_slot(session) for session in self._source}
            return min(free, key=lambda s: (self.planned[s] > 0, s in wanted, s != source, self._used[s], s))
        idle = [s for s in range(self.count) if s not in busy] if evict else []
        return min(idle, key=lambda s: (self._used[s], s)) if idle else -1

    def keep(self, slot: int, prompt: np.ndarray) -> int:
        """Trim the slot to what it shares with the prompt (never all of it: the last token is computed anew).

        Returns:
            number of prompt tokens the cache holds.
        """
        known = min(int(self.computed[slot]), len(prompt) - 1)
        same = self.tokens[slot, :known] == prompt[:known]  # [known]
        length = known if same.all() else int(same.argmin())
        self.planned[slot] = self.computed[slot] = length
        return length

    def plan(self, slot: int, start: int, ids: np.ndarray) -> None:
        """Write down tokens from position `start` on that the next forward will compute."""
        end = start + len(ids)
        if end > self.tokens.shape[1]:
            wider = np.full((self.count, min(self.capacity, max(end, 2 * self.tokens.shape[1]))), -1, np.int32)
            wider[:, : self.tokens.shape[1]] = self.tokens
            self.tokens = wider
        self.tokens[slot, start:end] = ids
        self.planned[slot] = end

    def source(self, session: int, prompt: np.ndarray) -> Donor | None:
        """What the slot that the session goes on from shares with its first prompt; None if it goes on from none."""
        slot = self._source_slot(session)
        self._source.pop(session, None)
        if slot < 0:
            return None
        known = min(int(self.planned[slot]), len(prompt) - 1)
        same = self.tokens[slot, :known] == prompt[:known]  # [known]
        length = known if same.all() else int(same.argmin())
        return Donor(slot, length, min(length, int(self.computed[slot])))

    def donor(self, prompt: np.ndarray) -> Donor:
        """The slot that shares most with the prompt (its last token left out); ties go to what is computed."""
        known = prompt[: min(len(prompt) - 1, self.tokens.shape[1])]
        differs = self.tokens[:, : len(known)] != known  # [slots, L]
        length = np.where(differs.any(1), differs.argmax(1), len(known))  # [slots]
        length = np.minimum(length, self.planned)
        computed = np.minimum(length, self.computed)
        slot = int(np.lexsort((-computed, -length))[0])
        return Donor(slot, int(length[slot]), int(computed[slot]))
