"""A pool of environments that run in this process and are called directly."""

from collections.abc import Callable
from typing import Any

from agentrl.env.limits import START_S
from agentrl.env.pool import Handle, Pool, Slot
from agentrl.env.protocol import Env


class InlineHandle(Handle):
    """One instance in this process."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot

    async def call(self, method: str, *args: Any) -> Any:
        return getattr(self.slot, method)(*args)


class InlinePool(Pool):
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
        return self._idle.pop() if self._idle else InlineHandle(Slot(*self._build))

    def release(self, handle: InlineHandle, *, broken: bool) -> None:
        if broken:
            handle.slot.close()
        else:
            self._idle.append(handle)

    def close(self) -> None:
        for handle in self._idle:
            handle.slot.close()
        self._idle.clear()
