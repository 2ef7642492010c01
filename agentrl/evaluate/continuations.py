"""Playing a stored episode on: back to the exact state of one of its steps, then new continuations from there."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentrl.env import Handle, Past, continues
from agentrl.graph import PROBE, StepGraph
from agentrl.rollout import (
    Ask,
    EpisodeRecord,
    History,
    Player,
    Point,
    Start,
    StateMismatch,
    StepRecord,
    play_starts,
    same_state,
)
from agentrl.types import Generation, Message, Observation, Status, Task


@dataclass(frozen=True, kw_only=True, eq=False)
class Place:
    """A step of a stored graph: its `row`, the rows `before` it on its path, root first, and the path's rows from it
    on to the end of the episode that was asked for (`after`, the step itself first)."""

    graph: StepGraph
    before: list[int]
    row: int
    after: list[int]

    @property
    def task_key(self) -> str:
        """The key of the task that was played."""
        return str(self.graph.names["group"][self.graph.group[self.row]])

    @property
    def played_on(self) -> list[int]:
        """First rows of the continuations that were made here before."""
        graph, above = self.graph, self.before[-1] if self.before else -1
        beside = (graph.parent == above) & (graph.turn == graph.turn[self.row]) & (graph.kind == PROBE)
        return list(np.flatnonzero(beside & (graph.tree == graph.tree[self.row])).tolist())


def find_place(graph: StepGraph, episode: int, turn: int) -> Place:
    """The step of an episode at a turn; steps that it shares with other episodes are its own too.

    Raises:
        ValueError: there is no such episode or turn, or the graph does not hold what was said.
    """
    rows = np.flatnonzero(graph.episode == episode)
    if not len(rows):
        last = int(graph.episode.max(initial=-1))
        raise ValueError(f"there is no episode {episode}: the stored episodes are numbered 0 to {last}")
    if not {"observation", "answer"} <= set(graph.texts) or "action" not in graph.names:
        raise ValueError("these steps came without their words, so no episode can be played on: give stored rollouts")
    path = [int(rows[-1])]
    while graph.parent[path[0]] >= 0:
        path.insert(0, int(graph.parent[path[0]]))
    turns = graph.turn[path].tolist()
    if turn not in turns:
        raise ValueError(f"episode {episode} has turns {turns[0]} to {turns[-1]}, not {turn}")
    at = turns.index(turn)
    if np.isin(graph.caller, path[:at]).any() or (graph.caller[path] >= 0).any():
        raise ValueError(f"episode {episode} calls other agents or is called by one, and cannot be played on alone")
    return Place(graph=graph, before=path[:at], row=path[at], after=path[at:])


async def stand(place: Place, task: Task, player: Player, handle: Handle, *, exact: bool) -> Start:
    """Play the recorded actions from the task's seed, compare all that is seen, and stop before the step.

    Args:
        place: which step.
        task: what was played.
        player: who will play on; its context policy sees the same history.
        handle: an environment instance.
        exact: the stored tokens are the player's own: the history is made of them. Else it is made of the words.

    Raises:
        ValueError: what is seen is not what is stored.
    """
    graph, context = place.graph, player.context
    seen = await handle.reset(task)
    history = History(chat=player.actor.chat, first=seen, now=seen)
    steps: list[StepRecord] = []
    for row in place.before:
        agree(graph, row, history.now)
        ask = context.hooks.ask(context.config, player.prompt, history)
        step = recorded(graph, row, history.now, ask, exact=exact)
        steps.append(step)
        history.messages = [*ask.messages, Message("assistant", step.generation.text)]
        answer = step.generation.token_ids if exact else said(player, step.generation.text)
        history.path = np.concatenate([ask.token_ids, answer])
        if ask.rewrites is not None:  # the step was for the model's memory, not for the environment
            assert context.hooks.rewritten is not None, f"context {context.name} asks for rewrites and takes none"
            context.hooks.rewritten(context.config, history, step.action)
            continue
        result = await handle.step(step.action)
        history.past.append(Past(history.now, step.action))
        history.now, history.read = result.observation, 0
        if result.terminated or result.truncated:
            raise ValueError(f"played again, the episode ends at turn {len(steps)}: the environment has changed")
    agree(graph, place.row, history.now)
    sampled = sum(len(step.generation.token_ids) for step in steps)
    point = await Point.mark(handle, history, session=-1, sampled=sampled)
    return Start(task=task, group=0, copy=0, session=0, kind=PROBE, point=point, steps=steps)


def said(player: Player, text: str) -> np.ndarray:
    """[T] ids of an answer given in words; none without a tokenizer."""
    if player.actor.chat is None:
        return np.zeros(0, np.int64)
    return player.actor.chat.answer(text, end=not continues(player.prompt))


def agree(graph: StepGraph, row: int, seen: Observation) -> None:
    """Raises ValueError unless the environment shows what was seen at a row."""
    turn = graph.turn[row]
    for what, found, stored in (
        ("text", seen.text, graph.texts["observation"][row]),
        ("state key", same_state(seen), graph.names["state"][graph.state[row]]),
    ):
        if found != stored:
            raise ValueError(
                f"played again, turn {turn} shows {what} {found!r:.80}, stored is {stored!r:.80}: "
                "the environment or its options have changed"
            )


def recorded(graph: StepGraph, row: int, seen: Observation, ask: Ask, *, exact: bool) -> StepRecord:
    """A stored step as a record.

    Raises:
        ValueError: `exact`, and the step's stored prompt is another one than `ask`.
    """
    answer = np.zeros(0, np.int64)
    if exact:
        assert graph.tokens is not None
        start, stop = graph.tokens.offsets[row : row + 2]
        own, sampled = graph.tokens.ids[start:stop], graph.tokens.sampled[start:stop]
        answer, path = own[sampled], graph.tokens.path(row)
        if not np.array_equal(path[: len(path) - len(answer)], ask.token_ids):
            raise ValueError(
                f"the prompt of turn {graph.turn[row]} is not the stored one: the tokenizer, the environment's prompt "
                "or the context policy have changed"
            )
    return StepRecord(
        observation=seen,
        added=ask.token_ids[len(ask.token_ids) - ask.added :],
        continues=ask.added < len(ask.token_ids),
        generation=Generation(text=graph.texts["answer"][row], token_ids=answer, logprobs=np.zeros(len(answer))),
        action=str(graph.names["action"][graph.action[row]]),
        valid=bool(graph.valid[row]),
        status=Status(int(graph.status[row])),
        reward=float(graph.reward[row]),
    )


async def play_on(place: Place, task: Task, player: Player, count: int, *, exact: bool) -> list[EpisodeRecord]:
    """`count` new continuations from the state a stored step was taken in, that step's turn played anew.

    The noise is named by the player's seed and stage, the episode's turn, and how many continuations there are already.

    Raises:
        ValueError: the state cannot be reached again; no continuation could be played.
    """
    handle = player.pool.acquire()
    broken = True
    try:
        start = await stand(place, task, player, handle, exact=exact)
        broken = False
    except StateMismatch as mismatch:
        raise ValueError(str(mismatch)) from None
    finally:
        player.pool.release(handle, broken=broken)
    done = len(place.played_on)
    starts = [
        Start(
            task=task,
            group=int(place.graph.episode[place.row]),
            copy=done + number,
            session=number,
            kind=PROBE,
            point=start.point,
            steps=start.steps,
        )
        for number in range(count)
    ]
    records = await play_starts(player, starts, iteration=int(place.graph.turn[place.row]))
    if not any(record.own for record in records):
        raise ValueError(f"no continuation could be played: {records[-1].fault}")
    return records


def continuation_returns(records: Sequence[EpisodeRecord]) -> np.ndarray:
    """[n] the rewards of each continuation that the environment did not spoil."""
    scored = [record for record in records if record.ending != Status.ENV_ERROR]
    return np.array([sum(step.reward for step in record.own) for record in scored])
