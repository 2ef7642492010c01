"""Lets a score ask the policy of an agent of the recipe, for example to judge answers."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.chat import Chat
from agentrl.engines import Policy
from agentrl.types import Generation, Message, Observation, Request

_sessions = itertools.count(1 << 40)  # above the session numbers of rollouts


class EngineClient:
    """Generates answers to the requests of a score, with the engine of an agent's policy.

    Args:
        engine: the engine, with the current weights.
        chat: the chat of the policy's tokenizer.
        key: everything on which an answer depends beside the messages: name of the agent, and version of the weights
            (0 if the weights are not trained).
    """

    def __init__(self, engine: Policy, chat: Chat, key: Mapping[str, Any]) -> None:
        self._engine, self._chat, self.key = engine, chat, key

    async def reply(self, messages: Sequence[Message], max_tokens: int, noise_key: tuple[int, ...]) -> Generation:
        """One answer, in a session of its own."""
        session = next(_sessions)
        request = Request(
            session=session,
            token_ids=self._chat.start(messages),
            messages=messages,
            observation=Observation(text=""),
            max_tokens=max_tokens,
            noise_key=noise_key,
        )
        self._engine.open(session)
        try:
            return await self._engine.generate(request)
        finally:
            self._engine.release(session)
