"""The whole chat, append-only: each turn continues the tokens of the last one."""

from pydantic import BaseModel

from agentrl.context import Ask, History, continued, fresh
from agentrl.prompt import Prompt


class Config(BaseModel, frozen=True, extra="forbid"):
    """No options."""


def ask(config: Config, prompt: Prompt, history: History) -> Ask:
    """Turn 0 opens the chat; later turns add one user message."""
    if not history.past:
        return fresh(prompt, history, prompt.first(history.now))
    return continued(history, prompt.turn(history.now))
