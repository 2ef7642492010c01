"""One answer while it is being generated: its tokens, what may follow, and when it is over."""

from typing import Any

import numpy as np

from agentrl.chat import Trie
from agentrl.engines.sampling import Sampling
from agentrl.noise import fold
from agentrl.types import Finish, Generation, Request

_FREE = np.zeros(0, np.int64)
_FREE.flags.writeable = False
_TAIL = 8  # tokens decoded beyond those a stop string can span, for characters made of several tokens


class Words:
    """What an engine needs of a tokenizer: text of ids, and which ids end an answer.

    Args:
        tokenizer: a transformers tokenizer.
        stop: strings that end an answer.
        end_ids: ids that end an answer.
    """

    def __init__(self, tokenizer: Any, stop: tuple[str, ...], end_ids: frozenset[int]) -> None:
        self.tokenizer, self.stop, self.end_ids = tokenizer, stop, end_ids
        self.reach = max((len(s) for s in stop), default=0)

    def text(self, ids: list[int]) -> str:
        """The text of ids, special tokens included."""
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def stopped(self, ids: list[int]) -> bool:
        """Did the last token complete a stop string?

        A stop string is at most `reach` characters long and every token but a part of a character gives at least
        one, so a tail of tokens is enough, and the cost of an answer stays linear in its length.
        """
        tail = self.text(ids[-(self.reach + _TAIL) :])
        return any(s in tail for s in self.stop)


class Answer:
    """The state of one request.

    Attributes:
        request: what was asked.
        slot: its slot in the cache, -1 before it has one.
        computed: how many of `tokens` are in the cache.
        finish: why it is over; None while it is not.
        oldest: oldest weights that took part.
    """

    __slots__ = (
        "allowed", "computed", "entropy", "finish", "forced", "key", "length", "limit", "logprobs", "node", "oldest",
        "request", "slot", "start", "tokens", "trie", "words",
    )  # fmt: skip

    def __init__(self, request: Request, words: Words, sampling: Sampling, trie: Trie | None, room: int) -> None:
        """`room`: most tokens of prompt and answer together."""
        self.request, self.words, self.trie = request, words, trie
        self.start = len(request.token_ids)
        self.limit = min(request.max_tokens, sampling.max_tokens, room - self.start)
        self.tokens = np.empty(self.start + max(self.limit, 0), np.int64)
        self.tokens[: self.start] = request.token_ids
        self.length = self.start
        self.key = fold(request.noise_key)
        self.logprobs: list[float] = []
        self.allowed: list[np.ndarray] = []
        self.entropy: list[float] = []
        self.slot, self.computed, self.node, self.forced = -1, 0, 0, 0
        self.oldest: int | None = None
        self.finish: Finish | None = "length" if self.limit <= 0 else None
        self._force()

    @property
    def drawn(self) -> int:
        """Index of the next token of the answer."""
        return self.length - self.start

    def pending(self) -> np.ndarray:
        """[L] int64, the tokens the next forward has to compute."""
        return self.tokens[self.computed : self.length]

    def options(self) -> np.ndarray | None:
        """The ids the next token may be; None for all."""
        return None if self.trie is None else self.trie.allowed(self.node)

    def accept(self, token: int, logprob: float, allowed: np.ndarray, entropy: float = 0.0) -> None:
        """Take a sampled token, and the forced ones that follow it."""
        self._append(token, logprob, allowed, entropy)
        self._force()

    def _append(self, token: int, logprob: float, allowed: np.ndarray, entropy: float = 0.0) -> None:
        self.tokens[self.length] = token
        self.length += 1
        self.logprobs.append(logprob)
        self.allowed.append(allowed)
        self.entropy.append(entropy)
        if self.trie is not None:
            self.node = self.trie.follow(self.node, token)
            over = self.trie.is_leaf(self.node)
        else:
            over = token in self.words.end_ids or (
                bool(self.words.stop) and self.words.stopped(self.tokens[self.start : self.length].tolist())
            )
        if over:
            self.finish = "stop"
        elif self.drawn >= self.limit:
            self.finish = "length"

    def _force(self) -> None:
        """Tokens without an alternative: log-probability 0, no sampling, no forward pass of their own."""
        if self.trie is None or self.finish is not None:
            return
        for token in self.trie.forced(self.node).tokens:
            self._append(token, 0.0, np.array([token]))
            self.forced += 1
            if self.finish is not None:
                return

    def generation(self, newest: int, *, entropies: bool = False) -> Generation:
        """The finished answer; `entropies` were given with its tokens."""
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
        )

    def _text(self, ids: np.ndarray) -> str:
        texts = self.request.choice_texts
        if self.trie is not None and texts and self.finish == "stop":
            return texts[self.trie.choice(self.node)]
        given = ids.tolist()
        return self.words.text(given[:-1] if given and given[-1] in self.words.end_ids else given)
