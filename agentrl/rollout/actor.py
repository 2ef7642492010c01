"""Who answers in an episode."""

from typing import Any, Protocol

from agentrl.chat import Chat
from agentrl.env import Handle
from agentrl.types import Generation, Request


class Actor(Protocol):
    """Who answers: a policy, or an expert that sits beside the environment."""

    name: str
    chat: Chat | None
    context_limit: int | None  # tokens of prompt and answer together

    async def answer(self, request: Request, handle: Handle) -> Generation:
        """One turn."""
        ...

    def open(self, session: int) -> None:
        """See Policy."""
        ...

    def fork(self, session: int, of: int, tokens: int) -> None:
        """See Policy; asked for on branches only."""
        ...

    def rest(self, session: int) -> None:
        """The session waits for other agents and asks nothing meanwhile."""
        ...

    def wake(self, session: int) -> None:
        """It goes on."""
        ...

    def release(self, session: int) -> None:
        """See Policy."""
        ...


class PolicyActor:
    """A policy as an actor."""

    def __init__(self, policy: Any, chat: Chat | None, context_limit: int | None) -> None:
        self.policy, self.chat, self.context_limit = policy, chat, context_limit
        self.name: str = policy.name

    async def answer(self, request: Request, handle: Handle) -> Generation:
        """See Actor."""
        generation: Generation = await self.policy.generate(request)
        return generation

    def open(self, session: int) -> None:
        """See Actor."""
        self.policy.open(session)

    def fork(self, session: int, of: int, tokens: int) -> None:
        """See Actor; a policy that keeps no cache has no `fork`."""
        if hasattr(self.policy, "fork"):
            self.policy.fork(session, of, tokens)

    def rest(self, session: int) -> None:
        """See Actor; a policy that waits for no session has no `rest`."""
        if hasattr(self.policy, "rest"):
            self.policy.rest(session)

    def wake(self, session: int) -> None:
        """See Actor."""
        if hasattr(self.policy, "wake"):
            self.policy.wake(session)

    def release(self, session: int) -> None:
        """See Actor."""
        self.policy.release(session)
