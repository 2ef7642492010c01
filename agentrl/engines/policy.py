"""The protocols of a policy, which generates answers, and of its sessions."""

from typing import Protocol

from agentrl.types import Generation, Request


class Sessions(Protocol):
    """Methods by which a policy or an actor hears that a session begins, waits or ends. By default they do nothing.

    A session is one episode's use of a policy: the requests of the episode carry the session's number. If a program
    plays the episode, a request that comes while another is in flight gets a session of its own.
    """

    # Each `return` makes its method a default: to mypy, a protocol's method without a statement is abstract.

    def open(self, session: int) -> None:
        """An episode begins.

        A deterministic engine runs no batch before every open session waits for an answer or rests.
        """
        return

    def fork(self, session: int, of: int, tokens: int) -> None:
        """The open session is a branch: it continues the first `tokens` tokens of session `of`.

        Session `of` may be open or released. A policy with a cache need not compute the keys and values of these tokens
        again.
        """
        return

    def rest(self, session: int) -> None:
        """The session sends no request for now: it waits for called agents, or for other requests of its program.

        The called agents may use the same policy.
        """
        return

    def wake(self, session: int) -> None:
        """The session no longer waits: it will send requests again."""
        return

    def release(self, session: int) -> None:
        """The episode is over: the session sends no more requests, and its KV cache is no longer needed."""
        return


class Policy(Sessions, Protocol):
    """Generates answers. Many `generate` calls run at once, so that an engine can batch the requests that are ready.

    A policy with a chat `tokenizer` gets and returns token ids; a policy without one works on messages and text.
    """

    name: str

    async def generate(self, request: Request) -> Generation:
        """The answer to a request; `Generation.finish` says whether a limit ended it.

        Raises only for faults and wrong settings of the engine.
        """
        ...

    def describe(self) -> dict[str, object]:
        """Description of the policy for reports, such as its model, its sampling settings and the option `actions`."""
        ...


class Wordless(Sessions):
    """Base of policies without sessions: the methods of `Sessions` do nothing, and `describe` returns only the name."""

    name = "policy"

    def describe(self) -> dict[str, object]:
        """The name of the policy."""
        return {"policy": self.name}
