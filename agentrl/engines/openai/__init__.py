"""Any OpenAI-compatible endpoint as a policy, for evaluation: concurrency, retries with back-off, tokens and cost.

Endpoints do not return token ids, so generations have neither token ids nor log-probabilities. If an endpoint gives no
answer, this does not count as a failure of the policy: after the last retry, `generate` raises `EndpointLost`. The
rollout then starts the task again and, if that does not help, reports the episode as `env_error`. A refusal that would
come again (no such model, a wrong key, no money) raises `EndpointLost` at once if the endpoint has answered before;
if not, it stops the run with a ValueError. A prompt that exceeds the context, or that a content filter refuses, ends
the episode. A tool call of the model that the server cannot read is a malformed call.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType, ModuleType
from typing import Any, Literal

from pydantic import Field

from agentrl.engines.entry import Serving
from agentrl.engines.openai.endpoint import SAMPLING, Endpoint, Traffic, endpoint_of, hint
from agentrl.engines.openai.failure import Failure, failure_of, one_line_of
from agentrl.engines.openai.forms import MessageForm
from agentrl.engines.openai.roles import Roles
from agentrl.engines.openai.wire import Unreadable, of_request, read_completion, unreadable, written
from agentrl.engines.policy import Wordless
from agentrl.noise import fold
from agentrl.secret import expand, scrubbed
from agentrl.types import EnvFault, Finish, Generation, Message, Observation, Request

__all__ = ["Config", "Endpoint", "EndpointLost", "OpenAIPolicy", "Traffic", "endpoint_of", "from_word", "make"]

CHARS_PER_TOKEN = 64  # an answer has at most 64 * max_tokens characters; one token may have more, such as 128 spaces
ANSWER_BYTES = 64 << 20  # longest body of an answer
MOST_TOKENS = 1 << 40  # larger counts of tokens are wrong, and are ignored
SEED_BITS = 31  # servers take a signed 32-bit seed
NO_ANSWER: dict[str, Finish] = {"context": "context", "filtered": "refused"}  # kinds of refusals that end the episode
PROBE_TOKENS = 32  # largest number of tokens of the answer to `probe`
PAGE_CHARS = 80  # number of characters that an error quotes from an answer that is no JSON
# Errors of httpx for a connection that broke after it had been made.
BROKEN_OFF = ("RemoteProtocolError", "ReadError", "WriteError", "CloseError")
AGAIN_S = 1.0  # seconds before `probe` sends its request again, after a lost connection or a status of 500 or above
LOOK_S = 0.02  # seconds between two looks at whether another request was answered


class EndpointLost(EnvFault):
    """The endpoint gave no answer in any try."""


class Config(Endpoint, frozen=True):
    """An endpoint as a catalogue entry.

    Attributes:
        max_context: largest number of tokens per sequence, prompt and answer together.
        actions: free; an endpoint cannot be restricted to listed actions.
    """

    max_context: int = Field(32768, ge=8)
    actions: Literal["free"] = "free"


def make(config: Config, serving: Serving) -> "OpenAIPolicy":
    """The endpoint as a policy. It has its own model and tokenizer, so `serving` is not used."""
    options = config.model_dump(exclude={"max_context", "actions"})
    return OpenAIPolicy(Endpoint(**options))


def from_word(
    word: str,
    options: Mapping[str, Any] = MappingProxyType({}),
    *,
    temperature: float | None = None,
    max_tokens: int = 512,
) -> "OpenAIPolicy":
    """The policy named `openai:MODEL` or `openai:MODEL@BASE_URL`.

    Args:
        word: the name.
        options: options of `Endpoint` by name.
        temperature: replaces the temperature of the options; None keeps the temperature of the options.
        max_tokens: largest number of tokens per answer, if the options do not set it.
    """
    given = {"max_tokens": max_tokens, **options}
    return OpenAIPolicy(endpoint_of(word, given if temperature is None else {**given, "temperature": temperature}))


def _library() -> ModuleType:
    try:
        import openai
    except ImportError:
        raise ValueError("openai: policies need the openai package: pip install 'agentrl-stepgraph[openai]'") from None
    module: ModuleType = openai
    return module


class OpenAIPolicy(Wordless):
    """An endpoint as a policy; see the module. A request does not depend on earlier requests.

    A request sends messages, tools, a token limit, sampling settings and, if `endpoint.seeded` is true, a seed.

    `usage` of a generation has `requests` and `retries`. If the endpoint reports its counts of tokens, `usage`
    also has `prompt_tokens`, `completion_tokens` and, if the endpoint's options name prices, `cost` in USD. `traffic`
    tells which requests wait for an answer.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        """See the class.

        Raises:
            ValueError: the package openai, the key, or a variable that the options name is missing; or one of the two
                prices is set without the other.
        """
        self.endpoint, self.name, self.traffic = endpoint, f"openai:{endpoint.model}", Traffic()
        if (endpoint.price_in is None) != (endpoint.price_out is None):
            given, other = ("in", "out") if endpoint.price_out is None else ("out", "in")
            raise ValueError(
                f"endpoint.price_{given} is set and endpoint.price_{other} is not: a cost needs both, so set "
                f"endpoint.price_{other} too (0 if it is free)"
            )
        self._openai = _library()
        self._url = endpoint.base_url or os.environ.get("OPENAI_BASE_URL")
        own = expand(endpoint.api_key, "endpoint.api_key") if endpoint.api_key else os.environ.get("OPENAI_API_KEY")
        self._key = own or ("none" if self._url else "")
        self._headers = {name: expand(value, f"endpoint.headers.{name}") for name, value in endpoint.headers.items()}
        if not self._key:
            raise ValueError(f"{self.name} needs a key: set OPENAI_API_KEY, or name a server, openai:MODEL@http://...")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Any = None
        self._gate = asyncio.Semaphore(endpoint.concurrency)
        self._answered = False  # has the endpoint answered a request?
        self._form = MessageForm(endpoint)

    @property
    def secrets(self) -> set[str]:
        """The key and the values of the headers, which no text for a user may contain."""
        return {self._key, *self._headers.values()}

    def describe(self) -> dict[str, object]:
        """Model, address and sampling settings."""
        return {"policy": self.name, **self.endpoint.describe(self._url), "actions": "free"}

    async def generate(self, request: Request) -> Generation:
        """One answer.

        Raises:
            EndpointLost: the endpoint gave no answer in any try, or it refuses the request and has answered before.
            ValueError: the endpoint refuses the request, would refuse it again, and has answered no request.
        """
        self._enter_loop()
        async with self._gate:
            tries = 0
            while True:
                tries += 1
                roles = self._form.now
                failure = await self._tried(request, roles, tries)
                if isinstance(failure, Generation):
                    self._answered = True
                    return failure
                answer = self._ended(failure, request, tries)
                if answer is not None:
                    return answer
                if self._form.adapts(failure, self._scrubbed(failure.why), request, roles):
                    tries -= 1  # the request goes again in another form
                    continue
                if not failure.passes:
                    raise await self._refused(failure)
                if tries > self.endpoint.retries:
                    break
                await asyncio.sleep(self._wait(failure, tries - 1))
        raise EndpointLost(f"{self.name} gave no answer in {tries} tries: {self._scrubbed(failure.why)}")

    async def _tried(self, request: Request, roles: Roles, tries: int) -> Generation | Failure:
        """The answer to a request, or why there is none. `tries` counts the tries, this one included."""
        try:
            # The library's own time-out bounds the wait between two parts of an answer, not the whole answer.
            async with asyncio.timeout(self.endpoint.timeout_s):
                completion = await self._ask(request, roles)
            return self._generation(completion, request, tries - 1)
        except TimeoutError:
            return failure_of(TimeoutError(f"the answer did not end in {self.endpoint.timeout_s:g} s"), self._openai)
        except (self._openai.APIError, ValueError, RecursionError) as error:
            return failure_of(error, self._openai)

    def _ended(self, failure: Failure, request: Request, tries: int) -> Generation | None:
        """The generation of a refusal that is about the model's own text; None for any other failure."""
        usage, why = {"requests": tries, "retries": tries - 1}, self._scrubbed(failure.why)
        if failure.kind == "malformed":
            self._answered = True
            text = unreadable(failure.unread or failure.words.text) if request.tools else ""
            most = CHARS_PER_TOKEN * self.endpoint.max_tokens
            return Generation(text=self._scrubbed(text)[:most], finish="malformed", usage=usage, refusal=why)
        finish = NO_ANSWER.get(failure.kind)
        return None if finish is None else Generation(text="", finish=finish, usage=usage, refusal=why)

    @property
    def notes(self) -> list[str]:
        """Sentences for the report, if the server has refused the roles of the messages; see `MessageForm`."""
        return self._form.notes(self.name)

    async def _refused(self, failure: Failure) -> Exception:
        """The exception for a refusal that would come again; see the module.

        If no request has been answered yet, this waits for the requests that are under way, because one of them may be
        answered.
        """
        while not self._answered and self.traffic.waiting:
            await asyncio.sleep(LOOK_S)
        sentence = self._refusal(failure)
        return EndpointLost(sentence) if self._answered else ValueError(sentence)

    def probe(self, tools: Sequence[Mapping[str, Any]] = ()) -> bool:
        """Send one short request, to see whether the endpoint answers; see `Endpoint.probe_s`.

        Args:
            tools: schemas to send with the request; if the endpoint refuses them, it is sent again without tools.

        Returns:
            Whether the endpoint takes the tools; True without tools.

        Raises:
            ValueError: no server answers at the address in time; the server closes the connection, or fails twice; the
                answer is no JSON; or the server refuses the request.
        """
        with self._openai.OpenAI(**self._connection(self.endpoint.probe_s)) as client:
            failure, takes = self._try(client, tools), True
            if tools and failure is not None and _names_tools(failure):
                failure = self._try(client, ())
                takes = failure is not None
        if failure is None:
            self._answered = True
            return takes
        url, why = self.describe()["base_url"], self._scrubbed(failure.why)
        if failure.status >= 500 and failure.kind not in NO_ANSWER:
            raise ValueError(
                f"{self.name} at {url} failed twice at a first short request: {why}; read the server's log, or leave "
                "this request out with endpoint.probe_s=0"
            )
        if failure.kind == "odd":
            raise ValueError(f"the first answer of {url} cannot be read: {why}; read the server's log")
        # If PROBE_TOKENS were too few for a model that thinks, OpenAI says "output limit". The endpoint then works.
        works = failure.passes or failure.kind in NO_ANSWER or "output limit" in failure.words.text
        if not works:
            raise ValueError(self._refusal(failure))
        return takes

    def _try(self, client: Any, tools: Sequence[Mapping[str, Any]]) -> Failure | None:
        """Send the short request of `probe`; returns why there is no answer, None if the endpoint gave an answer.

        A server that says it loads its model is asked again until `probe_s` has passed.
        """
        request = Request(
            session=0,
            token_ids=(),  # type: ignore[arg-type]  # no tokenizer takes part
            messages=[Message("user", "Reply with the word ready.")],
            observation=Observation(text=""),
            max_tokens=PROBE_TOKENS,
            tools=tools,
        )
        ends_at, again = time.monotonic() + self.endpoint.probe_s, True
        while True:
            try:
                raw = client.chat.completions.with_raw_response.create(**self._options(request, self._form.now))
                self._refuse_page(raw.headers.get("content-type", ""), raw.text)
                with suppress(RecursionError):
                    read_completion(raw.parse())
                return None
            except self._openai.APITimeoutError:
                raise ValueError(
                    f"{self.name} at {self.describe()['base_url']} gave no answer to a first short request in "
                    f"{self.endpoint.probe_s:g} s (endpoint.probe_s): see whether the server works, or raise the limit"
                ) from None
            except self._openai.APIConnectionError as error:
                if not again:
                    raise ValueError(self._unreached(error.__cause__ or error)) from None
            except (self._openai.APIError, Unreadable) as error:
                failure = failure_of(error, self._openai)
                loads = failure.kind == "busy" and time.monotonic() + AGAIN_S < ends_at
                if not loads and not (again and failure.status >= 500 and not (tools and _names_tools(failure))):
                    return failure
            again = False
            time.sleep(AGAIN_S)

    def _unreached(self, cause: BaseException) -> str:
        """The error message about a server that could not be reached, or whose answer broke off."""
        url, why = self.describe()["base_url"], self._scrubbed(one_line_of(cause))
        if type(cause).__name__ in BROKEN_OFF:
            return f"the server at {url} closed the connection without a whole answer: {why}; read the server's log"
        return f"no server answers at {url}: {why}; start the server, or correct the address in --policy"

    def _refuse_page(self, kind: str, text: str) -> None:
        """Raise ValueError if the first answer is no JSON, such as the page of a proxy."""
        try:
            json.loads(text)
        except RecursionError:
            return
        except ValueError:
            shown = scrubbed(" ".join(text[:PAGE_CHARS].split()), self.secrets)
            raise ValueError(
                f"the first answer of {self.describe()['base_url']} is no JSON (content type {kind or 'not given'}), "
                f"it begins with {shown!r}: correct the base URL (most end in /v1), or look for a proxy on the way"
            ) from None

    def _connection(self, timeout_s: float) -> dict[str, Any]:
        """The arguments of a client."""
        # identity, because a compressed body may be far larger than the bytes that arrive
        headers = {"accept-encoding": "identity", **self._headers}
        fixed = {"timeout": timeout_s, "max_retries": 0, "default_headers": headers}
        return {"api_key": self._key, "base_url": self._url, **fixed}

    def _enter_loop(self) -> None:
        """Make a client for the running event loop; connections of a loop that has ended cannot be used again."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        self._loop, self._gate = loop, asyncio.Semaphore(self.endpoint.concurrency)
        bounded = self._openai.DefaultAsyncHttpxClient(event_hooks={"response": [_bounded]})
        self._client = self._openai.AsyncOpenAI(**self._connection(self.endpoint.timeout_s), http_client=bounded)

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        client, self._client, self._loop = self._client, None, None
        if client is not None:
            await client.close()

    async def _ask(self, request: Request, roles: Roles) -> Any:
        number, answered = self.traffic.sent(), False
        try:
            completion = await self._client.chat.completions.create(**self._options(request, roles))
            answered = True
        except self._openai.APIStatusError:
            answered = True
            raise
        finally:
            self.traffic.ended(number, answered)
        return completion

    def _options(self, request: Request, roles: Roles) -> dict[str, Any]:
        """The arguments with which the library sends a request."""
        end = self.endpoint
        # OpenAI's newer models take only max_completion_tokens.
        limit = end.token_parameter or ("max_tokens" if self._url else "max_completion_tokens")
        options: dict[str, Any] = {limit: min(request.max_tokens, end.max_tokens)}
        options |= {name: value for name in SAMPLING if (value := getattr(end, name)) is not None}
        if request.temperature is not None:
            options["temperature"] = request.temperature
        if end.stop:
            options["stop"] = list(end.stop)
        if end.seeded:
            options["seed"] = fold(request.noise_key) >> (64 - SEED_BITS)
        return {"model": end.model, **of_request(request, roles), "extra_body": end.extra_body or None, **options}

    def _generation(self, completion: Any, request: Request, attempt: int) -> Generation:
        """The generation in a completion; ValueError if it is not a chat completion."""
        reply = read_completion(completion)
        usage: dict[str, float] = {"requests": attempt + 1, "retries": attempt}
        counts = [getattr(completion.usage, name, None) for name in ("prompt_tokens", "completion_tokens")]
        if all(isinstance(count, int) and 0 <= count < MOST_TOKENS for count in counts):
            usage["prompt_tokens"] = completion.usage.prompt_tokens
            usage["completion_tokens"] = completion.usage.completion_tokens
            price_in, price_out = self.endpoint.price_in, self.endpoint.price_out
            if price_in is not None and price_out is not None:
                cost = usage["prompt_tokens"] * price_in + usage["completion_tokens"] * price_out
                usage["cost"] = cost / 1e6
        finish: Finish = "abort" if reply.refusal else reply.finish
        text, most = written(reply), CHARS_PER_TOKEN * self.endpoint.max_tokens
        if finish == "context" and text:
            finish = "length"
        if len(text) > most:  # the server exceeds max_tokens
            reply, text, finish = reply._replace(calls=()), text[:most], "length"
        if finish == "malformed":
            reply, text = reply._replace(calls=()), unreadable(text) if request.tools else ""
        message = Message("assistant", reply.content, calls=reply.calls) if reply.calls else None
        return Generation(
            text=text,
            finish=finish,
            usage=usage,
            thought=reply.thought[:most],
            refusal=reply.refusal[:most],
            message=message,
            cut_by=self._cut_by(request, usage.get("completion_tokens")) if reply.finish == "length" else "",
        )

    def _cut_by(self, request: Request, tokens: float | None) -> str:
        """See `Generation.cut_by`; `tokens` is the length of an answer that was cut off, by the server's count."""
        own, asked = self.endpoint.max_tokens, min(request.max_tokens, self.endpoint.max_tokens)
        if tokens is not None and tokens < asked - 1:  # some servers do not count the last token
            return (
                f"the server ended an answer after {tokens:.0f} tokens, and the request allowed {asked}: raise the "
                "server's own limit, or its context length"
            )
        return f"endpoint.max_tokens = {own} was reached: raise endpoint.max_tokens" if own < request.max_tokens else ""

    def _refusal(self, failure: Failure) -> str:
        """The error message about a request that the endpoint would refuse again."""
        why = self._scrubbed(failure.why)
        return f"{self.name} refuses the request: {why}{hint(failure.kind, failure.words.text)}"

    def _scrubbed(self, text: str) -> str:
        """The text without the key, which some servers repeat."""
        return scrubbed(text, self.secrets)

    def _wait(self, failure: Failure, attempt: int) -> float:
        """Seconds before the next try: the time that the endpoint names, else a random wait whose mean doubles."""
        seconds = failure.wait_s
        if seconds is None:
            seconds = random.uniform(0.0, 2 * self.endpoint.backoff_s * 2.0**attempt)
        return min(seconds, self.endpoint.max_wait_s)


def _names_tools(failure: Failure) -> bool:
    """Did the endpoint fail because of the tools?

    Status 400 or 422 is enough. With another status (some servers answer 404 or 500) the error must name tools or
    jinja.
    """
    words = failure.why.lower()
    return failure.status in (400, 422) or "tool" in words or "jinja" in words


async def _bounded(response: Any) -> None:
    """Let a response raise an error as soon as its body exceeds ANSWER_BYTES.

    A compressed body raises an error at once, because its real size is not known.
    """
    httpx = sys.modules[type(response).__module__.partition(".")[0]]  # httpx, or httpx2: whichever the library uses

    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx.DecodingError("the answer is compressed, although the request asked for an uncompressed answer")

    class Bounded(httpx.AsyncByteStream):  # type: ignore[name-defined,misc]
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for part in self._stream:
                size += len(part)
                if size > ANSWER_BYTES:
                    raise httpx.ReadError(f"the answer is larger than {ANSWER_BYTES >> 20} MB")
                yield part

        async def aclose(self) -> None:
            await self._stream.aclose()

    response.stream = Bounded(response.stream)
