"""The whole chat, append-only: each turn continues the tokens of the last one."""

from pydantic import BaseModel, Field

from agentrl.context import Ask, History, appended, continued, fresh
from agentrl.prompt import Prompt, continues


class Config(BaseModel, frozen=True, extra="forbid"):
    """observation_tokens: a later observation is cut to its first so many tokens; None never cuts."""

    observation_tokens: int | None = Field(None, ge=1)


def ask(config: Config, prompt: Prompt, history: History) -> Ask:
    """Turn 0 opens the chat; later turns add one user message, or go on inside the assistant's turn where the prompt
    says so."""
    if not history.past:
        return fresh(prompt, history, prompt.first(history.now))
    text, most = prompt.turn(history.now), config.observation_tokens
    if continues(prompt):
        return appended(history, text, most)
    return continued(history, text if most is None or history.chat is None else history.chat.clip(text, most))
