"""Which tokens the KV cache holds: one slot per session, kept across turns.

This module has only the bookkeeping, in NumPy; the tensors are in `agentrl.engines.hf.kv_store`.
"""

from typing import NamedTuple

import numpy as np


class Donor(NamedTuple):
    """A slot whose tokens begin like a prompt.

    The slot and the prompt share their first `length` tokens. The keys and values of the first `computed` of these
    tokens are in the cache; the next forward pass computes the others.
    """

    slot: int
    length: int
    computed: int


class Slots:
    """The table of sessions, their slots, and the tokens of each slot.

    Args:
        count: number of slots.
        capacity: largest number of tokens per slot.
    """

    def __init__(self, count: int, capacity: int) -> None:
        self.count, self.capacity = count, capacity
        self.tokens = np.full(
            (count, min(capacity, 512)), -1, np.int32
        )  # token ids whose keys and values are cached, or will be cached by the next forward pass
        self.planned = np.zeros(count, np.int64)  # number of leading entries of `tokens` that are valid
        self.computed = np.zeros(count, np.int64)  # number of these entries that have keys and values
        self.version = np.zeros(count, np.int64)  # version of the oldest weights that computed a slot's keys and values
        self.evictions = 0
        self._owner: list[int | None] = [None] * count
        self._slot: dict[int, int] = {}
        self._left: dict[int, int] = {}  # released session -> slot that still has its tokens
        self._source: dict[int, int] = {}  # session -> the session whose tokens it will continue
        self._used = np.zeros(count, np.int64)
        self._clock = 0

    def clear(self) -> None:
        """Forget all sessions, and the tokens of all slots."""
        self.planned[:] = self.computed[:] = self._used[:] = 0
        self._owner = [None] * self.count
        self._slot.clear()
        self._left.clear()
        self._source.clear()
        self._clock = 0

    def fork(self, session: int, of: int) -> None:
        """Note that the session will continue the tokens of session `of`, which may be open or released.

        Until the session's first prompt has a slot, a free slot that holds these tokens is given to another session
        only if no other slot is free.
        """
        self._source[session] = of

    def release(self, session: int) -> None:
        """Free the session's slot. The slot's tokens can be copied until another session takes the slot."""
        self._source.pop(session, None)
        slot = self._slot.pop(session, None)
        if slot is not None:
            self._owner[slot] = None
            self._left[session] = slot

    def owned(self, session: int) -> bool:
        """Does the session have a slot?"""
        return session in self._slot

    def acquire(self, session: int, busy: set[int], *, evict: bool) -> int:
        """Give the session a slot if it has none; returns the session's slot, or -1 if no slot is available.

        The session gets a free slot. If no slot is free and `evict` is set, the session gets the least recently used
        slot that is not busy.

        Args:
            session: the session that needs a slot.
            busy: slots that may not be taken from their sessions.
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
            if slot != source:  # else the session keeps the tokens that it continues
                self.planned[slot] = self.computed[slot] = 0
                self._left = {other: s for other, s in self._left.items() if s != slot}
        self._used[slot] = self._clock
        return slot

    def _source_slot(self, session: int) -> int:
        """The slot with the tokens that a session continues; -1 if the session continues none, or no slot has them."""
        of = self._source.get(session)
        return -1 if of is None else self._slot.get(of, self._left.get(of, -1))

    def _pick(self, busy: set[int], evict: bool, source: int) -> int:
        free = [s for s in range(self.count) if self._owner[s] is None]
        if free:
            # Empty slots first, so that the tokens of released sessions can still be copied; then slots whose tokens no
            # session will continue; then the slot whose tokens this session continues.
            wanted = {self._source_slot(session) for session in self._source}
            return min(free, key=lambda s: (self.planned[s] > 0, s in wanted, s != source, self._used[s], s))
        idle = [s for s in range(self.count) if s not in busy] if evict else []
        return min(idle, key=lambda s: (self._used[s], s)) if idle else -1

    def keep(self, slot: int, prompt: np.ndarray) -> int:
        """Keep only the slot's computed tokens that match the beginning of the prompt.

        The last prompt token is never among the kept tokens: it is always computed anew, for its logits.

        Returns:
            Number of kept tokens, which is the number of leading prompt tokens whose keys and values are in the cache.
        """
        known = min(int(self.computed[slot]), len(prompt) - 1)
        same = self.tokens[slot, :known] == prompt[:known]  # [known]
        length = known if same.all() else int(same.argmin())
        self.planned[slot] = self.computed[slot] = length
        return length

    def plan(self, slot: int, start: int, ids: np.ndarray) -> None:
        """Note the token ids that the next forward pass will compute, at the positions from `start` on."""
        end = start + len(ids)
        if end > self.tokens.shape[1]:
            wider = np.full((self.count, min(self.capacity, max(end, 2 * self.tokens.shape[1]))), -1, np.int32)
            wider[:, : self.tokens.shape[1]] = self.tokens
            self.tokens = wider
        self.tokens[slot, start:end] = ids
        self.planned[slot] = end

    def source(self, session: int, prompt: np.ndarray) -> Donor | None:
        """The slot whose tokens the session continues, as donor for the session's first prompt.

        None if there is no such slot. The call also forgets the `fork` of this session, so a second call returns None.
        """
        slot = self._source_slot(session)
        self._source.pop(session, None)
        if slot < 0:
            return None
        known = min(int(self.planned[slot]), len(prompt) - 1)
        same = self.tokens[slot, :known] == prompt[:known]  # [known]
        length = known if same.all() else int(same.argmin())
        return Donor(slot, length, min(length, int(self.computed[slot])))

    def donor(self, prompt: np.ndarray) -> Donor:
        """The slot whose tokens match the longest beginning of the prompt; the last prompt token is not compared.

        If several slots match equally many tokens, the donor is the slot with the most of these tokens computed, and if
        these numbers are equal too, the slot with the lowest number.
        """
        known = prompt[: min(len(prompt) - 1, self.tokens.shape[1])]
        differs = self.tokens[:, : len(known)] != known  # [slots, L]
        length = np.where(differs.any(1), differs.argmax(1), len(known))  # [slots]
        length = np.minimum(length, self.planned)
        computed = np.minimum(length, self.computed)
        slot = int(np.lexsort((-computed, -length))[0])
        return Donor(slot, int(length[slot]), int(computed[slot]))
