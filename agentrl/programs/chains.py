"""Arranges the answered requests of a program's episode in chains: a main chain, and the chains that it calls.

Each answered request is a step. A request *continues* an earlier step in two cases:

- It *extends* the step: its prompt begins with the messages of the step's prompt and the step's answer. If this is true
  of several steps, the request extends the step with the longest prompt.
- It rewrites the history, as an agent that shortens or summarises its history does. A request that extends no step
  continues a step if three conditions hold. First, the request's prompt and the step's prompt begin with the same
  messages, up to and including the first message of the user. Second, of the steps that were answered before the
  request came and whose prompts begin with these messages, this step is the only one that no request has continued yet.
  Third, if further requests that extend no step and begin with these messages came at the same time (with no answer in
  between), they have the same prompt as this request.

A *conversation* is a request and the requests that continue it, one after the other. Two conversations are *played at
the same time* if a request of one was in flight together with a request of the other. The rules (the first two say when
a conversation *leaves* another one):

- Several requests may have the same first prompt, or continue the same step. If such requests were in flight together,
  only one of them belongs to the conversation: the request that the largest number of later requests continue, directly
  or through other requests (of equals, the first in the order of the texts). Each of the other requests begins a
  conversation of its own, which leaves this conversation.
- If a further request continues the same step after these requests are answered, the further request belongs to the
  conversation. Every earlier request that continues this step then begins a conversation of its own, which leaves this
  conversation. A first prompt that is asked again after its answer is treated like any other prompt that extends no
  step.
- The main chain begins with the first conversation. If several requests came before the first answer, the first
  conversation is the one whose first request the largest number of later requests continue, directly or through other
  requests (of equals, the first in the order of the texts).
- A later conversation joins an existing chain if no other conversation was played at the same time. Conversations that
  leave the later conversation, directly or through conversations between them, do not count here. If the conversation's
  first request continues a step, the conversation joins the chain of this step. Otherwise it joins the chain of the
  step that waited: the latest step that was answered before the conversation's first request came, and that a request
  continues after the conversation's last answer. If no step waited, it joins the main chain. So the contexts of a
  sequential program (rewritten histories, sub-agents one after the other) are one chain.
- Every other conversation is a chain of its own, which the main chain or another chain calls. The caller is the step
  that the conversation's first request continues. If this request continues no step, the caller is the step that
  waited. If no step waited, the caller is the latest step of the main chain that was answered before the conversation's
  first request came, or the main chain's first step if no step of the main chain was answered before.

No two requests of one chain are then in flight together, so a chain is a sequence in time, as returns and advantage
estimates need it.

A conversation with a chain of its own is a called chain (`caller`) and not a branch (`parent`). The reason: a branch is
a further try of the whole task. It counts as an episode, and its score changes the credit of the steps before it. A
called chain is a part of the same try: it counts in the same rollout, and the main chain has one return. If the tokens
of its first prompt continue the tokens of an earlier step (`Prompted.after`), the token table stores this, and the
shared tokens are computed once.

The outcome of the episode is the outcome of each of its chains: the last step of a called chain gets the episode's
score, success and signals (`share_outcome`). The policy gradient of a program's expected score multiplies the gradient
of each answer's log-prob by that score, whether or not the program used the answer. A chain without the score would
look like a failure. The agent name of the called chains ends in `agentrl.graph.CALLED`. In statistics over scores the
main chain stands for them (`StepGraph.lead`): the episode counts once, and each of its chains has its advantage.
"""

import math
from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentrl.graph import CALLED
from agentrl.rollout import EpisodeRecord, StepRecord, as_number, joined
from agentrl.types import Message


class AnsweredRequest(NamedTuple):
    """An answered request of a program.

    Attributes:
        step: the step of the answer.
        extends: the earlier step whose prompt and answer are the beginning of this prompt; None if there is no such
            step.
        prompt: digest of the prompt's messages and tools.
        number: how often the same prompt was asked before.
        begun, ended: when the request came, and when it was answered: readings of a counter that increases at each
            request and at each answer of the episode.
    """

    step: StepRecord
    extends: StepRecord | None
    prompt: bytes
    number: int
    begun: int
    ended: int

    @property
    def order(self) -> Any:
        """Puts requests in the order of their texts."""
        return (text_order(self.step.asked), self.prompt, self.number)


