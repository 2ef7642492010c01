"""An OpenEnv server of these tests whose actions are calls of MCP tools, by the package's own MCPEnvironment."""

import sys
from typing import Any

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State


class Ledger(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server = FastMCP("ledger")
        self.total, self.goal, self._state = 0, 0, State()

        @server.tool()
        def add(amount: int) -> str:
            """Add an amount to the account."""
            if amount < 0:
                raise ValueError("no amount below 0")
            self.total += amount
            return f"The account holds {self.total}."

        super().__init__(server)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Observation:
        self.total, self.goal, self._state = 0, (seed or 0) % 7 + 3, State()
        return Observation(metadata={"message": f"Bring the account to {self.goal}."})

    def _step_impl(self, action: Action, timeout_s: float | None = None, **options: Any) -> Observation:
        return Observation(metadata={"error": "only tools"})

    def _scored(self, observation: Any) -> Any:
        if isinstance(observation, CallToolObservation):
            self._state.step_count += 1
            observation.done = self.total >= self.goal
            observation.reward = float(self.total == self.goal)
        return observation

    def step(self, action: Action, timeout_s: float | None = None, **options: Any) -> Observation:
        return self._scored(super().step(action, timeout_s, **options))

    async def step_async(self, action: Action, timeout_s: float | None = None, **options: Any) -> Observation:
        return self._scored(await super().step_async(action, timeout_s, **options))

    @property
    def state(self) -> State:
        return self._state


if __name__ == "__main__":
    port, sessions = int(sys.argv[1]), int(sys.argv[2])
    made = create_app(Ledger, CallToolAction, CallToolObservation, env_name="ledger", max_concurrent_envs=sessions)
    uvicorn.run(made, host="127.0.0.1", port=port, log_level="warning")
