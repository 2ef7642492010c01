"""Measures the first prompts of a user's rows before the first rollout, and refuses rows that do not fit.

`agentrl train`, `agentrl train --dry-run` and `agentrl doctor` call this check, so they agree. Rows are measured from
the longest text on. The check ends after `BLOCK` rows in a row that fit, and at the latest after `MOST` rows, so it
takes seconds for any number of rows. During the run, a task whose first prompt does not fit is left out.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import NamedTuple

from agentrl.chat import Chat, date_of
from agentrl.config import Entry
from agentrl.env import EnvironmentFile, clipped, deadline, prompt_of
from agentrl.rollout import Ask, first_prompt
from agentrl.settings import Settings
from agentrl.tool_env import RowTasks, program_fit
from agentrl.types import EnvFault, Observation, Task

BLOCK = 100  # rows that fit, one after the other, after which shorter rows are not measured
MOST = 2000  # largest number of rows that are measured
SCANNED = 50_000  # largest number of rows whose texts are compared
RESET_S = 30.0  # seconds that all measurements of one environment may take
UNREAD = "they are long, and the tokenizer of the model cannot be read or made here"
TEMPLATE_BYTES = 4096  # what a chat template may add to the messages and the schemas of the tools


class TooLong(NamedTuple):
    """The rows whose first prompt leaves no token for an answer.

    Attributes:
        rows: number of these rows among the measured rows.
        whole: were all rows with a longer text than the shortest measured row found to be too long?
        tokens: length of the longest first prompt.
        task: key of its task.
    """

    rows: int
    whole: bool
    tokens: int
    task: str


def rows_known(entry: Entry[EnvironmentFile], tasks: Sequence[Task]) -> bool:
    """Are the tasks rows of a user, so that their first prompts can be measured before the first rollout?"""
    own = entry.hooks.module.startswith("agentrl.envs.")
    given = bool(getattr(entry.config, entry.hooks.rows_option, ""))
    return given or (isinstance(tasks, RowTasks) and not own)


def first_prompt_notes(
    settings: Settings, tasks: Sequence[Task], held_out: Sequence[Task], chat: Callable[[], Chat | None]
) -> list[str]:
    """Notes on rows that will be left out, because their first prompts leave no token for an answer.

    Args:
        settings: the run's settings.
        tasks, held_out: the training tasks and the held-out tasks.
        chat: gives the tokenizer of the main agent's policy; None if it cannot be read. It is called only if a prompt
            is so long that it may not fit.

    Raises:
        ValueError: no row fits, or more than `limits.fault_share` of the training rows or of the held-out rows do not.
    """
    notes = []
    for entry, rows, name in ((settings.env, tasks, "training"), (settings.eval_env, held_out, "held-out")):
        if not rows_known(entry, rows):
            continue
        found = _too_long(settings, entry, rows, chat)
        if found is None:
            notes.append(f"the first prompts of the {name} rows are measured when the run begins: {UNREAD}")
            continue
        if not found.rows:
            continue
        share = settings.tables.limits.fault_share
        more = "" if found.whole else "at least "
        text = (
            f"the first prompts of {more}{found.rows} of {len(rows)} {name} rows leave no token for an answer: that "
            f"of task {found.task} has {found.tokens} tokens, and engine.max_context is {_limit(settings)}"
        )
        if found.rows == len(rows) or found.rows > share * len(rows):
            raise ValueError(
                f"{text}; the largest share is {share:.0%} (limits.fault_share): raise engine.max_context, or remove "
                "the rows that agentrl check lists"
            )
        notes.append(f"{text}; these tasks are left out")
    return notes


def model_chat(settings: Settings) -> Chat | None:
    """The tokenizer of the main agent's model with the run's template, if it can be read now; else None."""
    from agentrl.model import load_tokenizer, served_tokenizer

    model = settings.policies[next(iter(settings.agents.values())).policy].model
    if model.new is not None:  # its tokenizer is made when the run begins
        return None
    try:
        if settings.tables.learner.remote:
            tokenizer = served_tokenizer(model, ask_hub=False)
        else:
            tokenizer = load_tokenizer(model.path, model)
        return Chat(tokenizer, date_of(settings.tables.run.date))
    except (ValueError, OSError):
        return None


def program_notes(settings: Settings) -> list[str]:
    """Remarks on the chat template of the model behind a program; empty without a program or a tokenizer."""
    if next(iter(settings.agents.values())).program is None:
        return []
    chat = model_chat(settings)
    return [] if chat is None else program_fit(chat).splitlines()


def _limit(settings: Settings) -> int | None:
    """Largest number of tokens of a prompt and its answer together; None for an engine without this option."""
    limit = getattr(settings.engine.config, "max_context", None)
    return None if limit is None else int(limit)


def _too_long(
    settings: Settings, entry: Entry[EnvironmentFile], tasks: Sequence[Task], chat: Callable[[], Chat | None]
) -> TooLong | None:
    """What the measurement found; None if there is no tokenizer and a row may be too long.

    An environment that fails, or takes too long, ends the measurement; the rollouts report its fault. An error of the
    prompt or of the chat template is not caught.
    """
    limit, main = _limit(settings), next(iter(settings.agents.values()))
    count, longest, fitting, measured = 0, (0, ""), 0, 0
    if limit is None or main.program is not None:
        return TooLong(count, True, *longest)
    prompt, speaks = prompt_of(entry), None
    try:
        with deadline(RESET_S):
            for task, shown in _begun(entry, tasks):
                observation = clipped(shown, settings.tables.limits.output_chars)
                tokens = 0
                if _bytes(first_prompt(settings.context, prompt, None, observation), observation) >= limit:
                    speaks = speaks or chat()
                    if speaks is None:
                        return None
                    tokens = len(first_prompt(settings.context, prompt, speaks, observation).token_ids)
                long = tokens >= limit
                measured, fitting = measured + 1, 0 if long else fitting + 1
                count, longest = count + long, max(longest, (tokens, task.key)) if long else longest
                if fitting >= BLOCK:
                    break
    except EnvFault:  # the deadline
        pass
    return TooLong(count, fitting >= BLOCK or measured == len(tasks), *longest)


def _bytes(ask: Ask, observation: Observation) -> int:
    """A number of bytes that is at least the number of tokens of a prompt."""
    texts = sum(len(message.content.encode(errors="replace")) for message in ask.messages)
    return texts + 2 * len(json.dumps(observation.tools, default=str)) + TEMPLATE_BYTES


def _begun(entry: Entry[EnvironmentFile], tasks: Sequence[Task]) -> Iterator[tuple[Task, Observation]]:
    """The tasks with the longest texts first, each with the observation after its reset, up to a reset that fails."""
    texts = [(len(str(tasks[i].params)), i) for i in range(min(len(tasks), SCANNED))]
    with suppress(Exception), closing(entry.hooks.make(entry.config)) as env:  # an environment may raise anything
        for _, i in sorted(texts, key=lambda one: (-one[0], one[1]))[:MOST]:
            yield tasks[i], env.reset(tasks[i])
