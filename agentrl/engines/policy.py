"""What a policy is: anything that answers a turn."""

from typing import Protocol

from agentrl.types import Generation, Request


class Policy(Protocol):
    """Answers turns; many `generate` calls run at once and the policy batches whatever is ready.

    A policy with a chat `tokenizer` receives and returns token ids; one without works on messages and text. One that
    keeps a cache may also offer `fork(session, of, tokens)`, called after `open` on branches: the session goes on from
    the first `tokens` tokens of session `of`, open or released, whose keys and values need not be computed again. One
    that waits for all open sessions before it runs a batch offers `rest(session)` and `wake(session)`: in between the
    session waits for an agent it called, which may be of the same policy.
    """

    name: str

    async def generate(self, request: Request) -> Generation:
        """One answer. Raises only for faults of the engine; a limit is told in `Generation.finish`."""
        ...

    def open(self, session: int) -> None:
        """A rollout begins (a deterministic engine waits for all open sessions before it runs a batch)."""
        ...

    def release(self, session: int) -> None:
        """The rollout is over: forget its KV cache."""
        ...

    def describe(self) -> dict[str, object]:
        """What a report must say about the policy: model, sampling settings, actions=free|admissible."""
        ...


class Wordless:
    """What a policy without a model shares: nothing to open, nothing to keep."""

    name = "policy"

    def open(self, session: int) -> None:
        """Nothing to do."""

    def fork(self, session: int, of: int, tokens: int) -> None:
        """Nothing to do."""

    def rest(self, session: int) -> None:
        """Nothing to do."""

    def wake(self, session: int) -> None:
        """Nothing to do."""

    def release(self, session: int) -> None:
        """Nothing to do."""

    def describe(self) -> dict[str, object]:
        """Its name."""
        return {"policy": self.name}
