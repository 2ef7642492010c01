"""One user message per step, rebuilt from the last k turns.

Formula: prompt of turn t = task + the last k (observation, action) pairs + observation of turn t.

Source: verl-agent's prompt structure (GiGPO, arXiv:2505.10978, appendix): role, task, the last k observation-action
pairs, the current observation, the admissible actions.
"""

from pydantic import BaseModel, Field

from agentrl.env import Prompt
from agentrl.rollout import Ask, History, fresh


class Config(BaseModel, frozen=True, extra="forbid"):
    """k: turns of history shown; 0 shows none."""

    k: int = Field(2, ge=0)


def ask(config: Config, prompt: Prompt, history: History) -> Ask:
    """Turn 0 opens a chat; every later step is one message with a window of the history."""
    if not history.past:
        return fresh(prompt, history, prompt.first(history.now))
    window = history.past[-config.k :] if config.k else []
    return fresh(prompt, history, prompt.window(history.first, window, len(history.past), history.now))
