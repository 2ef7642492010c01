"""Environments in this process, called directly."""

from collections.abc import Callable
from typing import Any

from agentrl.env.limits import START_S
from agentrl.env.pool import Slot
from agentrl.env.protocol import Env, Move, Verdict
from agentrl.types import Action, Observation, Rewrite, StepResult, Task


class InlineHandle:
    """A slot in this process."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot

    async def reset(self, task: Task) -> Observation:
        """See Handle."""
        return self.slot.reset(task)

    async def step(self, action: Action) -> StepResult:
        """See Handle."""
        return self.slot.step(action)

    async def act(self, expert: str, seed: int) -> Move:
        """See Handle."""
        return self.slot.act(expert, seed)

    async def cut(self) -> Verdict | None:
        """See Handle."""
        return self.slot.cut()

    async def write(self, expert: str, seed: int, rewrite: Rewrite) -> Move:
        """See Handle."""
        return self.slot.write(expert, seed, rewrite)

    async def snapshot(self) -> Any:
        """See Handle."""
        return self.slot.snapshot()

    async def restore(self, task: Task, snapshot: Any) -> Observation | None:
        """See Handle."""
        return self.slot.restore(task, snapshot)


class InlinePool:
    """Instances in this process, reused between episodes."""

    def __init__(
        self,
        make: Callable[[], Env],
        expert: Callable[[Env, str, int], Any] | None = None,
        timeout_s: float = 60.0,
        start_s: float = START_S,
        output_chars: int | None = None,
    ) -> None:
        """See Slot."""
        self._build = (make, expert, timeout_s, start_s, output_chars)
        self._idle: list[InlineHandle] = []

    def acquire(self) -> InlineHandle:
        """See Pool."""
        return self._idle.pop() if self._idle else InlineHandle(Slot(*self._build))

    def release(self, handle: InlineHandle, *, broken: bool) -> None:
        """See Pool."""
        if broken:
            handle.slot.close()
        else:
            self._idle.append(handle)

    def close(self) -> None:
        """See Pool."""
        for handle in self._idle:
            handle.slot.close()
        self._idle.clear()
