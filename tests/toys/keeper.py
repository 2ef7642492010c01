"""A tool environment whose MCP server is given a key, and tells it to everybody."""

import sys
from pathlib import Path
from typing import Any

from agentrl.env import Move
from agentrl.tool import action
from agentrl.tool_env import environment
from agentrl.types import Observation, Task

SERVER = Path(__file__).parents[1] / "tools" / "raw_mcp_server.py"


EXPERTS = ("expert",)


class Asks:
    """Calls the tool once, then answers."""

    def reset(self, task: Task) -> None:
        self.turns = 0

    def act(self, observation: Observation) -> Move:
        self.turns += 1
        return Move(action.call("x", a=1) if self.turns == 1 else action.answer("yes"))


def expert(env: Any, name: str, seed: int) -> Asks:
    return Asks()


def right(answer: str) -> float:
    return float(answer == "yes")


Config, make, tasks, prompt = environment(
    tools=[{"name": "mcp", "command": [sys.executable, str(SERVER), "leak"], "start_s": 120.0}],
    reward=right,
    rows=[{"prompt": f"Call x with {number}."} for number in range(40)],
)
