"""Plays further chains with a guide's words in the prompts, and replaces these prompts for training.

A chain with such words was sampled with a prompt that the policy will not see later. If the chain is trained with the
prompt without the words, it is data of another policy. The chain keeps the log-probs with which it was sampled, and the
trainer computes log-probs with the new prompt. `update.importance` corrects the difference between these log-probs.
With `update.old_logprob = "engine"`, the ratio of the loss corrects this difference. The column `reprompted` marks such
rows.

A context that writes a memory (`summary`) does so where the prompt becomes too long, so with the words in other turns
than without them. Such a chain cannot have the other prompts: it keeps its own.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from agentrl.config import Entry
from agentrl.env import PastTurn
from agentrl.graph import Tokens
from agentrl.rollout.context import Ask, History
from agentrl.rollout.expansion import Expansion, RolloutMethod, lost
from agentrl.rollout.guide import Demonstrate, Guide
from agentrl.rollout.player import Player
from agentrl.rollout.record_graph import build_graph, rows_of_graph
from agentrl.rollout.records import EpisodeRecord
from agentrl.rollout.sampler import Draw
from agentrl.types import Message, Task


@runtime_checkable
class Hinting(Protocol):
    """A guide that gives groups of a batch further chains with words.

    `plain`: are these chains trained with the prompt without the words?
    """

    plain: bool

    def lacking(self, groups: Mapping[int, Sequence[EpisodeRecord]]) -> list[Task]:
        """The tasks that the expert is to play now, each at most once; `groups` are the scored chains so far."""
        ...

    def shown(self, records: Sequence[EpisodeRecord]) -> None:
        """Receive the expert's episodes, in the order of the tasks."""
        ...

    def again(self, draw: Draw, records: Sequence[EpisodeRecord]) -> Draw | None:
        """The draw of a group's further chains, with words and a number of copies; None for no further chains."""
        ...


async def hinted(
    guide: Guide | None,
    batch: Expansion,
    records: Sequence[EpisodeRecord],
    rollout: Entry[RolloutMethod],
    copies: int,
    player: Player,
    demonstrate: Demonstrate | None,
) -> list[EpisodeRecord]:
    """The further chains that the guide gives to the groups of a batch; empty for a guide that gives none."""
    if not isinstance(guide, Hinting):
        return []
    groups = {group: [r for r in records if r.group == group and not lost(r)] for group in batch.groups}
    if tasks := guide.lacking(groups):
        assert demonstrate is not None, "the settings refuse a guide that asks for an expert, if there is no expert"
        guide.shown(await demonstrate(tasks))
    asked = {group: guide.again(batch.draws[group], own) for group, own in groups.items() if own}
    more = {group: draw for group, draw in asked.items() if draw is not None}
    if not more:
        return []
    batch.draw_more(more)
    found: list[EpisodeRecord] = await rollout.hooks.rollout(rollout.config, batch, copies)
    if guide.plain:
        for record in found:
            try:
                reprompt(record, player)
            except OtherTurns:
                record.keeps_words = True  # it is trained with its hint, and counted as `hints_kept`
    return found


class OtherTurns(Exception):
    """With the new words, the context would ask for a memory in other turns than the chain's."""


def reprompt(record: EpisodeRecord, player: Player, words: str = "") -> int:
    """Give a chain the prompts that it would have had with these words; its answers stay as they are.

    The context makes the prompts again, turn by turn. A chain without steps stays as it is, and so does a chain whose
    actor has no tokenizer.

    Returns:
        The largest number of tokens that a prompt and its answer have together; 0 for a chain that stays as it is.

    Raises:
        OtherTurns: the chain stays as it is.
    """
    chat = player.actor.chat
    if chat is None or not record.steps:
        return 0
    config, hooks, first = player.context.config, player.context.hooks, record.steps[0].observation
    history, most = History(chat=chat, first=first, now=first, words=words), 0
    following = [*(step.observation for step in record.steps[1:]), record.final or first]
    prompts = list[Ask]()
    for step, then in zip(record.steps, following, strict=True):
        ask = hooks.ask(config, player.prompt, history)
        if (ask.rewrites is not None) != step.rewrites:
            raise OtherTurns
        prompts.append(ask)
        answer = step.generation
        history.messages = [*ask.messages, answer.message or Message("assistant", answer.text)]
        history.path = np.concatenate([ask.token_ids, answer.token_ids])
        most = max(most, len(history.path))
        if ask.rewrites is not None and hooks.rewritten is not None:
            hooks.rewritten(config, history, step.action)
            continue
        history.past.append(PastTurn(step.observation, step.action))
        history.now, history.read = then, 0
    for step, ask in zip(record.steps, prompts, strict=True):
        step.added, step.continues = _added(ask)
    if len(record.tail):
        record.tail, record.tail_continues = _added(hooks.ask(config, player.prompt, history))
    record.reprompted = True
    return most


def _added(ask: Ask) -> tuple[np.ndarray, bool]:
    """(the tokens that a prompt adds to the path before it, is there such a path?)."""
    return ask.token_ids[len(ask.token_ids) - ask.added :], ask.added < len(ask.token_ids)


class Taught(NamedTuple):
    """The steps of a batch, each after the prompt that the policy reads as its own teacher.

    Attributes:
        tokens: a token table with the rows of the batch. It has the sampled tokens of the batch, in the same order.
        rows: [R] int64, ascending, the rows that have such a teacher.
    """

    tokens: Tokens
    rows: np.ndarray


@runtime_checkable
class Telling(Protocol):
    """A guide for a policy that is its own teacher: it adds words to the prompts that the teacher reads."""

    def told(self, record: EpisodeRecord) -> str:
        """The words at the end of the teacher's system message; empty if the policy does not teach this chain."""
        ...


def taught(
    guide: Guide | None, records: Sequence[EpisodeRecord], player: Player
) -> tuple[Taught | None, dict[str, float]]:
    """The chains of a batch as the policy reads them as its own teacher: with the words of the guide in their prompts.

    A chain has no such teacher if the guide gives no words for it, if the chain with these words does not fit into the
    model's context, or if the context would ask for a memory in other turns. The first part is None if no chain of the
    batch has such a teacher. The second is the metric `untaught_chains`: chains with words that have no teacher.
    """
    if not isinstance(guide, Telling):
        return None, {}
    words = [guide.told(record) for record in records]
    if not any(words):
        return None, {}
    copies = [replace(record, steps=[replace(step) for step in record.steps]) for record in records]
    limit, chains = player.actor.context_limit, set[int]()
    for copy, one in zip(copies, words, strict=True):
        with suppress(OtherTurns):
            if one and 0 < reprompt(copy, player, one) <= (limit or np.inf):
                chains.add(id(copy))
    left = {"untaught_chains": float(sum(map(bool, words)) - len(chains))}
    rows = np.array([row for row, (_, chain) in enumerate(rows_of_graph(copies)) if id(chain) in chains], np.int64)
    tokens = build_graph(copies).tokens
    return (None if tokens is None or not len(rows) else Taught(tokens, rows)), left
