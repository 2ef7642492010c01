"""What a program is, and what an agent of this process gets."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentrl.rollout.program.endpoint import Endpoint


def program_path() -> str:
    """The PATH of programs: `python` is the one that runs agentrl, also where its environment was not activated."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


@dataclass(frozen=True, kw_only=True)
class AgentTask:
    """What an agent of this process gets: `async def agent(task: AgentTask) -> str | dict`.

    Attributes:
        instruction: the task, as the environment says it.
        base_url, api_key: the endpoint, for any OpenAI client.
        seed: a seed of the episode's own.
    """

    instruction: str
    base_url: str
    api_key: str
    seed: int


@dataclass(eq=False)
class Program:
    """Who plays instead of prompts and context policies: a command, or a function of this process.

    Attributes:
        command: the program and its arguments, as in a shell; no shell runs it.
        agent: the function, with an AgentTask; a plain function runs in a thread.
        crash: what an episode is whose program fails after the model has answered: `lost` scores it 0 with the status
            TOOL_ERROR, as the answers may have caused it; `fault` makes it a fault of the environment.
        endpoint: where its requests go; None until the first episode.
    """

    command: str = ""
    agent: Callable[[AgentTask], Any] | None = None
    crash: str = "lost"
    endpoint: "Endpoint | None" = None

    def serve(self) -> "Endpoint":
        """The endpoint, listening, served from the running event loop."""
        from agentrl.rollout.program.endpoint import Endpoint

        if self.endpoint is None:
            self.endpoint = Endpoint("agentrl")
        self.endpoint.open()
        return self.endpoint

    def close(self) -> None:
        """Stop listening."""
        if self.endpoint is not None:
            self.endpoint.close()
