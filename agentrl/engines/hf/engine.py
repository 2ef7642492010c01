"""The embedded engine: any transformers causal language model, continuous batching, KV cache kept across turns.

Episodes send requests independently of each other. Each forward pass is one packed sequence of all running answers and
of the prompts of new turns, with as many prompts as slots and `max_batch_tokens` allow. While a session has a slot, its
keys and values stay there between turns, so the engine computes only the tokens that a turn adds. If a prompt begins
like the tokens of another slot (copies of one task, branches, a common system prompt), the engine copies that slot's
keys and values.

If a model cannot run packed, the engine computes one sequence after the other, and in every turn the whole prompt
(`agentrl.engines.hf.forwards.PlainRunner`).
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor

from agentrl.chat import Tries
from agentrl.engines.distribution import DrawnTokens, by_temperature, draw_each, full_entropy, top_entropy
from agentrl.engines.hf.answer import Answer, Words
from agentrl.engines.hf.forwards import Chunk, base_config, check_context, choose_runner, end_ids as ending
from agentrl.engines.hf.slots import Donor, Slots
from agentrl.engines.policy import AnswerCounts
from agentrl.engines.sampling import Sampling
from agentrl.model import on_device
from agentrl.noise import uniforms
from agentrl.pulse import PULSE
from agentrl.types import Generation, Request

_WORTH = 32  # least number of tokens that a copy from another slot must save
_ROUNDS = 4  # rounds of the event loop between two forward passes, so that fast environments send their next request
_NONE = np.zeros(0, np.int64)


@dataclass
class HfCounts(AnswerCounts):
    """Counts since the engine was made.

    Attributes:
        reused_tokens: prompt tokens whose keys and values were in the cache.
        forked_tokens: reused tokens that a branch took over from the session that it continues.
        computed_tokens: tokens that ran through the model.
        forwards: forward passes.
        evictions: sessions that lost their slot to another session.
    """

    reused_tokens: int = 0
    forked_tokens: int = 0
    computed_tokens: int = 0
    forwards: int = 0
    evictions: int = 0


class HfEngine:
    """The embedded engine, see the module. It implements `agentrl.engines.Policy`.

    Args:
        model: a transformers causal language model, or peft around one. The engine does not copy it. Code that changes
            the weights must call `load` after the change, or call `clear` and set `version`.
        tokenizer: tokenizer of the model.
        sampling: the sampling distribution.
        max_slots: largest number of sessions whose cache is kept, and of answers that are generated at once.
        max_context: largest number of tokens of prompt and answer together.
        actions: see `EngineOptions`; reports quote it. With "admissible" every request must have choices, except if its
            answer rewrites a memory.
        deterministic: run a forward pass only if every open session waits for an answer or rests. Batches, and with
            them rounding, then do not depend on timing. The caller must `open` each session before its first request,
            and no environment may wait for another environment.
        version: version of the weights.
        max_batch_tokens: largest number of tokens per forward pass; a longer prompt is computed alone, when no other
            answer is running. None is 2048 on the CPU, where longer batches do not fit into the processor's caches,
            and 16384 elsewhere.
        end_ids: token ids that end a free answer; None takes those of the tokenizer and of the generation config.
        entropies: compute `Generation.entropy`, the entropy over the ten most probable tokens.
        nats: compute `Generation.entropy_nats`, the entropy of the whole distribution.

    Raises:
        ValueError: max_context exceeds the model's positions (see `check_context`), or no token id ends an answer.
    """

    name = "hf"

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        sampling: Sampling,
        *,
        max_slots: int,
        max_context: int,
        actions: Literal["free", "admissible", "listed"] = "free",
        deterministic: bool = False,
        version: int = 0,
        max_batch_tokens: int | None = None,
        end_ids: Sequence[int] | None = None,
        entropies: bool = False,
        nats: bool = False,
    ) -> None:
        check_context(model, max_context)
        self.model, self.tokenizer, self.sampling = model, tokenizer, sampling
        self.max_slots, self.max_context = max_slots, max_context
        self.max_batch_tokens = max_batch_tokens or (2048 if model.device.type == "cpu" else 16384)
        self.actions, self.deterministic, self.version = actions, deterministic, version
        self.entropies, self.nats = entropies, nats
        self.stats = HfCounts()
        if end_ids is None:
            settings = getattr(model, "generation_config", None)
            end_ids = [*ending(getattr(settings, "eos_token_id", None), tokenizer)]
        self._words = Words(tokenizer, sampling.stop, frozenset(end_ids))
        self._runner, self._reason = choose_runner(model, max_slots, max_context)
        self._slots = Slots(max_slots, max_context)
        self._tries = Tries()
        self._open: set[int] = set()
        self._idle: set[int] = set()  # open sessions that neither wait for an answer nor rest
        self._waiting: dict[Answer, asyncio.Future[None]] = {}
        self._active: list[Answer] = []
        self._loop: asyncio.Task[None] | None = None

    def describe(self) -> dict[str, object]:
        """Description of the policy for reports."""
        wrapped = hasattr(self.model, "get_base_model")
        origin = getattr(base_config(self.model), "origin", None)
        return {
            "engine": self.name,
            **({"origin": origin} if origin else {}),  # where converted or fetched weights come from
            "model": type(self.model.get_base_model() if wrapped else self.model).__name__,
            "adapters": wrapped,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": str(self.model.device),
            "sampling": self.sampling.model_dump(),
            "actions": self.actions,
            "deterministic": self.deterministic,
            "max_slots": self.max_slots,
            "max_context": self.max_context,
            "cache": "kept across turns" if self._runner.reuses else f"whole prompt every turn: {self._reason}",
        }

    def open(self, session: int) -> None:
        """See Policy."""
        self._open.add(session)
        self._idle.add(session)

    def fork(self, session: int, of: int, tokens: int) -> None:
        """See Policy. The session's first prompt takes over the cached tokens that it shares with session `of`."""
        if tokens and self._runner.reuses:
            self._slots.fork(session, of)

    def rest(self, session: int) -> None:
        """See Policy. A deterministic engine does not wait for a session that rests."""
        self._idle.discard(session)
        self._kick()

    def wake(self, session: int) -> None:
        """See Policy."""
        if session in self._open:
            self._idle.add(session)

    def release(self, session: int) -> None:
        """See Policy. The session's slot becomes free, and a deterministic engine no longer waits for the session."""
        self._open.discard(session)
        self._idle.discard(session)
        self._slots.release(session)
        self._kick()

    def clear(self) -> None:
        """Drop all keys and values; call this after the weights have changed."""
        self._slots.clear()
        self._runner.clear()
        self._active = []  # running answers are admitted again, with the tokens that they have

    def free(self) -> None:
        """Drop all keys and values, and give back their memory; the next request takes memory again."""
        self.clear()
        self._runner.free()

    def load(self, model: Any, version: int) -> None:
        """Generate from now on with `model`: the engine's own model, which the trainer changed, or another model."""
        if model is not self.model:
            self.model = model
            self._runner, self._reason = choose_runner(model, self.max_slots, self.max_context)
        self.clear()
        self.version = version

    async def generate(
        self, request: Request, *, sampling: Sampling | None = None, end_ids: Collection[int] | None = None
    ) -> Generation:
        """See Policy. If the prompt fills the context, the answer has no token and finish "length".

        Args:
            request: the request.
            sampling: replaces the engine's sampling distribution for this answer.
            end_ids: replaces the engine's end ids for this answer; empty: only stop strings and limits end it.
        """
        if self.actions == "admissible" and not request.choices and request.rewrites is None:
            raise ValueError(
                "engine.actions=admissible needs a list of admissible actions for every step, and this step has none: "
                "set engine.actions=free"
            )
        if self.deterministic and request.session not in self._open:
            raise ValueError(
                f"session {request.session} was not opened: a deterministic engine waits for all open sessions, so "
                "call open(session) first"
            )
        trie = self._tries.get(request.choices) if request.choices else None
        words, settings = self._words, self.sampling if sampling is None else sampling
        if settings is not self.sampling or end_ids is not None:
            words = Words(self.tokenizer, settings.stop, words.end_ids if end_ids is None else frozenset(end_ids))
        answer = Answer(request, words, settings, trie, self.max_context)
        if answer.finish is None:
            await self._wait_for(answer)
        self.stats.add(prompt=answer.start, drawn=answer.drawn, forced=answer.forced)
        return answer.generation(self.version, entropies=self.entropies, nats=self.nats)

    async def _wait_for(self, answer: Answer) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[answer] = done
        self._idle.discard(answer.request.session)
        self._kick()
        try:
            await done
        finally:
            if answer in self._waiting:  # cancelled, or the engine failed
                self._active = [a for a in self._active if a is not answer]
                self._leave(answer)
                self._kick()

    def _leave(self, answer: Answer) -> None:
        """Remove the request of `answer`, and let its caller continue."""
        if answer.request.session in self._open:
            self._idle.add(answer.request.session)
        future = self._waiting.pop(answer)
        if not future.done():  # it is done if the caller was cancelled, or if the engine failed
            future.set_result(None)

    def _ready(self) -> bool:
        return bool(self._waiting) and not (self.deterministic and self._idle)

    def _kick(self) -> None:
        """Start the loop of `_run` if there is work and the loop is not running."""
        if self._ready() and (self._loop is None or self._loop.done()):
            self._loop = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._ready():
            try:
                self._step()
            except Exception as fault:  # noqa: BLE001 - every waiting caller gets the error
                self.clear()
                for future in self._waiting.values():
                    if not future.done():
                        future.set_exception(fault)
                return
            for _ in range(_ROUNDS):
                await asyncio.sleep(0)
                if not self._idle:
                    break

    def _step(self) -> None:
        """One forward pass over the answers that have a slot; draws one token per answer."""
        self._admit()
        batch = sorted(self._active, key=lambda a: a.slot)
        chunks = [Chunk(a.slot, a.computed, a.pending()) for a in batch]
        for chunk in chunks:
            self._slots.plan(*chunk)
        logits = self._runner.forward(chunks)
        PULSE.beat("engine")
        self.stats.forwards += 1
        self.stats.computed_tokens += sum(len(c.ids) for c in chunks)
        _mark(self._slots, batch)
        noise = uniforms(np.array([a.key for a in batch], np.uint64), np.array([a.drawn for a in batch]))
        options = [a.options() for a in batch]
        hot = [_temperature(a, self.sampling) for a in batch]
        ids, logprobs, sets = _draw(logits, self.sampling, batch, noise, options, hot)
        entropy, nats = np.zeros(len(batch)), np.zeros(len(batch))  # [B]
        if self.entropies or self.nats:
            for rows, sampling in by_temperature(self.sampling, hot):
                (index,) = on_device([rows], logits.device)
                allowed = [options[b] for b in rows]
                if self.entropies:
                    entropy[rows] = top_entropy(logits[index], sampling, allowed)
                if self.nats:
                    nats[rows] = full_entropy(logits[index], sampling, allowed)
        draws = zip(batch, ids.tolist(), logprobs.tolist(), sets, entropy.tolist(), nats.tolist(), strict=True)
        for answer, *token in draws:
            answer.accept(*token)
            if answer.finish is not None:
                self._leave(answer)
        self._active = [a for a in self._active if a.finish is None]

    def _admit(self) -> None:
        """Give waiting requests a slot while slots and the token budget last.

        Requests of sessions that have a slot come first, then requests of sessions without one, both in ascending order
        of the session's number. A session may lose its slot only while running answers use less than half of the slots.
        If there are more sessions than slots and each request evicted a session, every session would lose its cache.
        """
        running = set(map(id, self._active))
        waiting = [a for a in self._waiting if id(a) not in running]
        if not waiting:
            return
        budget = self.max_batch_tokens - sum(a.length - a.computed for a in self._active)
        busy = {a.slot for a in self._active}
        sessions = {a.request.session for a in self._active}
        for answer in sorted(waiting, key=lambda a: (not self._slots.owned(a.request.session), a.request.session)):
            session = answer.request.session
            if session in sessions:
                continue
            slot = self._slots.acquire(session, busy, evict=2 * len(self._active) < self.max_slots)
            if slot < 0:
                break
            computed = self._prepare(session, slot, answer.tokens[: answer.length])
            if computed is None:
                continue  # another answer of this batch computes the shared beginning, which the next batch can copy
            budget -= answer.length - computed
            if budget < 0 and self._active:
                break
            answer.slot, answer.computed = slot, computed
            self.stats.reused_tokens += min(computed, answer.start)
            self._slots.plan(slot, computed, answer.pending())
            busy.add(slot)
            sessions.add(session)
            self._active.append(answer)
        self.stats.evictions = self._slots.evictions

    def _prepare(self, session: int, slot: int, tokens: np.ndarray) -> int | None:
        """Number of `tokens` that the slot holds, perhaps after a copy from another slot with the same beginning.

        None if the other slot has planned at least `_WORTH` of these tokens and not yet computed them. The request then
        waits for the next batch.
        """
        if not self._runner.reuses:
            self._slots.version[slot] = self.version
            return 0
        source = self._slots.source(session, tokens)
        cached = self._slots.keep(slot, tokens)
        if cached == 0:
            self._slots.version[slot] = self.version
        if source is not None:
            if source.slot != slot and source.computed > cached:
                cached = self._copy(source, slot, tokens)
            self.stats.forked_tokens += min(cached, source.computed)
        if len(tokens) - cached <= _WORTH:
            return cached
        donor = self._slots.donor(tokens)
        if donor.length - cached < _WORTH:
            return cached
        if donor.length - donor.computed >= _WORTH:
            return None
        return self._copy(donor, slot, tokens)

    def _copy(self, donor: Donor, slot: int, tokens: np.ndarray) -> int:
        """Copy the computed tokens of the donor into a slot; returns their number."""
        self._runner.copy(donor.slot, slot, donor.computed)
        self._slots.plan(slot, 0, tokens[: donor.computed])
        self._slots.computed[slot] = donor.computed
        self._slots.version[slot] = min(self._slots.version[slot], self._slots.version[donor.slot])
        return donor.computed


