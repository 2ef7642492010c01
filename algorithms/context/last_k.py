"""One user message per step, rebuilt from the last k turns.

Formula: prompt of turn t = task + the last k (observation, action) pairs + observation of turn t.

Source: verl-agent's prompt structure (GiGPO, arXiv:2505.10978, appendix). A prompt of verl-agent consists of the role,
the task, the last k pairs of an observation and an action, the current observation and the admissible actions. Here
each environment writes its prompts, from the task, the last k pairs and the current observation.
"""

from pydantic import BaseModel, Field

from agentrl.env import Prompt
from agentrl.rollout import Ask, History, fresh


class Config(BaseModel, frozen=True, extra="forbid"):
    """k: number of past turns that a prompt shows; 0 shows none."""

    k: int = Field(2, ge=0)


def ask(config: Config, prompt: Prompt, history: History) -> Ask:
    """A prompt of one user message: the first observation on turn 0; later the last k turns and the observation."""
    if not history.past:
        return fresh(prompt, history, prompt.first(history.now))
    window = history.past[-config.k :] if config.k else []
    return fresh(prompt, history, prompt.window(history.first, window, len(history.past), history.now))
