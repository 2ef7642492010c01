"""Programs as agents: a user's program plays a task through an OpenAI-compatible endpoint, unchanged.

Everything the program asks the endpoint becomes a step of the episode: with the exact token ids that were sampled,
their log-probs, and the context that each prompt continues.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentrl.rollout.program.definition import AgentTask, Program

if TYPE_CHECKING:
    from agentrl.rollout.program.endpoint import Endpoint
    from agentrl.rollout.program.episode import ProgramEpisode
    from agentrl.rollout.program.recorder import Recorder

__all__ = ["AgentTask", "Endpoint", "Program", "ProgramEpisode", "Recorder"]

_HOME = {
    "Endpoint": "agentrl.rollout.program.endpoint",
    "ProgramEpisode": "agentrl.rollout.program.episode",
    "Recorder": "agentrl.rollout.program.recorder",
}


def __getattr__(name: str) -> Any:
    """A public name, its module imported when it is first asked for: most runs need no HTTP server."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