def text_order(messages: Iterable[Message]) -> list[tuple[Any, ...]]:
    """A value that orders prompts by their messages."""
    return [(one.role, one.content, [(call.name, call.arguments) for call in one.calls]) for one in messages]


@dataclass(eq=False)
class _Conversation:
    """A request and the requests that continue it, one after the other (see the module's docstring).

    Attributes:
        calls: the requests, in the order of time.
        beside: the conversation that this one leaves. That conversation contains another request with the same first
            prompt, or another request that continues the same step. None if this conversation leaves no other.
        chain: the chain that the conversation belongs to; None until `_ChainFinder._place` has decided.
        parallel: was this conversation played at the same time as another conversation? Conversations that leave this
            one, directly or through conversations between them, do not count.
    """

    calls: list[AnsweredRequest]
    beside: "_Conversation | None" = None
    chain: "_Chain | None" = None
    parallel: bool = False

    def left(self, other: "_Conversation") -> bool:
        """Did this conversation leave the other one, directly or through conversations between them?"""
        above = self.beside
        while above is not None and above is not other:
            above = above.beside
        return above is other


@dataclass(eq=False)
class _Chain:
    """A chain: its requests, and the step that called it (None for the main chain)."""

    caller: StepRecord | None
    calls: list[AnsweredRequest] = field(default_factory=list)
    called: "list[_Chain]" = field(default_factory=list)


def arrange(record: EpisodeRecord, calls: Sequence[AnsweredRequest]) -> None:
    """Put the answered requests of a program's episode into its record and into the chains that it called.

    The rewards and info of actions that a program took after a step of a called chain go to the main chain's latest
    step before that step, or to the main chain's first step if there is none.

    Args:
        record: the record of the episode. The function replaces its `steps` and `called`.
        calls: the answered requests, at least one, in the order of the answers.
    """
    main = _ChainFinder(calls).main
    record.steps = [call.step for call in main.calls]
    for call in (one for chain in main.called for one in _all_calls(chain)):
        earlier = [one.step for one in main.calls if one.ended < call.begun]
        host = earlier[-1] if earlier else main.calls[0].step
        host.reward += call.step.reward
        host.info = joined(host.info, call.step.info)
        call.step.reward, call.step.info = 0.0, {}
    record.called = [_record(record, chain) for chain in main.called]


def share_outcome(record: EpisodeRecord) -> None:
    """Give the called chains of a program's episode the outcome of its main chain.

    The last step of each called chain gets the sum of the main chain's rewards, the sum of each signal of the main
    chain, and the values `success`, `terminated` and `truncated` of the main chain's last step. Each called chain gets
    the main chain's `ending` and `final`.
    """
    last = record.steps[-1]
    signals: dict[str, float] = {}
    for step in record.steps:
        for name, value in step.info.get("signals", {}).items():
            number = as_number(value)
            if not math.isnan(number):
                signals[name] = signals.get(name, 0.0) + number
    info: dict[str, Any] = {"signals": signals} if signals else {}
    if "success" in last.info:
        info["success"] = last.info["success"]
    for chain in (one for called in record.called for one in called.chains()):
        end = chain.steps[-1]
        end.reward, end.info = record.score, info
        end.terminated, end.truncated = last.terminated, last.truncated
        chain.ending, chain.final = record.ending, record.final


def _all_calls(chain: _Chain) -> list[AnsweredRequest]:
    return [*chain.calls, *(call for below in chain.called for call in _all_calls(below))]


