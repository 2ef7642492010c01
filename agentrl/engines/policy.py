"""What a policy is: anything that answers a turn."""

from typing import Protocol

from agentrl.types import Generation, Request


class Sessions(Protocol):
    """What a policy or an actor may do when a session begins, waits or ends; here nothing.

    A session is one episode's use of a policy: its requests carry the session's number.
    """

    # Each `return` makes its method a default: mypy takes a protocol's method without a statement for abstract.

    def open(self, session: int) -> None:
        """An episode begins; a deterministic engine waits for all open sessions before it runs a batch."""
        return

    def fork(self, session: int, of: int, tokens: int) -> None:
        """The opened session continues, as a branch, the first `tokens` tokens of session `of`, which may be open or
        released: a policy with a cache need not compute their keys and values again."""
        return

    def rest(self, session: int) -> None:
        """The session waits for agents that it called, perhaps of the same policy, and asks nothing meanwhile."""
        return

    def wake(self, session: int) -> None:
        """The called agents have answered: the session will ask again."""
        return

    def release(self, session: int) -> None:
        """The episode is over: forget its KV cache."""
        return


class Policy(Sessions, Protocol):
    """Answers turns; many `generate` calls run at once and the policy batches whatever is ready.

    A policy with a chat `tokenizer` receives and returns token ids; one without works on messages and text.
    """

    name: str

    async def generate(self, request: Request) -> Generation:
        """One answer. Raises only for faults of the engine; a limit is told in `Generation.finish`."""
        ...

    def describe(self) -> dict[str, object]:
        """What a report must say about the policy: model, sampling settings, actions=free|admissible."""
        ...


class Wordless(Sessions):
    """Base of policies without a model: sessions need nothing, and the report gives the name alone."""

    name = "policy"

    def describe(self) -> dict[str, object]:
        """Its name."""
        return {"policy": self.name}
