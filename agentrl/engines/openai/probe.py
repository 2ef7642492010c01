"""The first short request to an endpoint, which shows whether it answers, and whether it takes tools."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from agentrl.engines.openai.failure import PAGE_CHARS, Failure, failure_of, one_line_of
from agentrl.engines.openai.wire import Unreadable, read_completion
from agentrl.types import Message, Observation, Request

PROBE_TOKENS = 32  # largest number of tokens of the answer
# Errors of httpx for a connection that broke after it had been made.
BROKEN_OFF = ("RemoteProtocolError", "ReadError", "WriteError", "CloseError")


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Sends the request.

    Attributes:
        name: name of the policy.
        url: address of the server.
        openai: the library.
        send: sends a request; returns the library's raw response.
        scrub: hides secrets in a text.
        limit_s: longest time in seconds for the answer, see `Endpoint.probe_s`.
        again_s: seconds before the request is sent again, after a lost connection or a status of 500 or above.
    """

    name: str
    url: str
    openai: ModuleType
    send: Callable[[Request], Any]
    scrub: Callable[[str], str]
    limit_s: float
    again_s: float

    def ask(self, tools: Sequence[Mapping[str, Any]]) -> Failure | None:
        """Send the request; returns why there is no answer, None if the endpoint gave an answer.

        A server that says it loads its model is asked again until `limit_s` has passed.

        Raises:
            ValueError: no server answers at the address in time, or the answer is no JSON.
        """
        request = Request(
            session=0,
            token_ids=(),  # type: ignore[arg-type]  # no tokenizer takes part
            messages=[Message("user", "Reply with the word ready.")],
            observation=Observation(text=""),
            max_tokens=PROBE_TOKENS,
            tools=tools,
        )
        ends_at, again = time.monotonic() + self.limit_s, True
        while True:
            try:
                raw = self.send(request)
                self._refuse_page(raw.headers.get("content-type", ""), raw.text)
                with suppress(RecursionError):
                    read_completion(raw.parse())
                return None
            except self.openai.APITimeoutError:
                raise ValueError(
                    f"{self.name} at {self.url} gave no answer to a first short request in {self.limit_s:g} s "
                    "(endpoint.probe_s): see whether the server works, or raise the limit"
                ) from None
            except self.openai.APIConnectionError as error:
                if not again:
                    raise ValueError(self._unreached(error.__cause__ or error)) from None
            except (self.openai.APIError, Unreadable) as error:
                failure = failure_of(error, self.openai)
                if failure.kind in ("malformed", "length"):  # the model wrote a call, or thought too long: it works
                    return None
                loads = failure.kind == "busy" and time.monotonic() + self.again_s < ends_at
                if not loads and not (again and _fails(failure) and not (tools and names_tools(failure))):
                    return failure
            again = False
            time.sleep(self.again_s)

    def works(self, failure: Failure) -> bool:
        """Does the endpoint work, although it gave no answer?

        Raises:
            ValueError: the server failed twice, its answer cannot be read, or the request is too long for it.
        """
        why = self.scrub(failure.why)
        if _fails(failure) and failure.kind not in ("context", "filtered"):
            raise ValueError(
                f"{self.name} at {self.url} failed twice at a first short request: {why}; read the server's log, or "
                "leave this request out with endpoint.probe_s=0"
            )
        if failure.kind == "odd":
            raise ValueError(f"the first answer of {self.url} cannot be read: {why}; read the server's log")
        if failure.kind == "context":
            raise ValueError(
                f"{self.name} at {self.url} calls a first short request too long: {why}; serve the model with a longer "
                "context, or see whether tools alone fill it"
            )
        return failure.passes or failure.kind == "filtered"

    def _unreached(self, cause: BaseException) -> str:
        """The error message about a server that could not be reached, or whose answer broke off."""
        why = self.scrub(one_line_of(cause))
        if type(cause).__name__ in BROKEN_OFF:
            return (
                f"the server at {self.url} closed the connection without a whole answer: {why}; read the server's log"
            )
        return f"no server answers at {self.url}: {why}; start the server, or correct the address in --policy"

    def _refuse_page(self, kind: str, text: str) -> None:
        """Raise ValueError if the first answer is no JSON, such as the page of a proxy."""
        try:
            json.loads(text)
        except RecursionError:
            return
        except ValueError:
            shown = self.scrub(" ".join(text[:PAGE_CHARS].split()))
            raise ValueError(
                f"the first answer of {self.url} is no JSON (content type {kind or 'not given'}), it begins with "
                f"{shown!r}: correct the base URL (most end in /v1), or look for a proxy on the way"
            ) from None


def _fails(failure: Failure) -> bool:
    """Did the server itself fail? Some servers and gateways say so with status 200."""
    return failure.status >= 500 or (failure.status == 200 and failure.kind == "server")


def names_tools(failure: Failure) -> bool:
    """Did the endpoint fail because of the tools?

    Status 400 or 422 is enough. With another status (some servers answer 404 or 500) the error must name tools or
    jinja.
    """
    words = failure.why.lower()
    return failure.status in (400, 422) or "tool" in words or "jinja" in words
