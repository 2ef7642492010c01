"""The whole chat until it is too long; then a summary by the model replaces it.

Formula: prompt = task + last summary + the turns since this summary; if a prompt would have more than `max_tokens`
tokens, the model is asked for a new summary before its next answer.

Source: SUPO, arXiv:2510.06727. If the prompt would be longer than the working context (`max_tokens`), the model is
asked for a summary of the chat. The summary is a step like any other and is trained with the advantage of its rollout
(`credit.name=multi_conversation` gives this advantage to every step of the rollout). The next prompt consists of the
task, the summary and the current observation; later turns are added to it. SUPO does not train rollouts
that a limit ended, but counts them in the statistics of the credit method (`update.train_unfinished=false`).
"""

from collections.abc import Sequence
from dataclasses import replace

from pydantic import BaseModel, Field

from agentrl.algorithms.context import full
from agentrl.env import Prompt
from agentrl.rollout import Ask, History, continued, fresh
from agentrl.types import Rewrite


class Config(BaseModel, frozen=True, extra="forbid"):
    """max_tokens: number of tokens of a prompt (of words, for a policy without a tokenizer) above which the model is
    asked for a summary before its next answer. max_summaries: largest number of summaries per episode; after the last
    one the chat grows until a limit ends the episode. summary_tokens: largest number of tokens of a summary.
    instruction: the request for a summary, at the end of the prompt. heading: the line above the summary in the next
    prompt. observation_tokens: largest number of tokens of an observation after the first turn; a longer observation
    loses its end. With None, or a policy without a tokenizer, there is no limit. The observation in a request for a
    summary, and in the prompt after this summary, is not cut."""

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
    # The prompt of turn 0 states the task. If the first observation has the task in a separate field (`first.task`),
    # the summary already covers that text, and the text of the current observation replaces it.
    opening = replace(history.first, text=history.now.text) if history.first.task else history.first
    now = [] if history.first.task else [prompt.turn(history.now)]
    parts = [prompt.first(replace(opening, actions=history.now.actions)), config.heading, history.memory, *now]
    return fresh(prompt, history, "\n".join(parts))


def rewritten(config: Config, history: History, text: str) -> None:
    """Store the summary, which replaces the chat before the current observation."""
    history.memory, history.since, history.rewrites = text, len(history.past), history.rewrites + 1


def words(config: Config) -> Sequence[str]:
    """The words that this context adds to prompts, for a new tokenizer."""
    return (config.instruction, config.heading)
