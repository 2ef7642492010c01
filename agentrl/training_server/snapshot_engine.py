"""Answers from snapshots of adapters: one embedded engine, in which one snapshot is in use at a time."""

import asyncio
import secrets
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from torch import Tensor

from agentrl.engines import HfEngine, Sampling
from agentrl.env import Observation
from agentrl.training_server.packed_passes import run_passes
from agentrl.training_server.shared_base import IDLE, SharedBase
from agentrl.training_server.verbs import AdapterPlan, PassWork, SampledTokens, SampleResult, SampleWork, SentDatum
from agentrl.types import Request


class Snapshot(NamedTuple):
    """Adapters that no update changes."""

    plan: AdapterPlan
    tensors: Mapping[str, Tensor]


class SnapshotEngine:
    """Draws answers, and computes log-probs of prompts, under a snapshot or under the base model.

    Answers of one snapshot are drawn together, and prompts that begin alike share their computation as long as the
    engine stays on this snapshot. Only one thread may use it.

    Args:
        base: the shared base model.
        max_slots: largest number of answers that are drawn at once.
        max_context: largest number of tokens of prompt and answer.
        max_tokens: largest number of packed tokens per pass for the log-probs of prompts.

    Attributes:
        current: the key of the snapshot in use; None before the first one.
    """

    def __init__(self, base: SharedBase, *, max_slots: int, max_context: int, max_tokens: int) -> None:
        self._base, self._max_context, self._max_tokens = base, max_context, max_tokens
        base.use(IDLE)
        self.engine = HfEngine(
            base.model, base.tokenizer, Sampling(max_tokens=max_context), max_slots=max_slots, max_context=max_context
        )
        self._slot, self._plan = "", AdapterPlan()
        self.current: str | None = None
        self._base_alone = True
        self._session = self._version = 0

    def use(self, key: str, snapshot: Snapshot | None) -> None:
        """Answer from this snapshot from now on; None for the base model. Snapshots with equal keys are equal."""
        self.current = None  # until the adapters are in place
        if snapshot is not None:
            self._place(snapshot)
        self._version += 1
        self.engine.load(self._base.model, self._version)
        self.current, self._base_alone = key, snapshot is None
        self.resume()

    def resume(self) -> None:
        """Use the adapters of the current snapshot again, after passes with others."""
        self._base.use(IDLE if self._base_alone else self._slot)

    def _place(self, snapshot: Snapshot) -> None:
        """Copy a snapshot into the adapters that belong to this engine."""
        if not self._slot or self._plan._replace(seed=0) != snapshot.plan._replace(seed=0):
            if self._slot:
                self._base.remove(self._slot)
                self._slot = ""
            self._slot, self._plan = self._base.add(snapshot.plan), snapshot.plan
        self._base.fill(self._slot, snapshot.tensors)

    async def answer(self, work: SampleWork) -> SampleResult:
        """The answers to one prompt under the snapshot in use. Several calls may run at a time.

        With equal seeds, answer i of a request gets the same noise.
        """
        scored = self.prompt_logprobs(work) if work.prompt_logprobs else None
        seed = secrets.randbits(62) if work.seed is None else work.seed
        room = self._max_context - len(work.prompt)
        sampling = Sampling(
            temperature=work.temperature,
            top_p=work.top_p,
            top_k=work.top_k,
            stop=work.stop_texts,
            max_tokens=self._max_context,  # the same for all requests, so that they are drawn together
        )
        limit = room if work.max_tokens is None else min(work.max_tokens, room)
        drawn = await asyncio.gather(*(self._draw(work, sampling, limit, (seed, i)) for i in range(work.count)))
        return SampleResult(drawn, scored)

    async def _draw(self, work: SampleWork, sampling: Sampling, limit: int, key: tuple[int, ...]) -> SampledTokens:
        self._session += 1
        session = self._session
        request = Request(
            session=session,
            token_ids=work.prompt,
            messages=(),
            observation=Observation(text=""),
            max_tokens=limit,
            noise_key=key,
        )
        try:
            found = await self.engine.generate(request, sampling=sampling, end_ids=work.stop_ids)
        finally:
            self.engine.release(session)
        return SampledTokens(found.token_ids, found.logprobs, "stop" if found.finish == "stop" else "length")

    def prompt_logprobs(self, work: SampleWork) -> np.ndarray | None:
        """[L] float64 log-probs of the prompt's tokens; NaN where they are not computed: always for the first one."""
        ids = work.prompt
        found = np.full(len(ids), np.nan)  # [L]
        if len(ids) > 1:
            ones = {"weights": np.ones((len(ids) - 1, 1), np.float32)}
            datum = SentDatum(inputs=ids[:-1], targets=ids[1:, None], columns=ones)
            asked = PassWork(data=[datum], loss="cross_entropy", backward=False)
            found[1:] = run_passes(self._base.network, asked, self._max_tokens, np.ones(1)).logprobs[0]
        if work.last:
            found[: max(len(ids) - work.last, 0)] = np.nan
        return found
