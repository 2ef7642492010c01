"""One answer while it is being generated: its tokens, the allowed ids of its next token, and why it ended."""

from typing import Any

import numpy as np

from agentrl.chat import Trie
from agentrl.engines.sampling import Sampling
from agentrl.noise import fold
from agentrl.types import Finish, Generation, Request

_FREE = np.zeros(0, np.int64)
_FREE.flags.writeable = False
_TAIL = 8  # tokens decoded in addition to one per byte of a stop string: a token may hold a part of a character


class Words:
    """Decodes token ids, and knows the texts and ids that end an answer.

    Args:
        tokenizer: a transformers tokenizer.
        stop: strings that end an answer.
        end_ids: ids that end an answer.
    """

    def __init__(self, tokenizer: Any, stop: tuple[str, ...], end_ids: frozenset[int]) -> None:
        self.tokenizer, self.stop, self.end_ids = tokenizer, stop, end_ids
        self.tail = max((len(s.encode()) for s in stop), default=0) + _TAIL  # tokens in which a stop string ends

    def text(self, ids: list[int]) -> str:
        """The text of ids, special tokens included."""
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def stopped(self, ids: list[int]) -> bool:
        """Did the last token complete a stop string?

        A stop string has fewer than `tail` bytes in UTF-8, and every token holds at least one byte. It is therefore
        enough to pass the last `tail` ids of the answer, so the total cost of the checks is linear in the length of
        the answer.
        """
        text = self.text(ids)
        return any(s in text for s in self.stop)


class Answer:
    """One request and the answer that is generated for it.

    Attributes:
        request: the request that is answered.
        sampling: the sampling distribution.
        slot: the answer's slot in the cache; -1 before it has a slot.
        computed: number of leading `tokens` whose keys and values are in the cache.
        finish: why the answer is finished; None while it is being generated.
        oldest: version of the oldest weights that computed a token of the answer or, in the embedded engine, a cached
            token of the prompt; None until the engine sets it.
    """

    __slots__ = (
        "allowed", "computed", "entropy", "entropy_nats", "finish", "forced", "key", "length", "limit", "logprobs",
        "node", "oldest", "request", "sampling", "slot", "start", "tokens", "trie", "words",
    )  # fmt: skip

    def __init__(self, request: Request, words: Words, sampling: Sampling, trie: Trie | None, room: int) -> None:
        """`room` is the largest number of tokens of prompt and answer together."""
        self.request, self.words, self.sampling, self.trie = request, words, sampling, trie
        self.start = len(request.token_ids)
        self.limit = min(request.max_tokens, sampling.max_tokens, room - self.start)
        self.tokens = np.empty(self.start + max(self.limit, 0), np.int64)
        self.tokens[: self.start] = request.token_ids
        self.length = self.start
        self.key = fold(request.noise_key)
        self.logprobs: list[float] = []
        self.allowed: list[np.ndarray] = []
        self.entropy: list[float] = []
        self.entropy_nats: list[float] = []
        self.slot, self.computed, self.node, self.forced = -1, 0, 0, 0
        self.oldest: int | None = None
        self.finish: Finish | None = "length" if self.limit <= 0 else None
        self._force()

    @property
    def drawn(self) -> int:
        """Number of the answer's tokens so far, which is the index of its next token."""
        return self.length - self.start

    def pending(self) -> np.ndarray:
        """[L] int64, the ids of the tokens that the next forward pass has to compute."""
        return self.tokens[self.computed : self.length]

    def options(self) -> np.ndarray | None:
        """The ids from which the next token may be sampled; None for all ids."""
        return None if self.trie is None else self.trie.allowed(self.node)

    def accept(self, token: int, logprob: float, allowed: np.ndarray, entropy: float = 0.0, nats: float = 0.0) -> None:
        """Append a sampled token, and the forced tokens that follow it."""
        self._append(token, logprob, allowed, entropy, nats)
        self._force()

    def _append(self, token: int, logprob: float, allowed: np.ndarray, entropy: float = 0.0, nats: float = 0.0) -> None:
        self.tokens[self.length] = token
        self.length += 1
        self.logprobs.append(logprob)
        self.allowed.append(allowed)
        self.entropy.append(entropy)
        self.entropy_nats.append(nats)
        if self.trie is not None:
            self.node = self.trie.follow(self.node, token)
            complete = self.trie.is_leaf(self.node)
        else:
            complete = token in self.words.end_ids or (bool(self.words.stop) and self.words.stopped(self._tail()))
        if complete:
            self.finish = "stop"
        elif self.drawn >= self.limit:
            self.finish = "length"

    def _tail(self) -> list[int]:
        """The last ids of the answer, in which a stop string ends."""
        ids: list[int] = self.tokens[max(self.start, self.length - self.words.tail) : self.length].tolist()
        return ids

    def _force(self) -> None:
        """Append tokens without an alternative: they have log-probability 0 and need no forward pass of their own."""
        if self.trie is None or self.finish is not None:
            return
        for token in self.trie.forced(self.node).tokens:
            self._append(token, 0.0, np.array([token]))
            self.forced += 1
            if self.finish is not None:
                return

    def generation(self, newest: int, *, entropies: bool = False, nats: bool = False) -> Generation:
        """The finished answer.

        Args:
            newest: version of the current weights.
            entropies: include the entropies that `accept` got with the tokens.
            nats: include the entropies in nats that `accept` got with the tokens.
        """
        ids = self.tokens[self.start : self.length]  # [T]
        assert self.finish is not None
        return Generation(
            text=self._text(ids),
            token_ids=ids,
            logprobs=np.array(self.logprobs, np.float64),
            allowed=tuple(self.allowed) if any(len(a) for a in self.allowed) else None,
            finish=self.finish,
            policy_version=(newest if self.oldest is None else self.oldest, newest),
            entropy=np.array(self.entropy, np.float64) if entropies else None,
            entropy_nats=np.array(self.entropy_nats, np.float64) if nats else None,
        )

    def _text(self, ids: np.ndarray) -> str:
        texts = self.request.choice_texts
        if self.trie is not None and texts and self.finish == "stop":
            return texts[self.trie.choice(self.node)]
        id_list = ids.tolist()
        return self.words.text(id_list[:-1] if id_list and id_list[-1] in self.words.end_ids else id_list)
