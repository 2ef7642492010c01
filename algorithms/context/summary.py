"""The whole chat until it is too long; then a summary by the model replaces it.

Formula: prompt = task + last summary + the turns since; a summary is asked for where a prompt would exceed
`max_tokens`.

Source: SUPO, arXiv:2510.06727. When the prompt would be longer than the working context, the model is asked for a
summary of it; that answer is a step like any other, trained with its rollout's credit (`credit.name=multi_conversation`
gives every part its rollout's advantage). The next prompt is written anew from the task, the summary and the current
observation, and grows again. SUPO leaves rollouts that a limit ended out of the loss and counts them in the statistics:
`update.train_unfinished=false`.
"""

from collections.abc import Sequence
from dataclasses import replace

from pydantic import BaseModel, Field

from agentrl.algorithms.context import full
from agentrl.env import Prompt
from agentrl.rollout import Ask, History, continued, fresh
from agentrl.types import Rewrite


class Config(BaseModel, frozen=True, extra="forbid"):
    """max_tokens: most tokens of a prompt; a longer prompt is summarised first. max_summaries: most
    summaries per episode; after them the chat grows until the model's context ends the episode. summary_tokens: most
    tokens of a summary. instruction: the request for a summary, at the end of the prompt. heading: the line above the
    summary. observation_tokens: as in `full`."""

    max_tokens: int = Field(2048, ge=1)
    max_summaries: int = Field(8, ge=0)
    summary_tokens: int = Field(256, ge=1)
    instruction: str = (
        "The conversation is about to be forgotten. Write down all that is needed to go on: what was asked, what was "
        "found, what is left to do."
    )
    heading: str = "What happened before, in your own words:"
    observation_tokens: int | None = Field(None, ge=1)


def ask(config: Config, prompt: Prompt, history: History) -> Ask:
    """The chat since the last summary, or the request for the next one."""
    chat = _chat(config, prompt, history)
    size = len(chat.token_ids) if history.chat is not None else sum(len(m.content.split()) for m in chat.messages)
    turns = len(history.past) - history.since
    if size <= config.max_tokens or not turns or history.rewrites >= config.max_summaries:
        return chat
    forgotten = [*(past.observation.text for past in history.past[history.since :]), history.now.text]
    words = f"{prompt.turn(history.now)}\n{config.instruction}"
    rewrite = Rewrite(history.memory, "\n".join(forgotten))
    return continued(history, words)._replace(rewrites=rewrite, max_tokens=config.summary_tokens)


def _chat(config: Config, prompt: Prompt, history: History) -> Ask:
    if not history.rewrites or len(history.past) > history.since:
        return full.ask(full.Config(observation_tokens=config.observation_tokens), prompt, history)
    # The first observation states the task. If it states the task apart (`first.task`), the summary already covers the
    # rest of its text, so the present observation takes the place of that text.
    opening = replace(history.first, text=history.now.text) if history.first.task else history.first
    now = [] if history.first.task else [prompt.turn(history.now)]
    parts = [prompt.first(replace(opening, actions=history.now.actions)), config.heading, history.memory, *now]
    return fresh(prompt, history, "\n".join(parts))


def rewritten(config: Config, history: History, text: str) -> None:
    """Replace the chat by its summary."""
    history.memory, history.since, history.rewrites = text, len(history.past), history.rewrites + 1


def words(config: Config) -> Sequence[str]:
    """The words that this context adds to prompts, for a new tokenizer."""
    return (config.instruction, config.heading)
