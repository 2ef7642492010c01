"""An OpenEnv server of these tests: guess a number that the seed draws. Some guesses break things."""

import random
import sys
import time
from typing import Any

import uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class Guess(Action):
    number: int
    why: str = ""


class Told(Observation):
    text: str = ""
    actions: list[int] = Field(default_factory=list)


class Secret(State):
    low: int = 0
    high: int = 9


class GuessEnv(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.number, self._state = 0, Secret()

    def reset(self, seed: int | None = None, episode_id: str | None = None, top: int = 9) -> Told:
        self.number, self._state = random.Random(seed).randint(0, top), Secret(high=top)
        return self.told(f"Guess a number from 0 to {top}.")

    def told(self, text: str, **more: Any) -> Told:
        return Told(text=text, actions=list(range(self._state.low, self._state.high + 1)), **more)

    def step(self, action: Guess, timeout_s: float | None = None, **options: Any) -> Told:
        self._state.step_count += 1
        if action.why == "crash":
            raise OSError("the disk is gone")
        if action.why == "sleep":
            time.sleep(20)
        if action.number == self.number:
            return self.told("Right.", reward=1.0, done=True, metadata={"success": True})
        if action.number < self.number:
            self._state.low = max(self._state.low, action.number + 1)
            return self.told("Higher.", reward=-0.1)
        self._state.high = min(self._state.high, action.number - 1)
        return self.told("Lower.", reward=-0.1)

    @property
    def state(self) -> Secret:
        return self._state


if __name__ == "__main__":
    port, sessions = int(sys.argv[1]), int(sys.argv[2])
    uvicorn.run(
        create_app(GuessEnv, Guess, Told, env_name="guess", max_concurrent_envs=sessions, state_cls=Secret),
        host="127.0.0.1",
        port=port,
        log_level="warning",
    )