def _temperature(answer: Answer, engine: Sampling) -> float | None:
    """The temperature of an answer; None for that of the engine's distribution."""
    own = None if answer.sampling is engine else answer.sampling.temperature
    return own if answer.request.temperature is None else answer.request.temperature


def _draw(
    logits: Tensor,
    engine: Sampling,
    batch: Sequence[Answer],
    noise: np.ndarray,
    options: Sequence[np.ndarray | None],
    hot: Sequence[float | None],
) -> DrawnTokens:
    """`draw_each`, with the sampling distribution of each answer of the batch; `engine` is that of the engine."""
    settings = list(dict.fromkeys(a.sampling for a in batch))
    if settings == [engine]:
        return draw_each(logits, engine, noise, options, hot)
    drawn = DrawnTokens(np.zeros(len(batch), np.int64), np.zeros(len(batch)), [_NONE] * len(batch))
    for sampling in settings:
        rows = np.array([b for b, a in enumerate(batch) if a.sampling == sampling])  # [R]
        (there,) = on_device([rows], logits.device)
        part = draw_each(logits[there], sampling, noise[rows], [options[b] for b in rows], [hot[b] for b in rows])
        drawn.ids[rows], drawn.logprobs[rows] = part.ids, part.logprobs
        for b, support in zip(rows.tolist(), part.allowed, strict=True):
            drawn.allowed[b] = support
    return drawn


def _mark(slots: Slots, batch: Sequence[Answer]) -> None:
    """After a forward pass: note that the planned tokens of the batch are computed."""
    for answer in batch:
        slot = answer.slot
        answer.computed = answer.length
        slots.computed[slot] = answer.length
        version = int(slots.version[slot])
        answer.oldest = version if answer.oldest is None else min(answer.oldest, version)
