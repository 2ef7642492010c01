"""The protocols of a policy, which generates answers, and of its sessions; and the counts of its answers."""

from dataclasses import dataclass
from typing import Protocol

from agentrl.types import Generation, Request


class Sessions(Protocol):
    """Methods that tell a policy or an actor that a session begins, waits or ends. By default they do nothing.

    A session is the use of a policy by one episode: the requests of the episode have the session's number. If a program
    plays the episode, it may send a request before an earlier one is answered. Such a request gets an extra session.
    """

    # Each `return` makes its method a default, because mypy takes a protocol's method without a statement as abstract.

    def open(self, session: int) -> None:
        """An episode begins.

        A deterministic engine runs no batch before every open session waits for an answer or rests.
        """
        return

    def fork(self, session: int, of: int, tokens: int) -> None:
        """The session, which is open, is a branch: it continues the first `tokens` tokens of session `of`.

        Session `of` may be open or released. A policy with a cache need not compute the keys and values of these tokens
        again.
        """
        return

    def rest(self, session: int) -> None:
        """The session sends no request for now: it waits for called agents, or for the program's other requests.

        The called agents may use the same policy, so a deterministic engine must not wait for this session.
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

        An error is raised only for a fault or a wrong setting of the engine.
        """
        ...

    def describe(self) -> dict[str, object]:
        """Description of the policy for reports, such as its model, its sampling settings and the option `actions`."""
        ...


@dataclass
class AnswerCounts:
    """Counts since an engine was made. Each engine adds its own.

    Attributes:
        answers: finished answers.
        prompt_tokens: tokens of all prompts.
        sampled_tokens: answer tokens that were sampled.
        forced_tokens: answer tokens that had no alternative.
    """

    answers: int = 0
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    forced_tokens: int = 0

    def add(self, *, prompt: int, drawn: int, forced: int) -> None:
        """Count an answer: tokens of its prompt, all its tokens, and its tokens without an alternative."""
        self.answers += 1
        self.prompt_tokens += prompt
        self.sampled_tokens += drawn - forced
        self.forced_tokens += forced


class Wordless(Sessions):
    """Base of policies without sessions: the methods of `Sessions` do nothing, and `describe` returns only the name."""

    name = "policy"

    def describe(self) -> dict[str, object]:
        """The name of the policy."""
        return {"policy": self.name}