def _record(record: EpisodeRecord, chain: _Chain) -> EpisodeRecord:
    made = EpisodeRecord(
        task=record.task,
        group=record.group,
        copy=record.copy,
        agent=record.agent + CALLED,
        policy=record.policy,
        caller=chain.caller,
        kind=record.kind,
        steps=[call.step for call in chain.calls],
        called=[_record(record, below) for below in chain.called],
        beside=True,
        temperature=record.temperature,
        actions=len(_all_calls(chain)),
    )
    for call in chain.calls:
        made.spend(call.step.generation)
    made.tokens += sum(below.tokens for below in made.called)
    return made


class _ChainFinder:
    """Finds the chains of an episode; `main` is the result."""

    def __init__(self, calls: Sequence[AnsweredRequest]) -> None:
        self.calls = sorted(calls, key=lambda call: call.begun)
        self.main = _Chain(None)
        if len(_at_once(self.calls)) == len(self.calls):  # no two requests were in flight together
            self.main.calls = self.calls
            return
        self.above: dict[int, StepRecord] = {}  # by the step's `id`: the step that its prompt continues
        self.extended: dict[int, list[AnsweredRequest]] = {}  # by the step's `id`: the requests that continue it
        self._link()
        self.later: dict[int, int] = {}  # by the step's `id`: how many requests continue it, directly or not
        for call in reversed(self.calls):
            below = self.extended.get(id(call.step), ())
            self.later[id(call.step)] = sum(1 + self.later[id(one.step)] for one in below)
        self.of: dict[int, _Conversation] = {}  # by the step's `id`: the conversation of the step
        self.conversations = self._conversations()
        self._mark_parallel()
        self._place_all()
        self._sort(self.main)

    def _link(self) -> None:
        """Fill `above` and `extended`."""
        begun: dict[
            str, list[AnsweredRequest]
        ] = {}  # beginning of the prompt -> earlier requests that no request continues
        for together in _arrived_together(self.calls):
            fresh: dict[str, list[AnsweredRequest]] = {}
            for call in together:
                if call.extends is None:
                    fresh.setdefault(_beginning(call), []).append(call)
                else:
                    self.above[id(call.step)] = call.extends
            for beginning, same in fresh.items():
                begun[beginning] = [one for one in begun.get(beginning, ()) if id(one.step) not in self.extended]
                ends = [one for one in begun[beginning] if one.ended < same[0].begun]
                if len(ends) == 1 and len({call.prompt for call in same}) == 1:
                    self.above |= {id(call.step): ends[0].step for call in same}
            for call in together:
                begun.setdefault(_beginning(call), []).append(call)
                if id(call.step) in self.above:
                    self.extended.setdefault(id(self.above[id(call.step)]), []).append(call)

    def _best(self, calls: Sequence[AnsweredRequest]) -> AnsweredRequest:
        """The request that belongs to the conversation; each of the other requests begins a conversation of its own."""
        if len(calls) == 1:
            return calls[0]
        return min(calls, key=lambda call: (-self.later[id(call.step)], call.order))

    def _conversations(self) -> list[_Conversation]:
        """All conversations; a conversation that leaves another one comes after it."""
        firsts: dict[bytes, list[AnsweredRequest]] = {}
        for call in self.calls:
            if id(call.step) not in self.above:
                firsts.setdefault(call.prompt, []).append(call)
        found: list[_Conversation] = []
        for same in firsts.values():
            for answers in _at_once(same):
                best = self._best(answers)
                whole = self._follow(best, None, found)
                for other in sorted((call for call in answers if call is not best), key=lambda call: call.order):
                    self._follow(other, whole, found)
        return found

    def _follow(
        self, first: AnsweredRequest, beside: _Conversation | None, found: list[_Conversation]
    ) -> _Conversation:
        """Add to `found` the conversation that begins with a request, and the conversations that leave it.

        Each of these begins with a further request that continues a step of the conversation. Conversations that leave
        one of these are added, too.

        Returns:
            The conversation that begins with the request.
        """
        begin = [(first, beside)]
        place = len(found)
        while begin:
            call, beside = begin.pop()
            whole = _Conversation([call], beside)
            found.append(whole)
            while below := self.extended.get(id(whole.calls[-1].step)):
                best = self._best(_at_once(below)[-1])
                begin += [(other, whole) for other in below if other is not best]
                whole.calls.append(best)
            self.of |= {id(call.step): whole for call in whole.calls}
        return found[place]

    def _mark_parallel(self) -> None:
        active: list[AnsweredRequest] = []
        for call in self.calls:
            active = [one for one in active if one.ended > call.begun]
            for one in active:
                a, b = self.of[id(call.step)], self.of[id(one.step)]
                if a is not b:
                    a.parallel |= not b.left(a)
                    b.parallel |= not a.left(b)
            active.append(call)

    def _place_all(self) -> None:
        answered = min(call.ended for call in self.calls)
        begin = [one for one in self.conversations if one.beside is None and one.calls[0].begun < answered]
        first = min(begin, key=lambda one: (-self.later[id(one.calls[0].step)], one.calls[0].order))
        self._join(first, self.main)
        self.conversations.sort(key=lambda one: one.calls[0].begun)
        for one in self.conversations:
            self._place(one)

    def _place(self, one: _Conversation) -> None:
        if one.chain is not None:
            return
        if one.beside is not None:
            self._place(one.beside)
        before = self.above.get(id(one.calls[0].step)) or self._waiting(one)
        host = self.main if before is None else self.of[id(before)].chain
        assert host is not None, "the conversation of the step before is placed first"
        if not one.parallel:
            self._join(one, host)
            return
        if before is None:
            earlier = [call for call in self.main.calls if call.ended < one.calls[0].begun]
            before = (max(earlier, key=lambda call: call.ended) if earlier else self.main.calls[0]).step
        chain = _Chain(before)
        host.called.append(chain)
        self._join(one, chain)

    def _join(self, one: _Conversation, chain: _Chain) -> None:
        one.chain = chain
        chain.calls += one.calls

    def _waiting(self, one: _Conversation) -> StepRecord | None:
        """The step that waited while a conversation was played (see the module's docstring); None if no step waited.

        If several steps waited and the latest of these steps were in flight together, the result is the first of the
        latest steps in the order of the texts.
        """
        begun, ended = one.calls[0].begun, one.calls[-1].ended
        waiting = [
            call
            for call in self.calls
            if call.ended < begun and any(below.begun > ended for below in self.extended.get(id(call.step), ()))
        ]
        return min(_at_once(waiting)[-1], key=lambda call: call.order).step if waiting else None

    def _sort(self, chain: _Chain) -> None:
        """Order a chain's requests by time, and its called chains by the caller, then by the texts of their prompts."""
        chain.calls.sort(key=lambda call: call.begun)
        place = {id(call.step): number for number, call in enumerate(chain.calls)}
        chain.called.sort(key=lambda below: (place[id(below.caller)], below.calls[0].order))
        for below in chain.called:
            self._sort(below)


def _arrived_together(calls: Sequence[AnsweredRequest]) -> list[list[AnsweredRequest]]:
    """Groups of requests, in the order in which they came; an answer between two requests begins a new group."""
    ended = sorted(call.ended for call in calls)
    found: dict[int, list[AnsweredRequest]] = {}
    for call in calls:
        found.setdefault(bisect(ended, call.begun), []).append(call)
    return [*found.values()]


def _beginning(call: AnsweredRequest) -> str:
    """A prompt's messages up to and including the first one of the user (all if there is none), as one text."""
    asked = call.step.asked
    users = (number for number, one in enumerate(asked, 1) if one.role == "user")
    return repr(text_order(asked[: next(users, len(asked))]))


def _at_once(calls: Sequence[AnsweredRequest]) -> list[list[AnsweredRequest]]:
    """Groups of requests that were in flight together, directly or through others of the group.

    Args:
        calls: requests in the order in which they came.
    """
    found: list[list[AnsweredRequest]] = []
    ended = -1
    for call in calls:
        if call.begun > ended:
            found.append([])
        found[-1].append(call)
        ended = max(ended, call.ended)
    return found
