"""Checks of rows as tasks of an environment: is the first prompt too long, and can the task be solved?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl.chat import Chat
from agentrl.config import Entry
from agentrl.env import Env, EnvironmentFile, clipped, prompt_of
from agentrl.preflight.rows.finding import RowFinding, listed
from agentrl.rollout import ContextPolicy, first_prompt
from agentrl.types import EnvFault, Observation, Task

MOST_STEPS = 100  # largest number of steps of a reference solution; a longer solution does not pass


@dataclass(frozen=True, kw_only=True)
class Context:
    """How first prompts are written and measured, and the limits on their length.

    Attributes:
        policy: the catalogue entry of the context, which writes the first prompt.
        chat: the model's tokenizer with its chat template; None counts words.
        limit: largest number of tokens of prompt and answer together; None for no limit.
        answer: largest number of tokens of an answer.
        output_chars: largest number of characters of an observation; a longer text keeps its head and tail.
    """

    policy: Entry[ContextPolicy]
    chat: Chat | None = None
    limit: int | None = None
    answer: int = 0
    output_chars: int | None = None


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Lengths of first prompts.

    Attributes:
        unit: tokens, or words if there is no tokenizer.
        median: median length over the rows whose episode can begin.
        high: 95th percentile of the lengths over these rows.
        longest: largest length over these rows.
        cut: number of rows whose prompt leaves room for fewer tokens than `Context.answer`; 0 if no tokenizer or no
            limit is given.
    """

    unit: str
    median: int
    high: int
    longest: int
    cut: int


def measure(
    entry: Entry[EnvironmentFile], tasks: Sequence[Task], places: Sequence[str], context: Context
) -> tuple[Lengths | None, list[RowFinding]]:
    """The lengths of the first prompts, and findings on rows whose episode cannot begin or whose prompt is too long.

    The lengths are None if no episode can begin.

    Args:
        entry: the environment with its configuration.
        tasks, places: [R] the rows as tasks, and the place of each row in words.
        context: how prompts are written and measured.
    """
    prompt, env = prompt_of(entry), entry.hooks.make(entry.config)
    sizes: list[int] = []
    broken: dict[str, list[str]] = {}
    long: list[tuple[int, str]] = []
    try:
        for task, place in zip(tasks, places, strict=True):
            try:
                observation = env.reset(task)
            except Exception as error:  # noqa: BLE001  an environment may raise any exception for a wrong row
                broken.setdefault(_sentence(error), []).append(place)
                continue
            ask = first_prompt(context.policy, prompt, context.chat, clipped(observation, context.output_chars))
            words = sum(len(message.content.split()) for message in ask.messages)
            sizes.append(len(ask.token_ids) if context.chat is not None else words)
            if context.limit is not None and context.chat is not None and sizes[-1] >= context.limit:
                long.append((sizes[-1], place))
    finally:
        env.close()
    found = [
        RowFinding(kind="reset", rows=tuple(rows), text=f"{listed(rows)} cannot begin an episode ({why}): mend the row")
        for why, rows in broken.items()
    ]
    if long:
        rows = tuple(place for _, place in long)
        text = f"{listed(rows)}: the first prompt has up to {max(long)[0]} tokens, and engine.max_context is "
        text += f"{context.limit}, so no answer fits: raise engine.max_context, or remove the row"
        found.append(RowFinding(kind="long", rows=rows, text=text))
    return _lengths(sizes, context), found


def _lengths(sizes: Sequence[int], context: Context) -> Lengths | None:
    if not sizes:
        return None
    room = None if context.limit is None or context.chat is None else context.limit - context.answer
    return Lengths(
        unit="words" if context.chat is None else "tokens",
        median=int(np.median(sizes)),
        high=int(np.quantile(sizes, 0.95, method="higher")),
        longest=max(sizes),
        cut=0 if room is None else sum(size > room for size in sizes),
    )


def solve(entry: Entry[EnvironmentFile], tasks: Sequence[Task], places: Sequence[str]) -> Iterator[RowFinding]:
    """Findings on rows whose solution does not solve the task.

    The environment's `reference` expert plays the solution that the row holds.
    """
    hooks = entry.hooks
    if not hooks.reference or hooks.expert is None:
        return
    env = hooks.make(entry.config)
    player = hooks.expert(env, hooks.reference, 0)
    failed: dict[str, list[str]] = {}
    try:
        for task, place in zip(tasks, places, strict=True):
            try:
                observation = env.reset(task)
                player.reset(task)
                solved, last = _played(env, player, observation)
            except Exception as error:  # noqa: BLE001  an environment may raise any exception for a wrong row
                solved, last = False, _sentence(error)
            if not solved:
                failed.setdefault(last, []).append(place)
    finally:
        env.close()
    for last, rows in failed.items():
        text = f"the solution in {listed(rows)} does not pass ({last}): mend the solution or its tests, or "
        yield RowFinding(kind="unanswerable", rows=tuple(rows), text=f"{text}remove the row")


def _played(env: Env, player: Any, observation: Observation) -> tuple[bool, str]:
    """(True if the player solved the task, a text that says how the episode ended).

    The text gives the reward and the observation of the last step, or says that the episode did not end.
    """
    for _ in range(MOST_STEPS):
        result = env.step(player.act(observation).action)
        observation = result.observation
        if result.terminated or result.truncated:
            solved = bool(result.info.get("success", result.reward > 0))
            why = result.info["result"] if "refused_checks" in result.info else observation.text
            said = " ".join(str(why).split())[:300]
            return solved, f"reward {result.reward:g}" + (f", the environment said: {said}" if said else "")
    return False, f"no end after {MOST_STEPS} steps"


def unanswerable(
    entry: Entry[EnvironmentFile], tasks: Sequence[Task], places: Sequence[str]
) -> tuple[list[RowFinding], str]:
    """(findings on rows that no agent can solve, a note).

    The note says why the environment cannot find such rows. It is empty if the environment can find them, or if its
    file has no hook `unanswerable`.
    """
    if entry.hooks.unanswerable is None:
        return [], ""
    try:
        why = entry.hooks.unanswerable(entry.config, tasks)
    except LookupError as error:
        return [], str(error.args[0])
    reasons: dict[str, list[str]] = {}
    for number, reason in why.items():
        reasons.setdefault(reason, []).append(places[number])
    found = [
        RowFinding(kind="unanswerable", rows=tuple(rows), text=f"{listed(rows)}: {reason}")
        for reason, rows in reasons.items()
    ]
    return found, ""


def _sentence(error: Exception) -> str:
    """The message of an exception, with the name of its type in front.

    For a ValueError or an EnvFault that has a message, the name is left out.
    """
    message = " ".join(str(error).split())[:200]
    if message and isinstance(error, ValueError | EnvFault):
        return message
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
