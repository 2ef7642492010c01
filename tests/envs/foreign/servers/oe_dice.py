"""An OpenEnv server of these tests that takes no seed: each episode begins with another throw."""

import secrets
import sys

import uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class Move(Action):
    left: int = Field(ge=0)
    right: int = Field(ge=0)


class Throw(Observation):
    throw: int = 0


class Dice(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self) -> Throw:
        return Throw(throw=secrets.randbelow(1 << 30))

    def step(self, action: Move, timeout_s: float | None = None) -> Throw:
        return Throw(throw=action.left + action.right, reward=0.5, done=True)

    @property
    def state(self) -> State:
        return State()


if __name__ == "__main__":
    port, sessions = int(sys.argv[1]), int(sys.argv[2])
    made = create_app(Dice, Move, Throw, env_name="dice", max_concurrent_envs=sessions)
    uvicorn.run(made, host="127.0.0.1", port=port, log_level="warning")
