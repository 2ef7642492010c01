"""Any OpenAI-compatible endpoint as a policy, for evaluation: concurrency, retries with back-off, tokens and cost.

Endpoints do not return token ids, so generations have text and counts only. An endpoint that gives no answer does not
count against the policy: after the retries it raises an `EnvFault`, so the rollout begins the task again and, if that
does not help, reports the episode as `env_error`. A request that can never work (no such model, a wrong key) stops the
run with a ValueError.
"""

import asyncio
import email.utils
import os
import random
import re
import sys
import time
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any, Literal

from pydantic import BaseModel, Field

from agentrl.engines.entry import Serving
from agentrl.engines.policy import Wordless
from agentrl.noise import fold
from agentrl.secret import hidden_url, scrubbed
from agentrl.types import EnvFault, Finish, Generation, Request

FINISH: dict[str, Finish] = {"length": "length", "content_filter": "abort"}  # all else is "stop"
WORD = re.compile(r"openai:(?P<model>.+?)(?:@(?P<base_url>https?://\S+))?")
CHARS_PER_TOKEN = 64  # of an answer's longest text; the longest tokens of common vocabularies have 128 spaces
ANSWER_BYTES = 64 << 20  # longest body of an answer
MOST_TOKENS = 1 << 40  # counts of tokens above it are no counts
SEED_BITS = 31  # servers take a signed 32-bit seed


class EndpointLost(EnvFault):
    """The endpoint gave no answer in all its retries."""


class Endpoint(BaseModel, frozen=True, extra="forbid"):
    """Address of an endpoint, and options of its requests.

    Attributes:
        model: name of the model at the endpoint.
        base_url: None takes the variable OPENAI_BASE_URL or, if it is not set, OpenAI.
        temperature, top_p: None leaves the endpoint's default.
        stop: stop strings.
        max_tokens: most tokens per answer.
        seeded: send a seed that is computed from the noise key.
        concurrency: most requests at the same time.
        max_retries: further tries after an error that may be temporary (408, 409, 429, 5xx, time-outs, lost
            connections, answers that are not completions).
        timeout_s: seconds per try.
        backoff_s: mean wait in seconds before the first retry, doubled for each further retry.
        max_wait_s: longest wait in seconds, also if the endpoint's Retry-After asks for more.
        price_in, price_out: USD per million tokens of prompts and of answers.
        extra: further fields of the request body, such as chat_template_kwargs.
    """

    model: str = Field(min_length=1)
    base_url: str | None = None
    temperature: float | None = Field(None, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    stop: tuple[str, ...] = ()
    max_tokens: int = Field(512, ge=1)
    seeded: bool = True
    concurrency: int = Field(16, ge=1)
    max_retries: int = Field(5, ge=0)
    timeout_s: float = Field(120.0, gt=0)
    backoff_s: float = Field(0.5, gt=0)
    max_wait_s: float = Field(60.0, gt=0)
    price_in: float | None = Field(None, ge=0)
    price_out: float | None = Field(None, ge=0)
    extra: dict[str, Any] = Field(default_factory=dict)


class Config(Endpoint, frozen=True):
    """An endpoint as a catalogue entry; `max_context` and `actions` are options that every engine has."""

    max_context: int = Field(32768, ge=8)
    actions: Literal["free"] = "free"


def make(config: Config, serving: Serving) -> "OpenAIPolicy":
    """The endpoint as a policy. It has its own model and tokenizer, so `serving` is not used."""
    options = config.model_dump(exclude={"max_context", "actions"})
    return OpenAIPolicy(Endpoint(**options))


def from_word(word: str, *, temperature: float | None = None, max_tokens: int = 512) -> "OpenAIPolicy":
    """The policy named `openai:MODEL` or `openai:MODEL@BASE_URL`."""
    match = WORD.fullmatch(word)
    if match is None:
        raise ValueError(f"{hidden_url(word)!r} is no endpoint: write openai:MODEL or openai:MODEL@http://host:port/v1")
    return OpenAIPolicy(Endpoint(**match.groupdict(), temperature=temperature, max_tokens=max_tokens))


def _library() -> ModuleType:
    try:
        import openai
    except ImportError:
        raise ValueError("openai: policies need the openai package: pip install 'agentrl-stepgraph[openai]'") from None
    module: ModuleType = openai
    return module


class OpenAIPolicy(Wordless):
    """An endpoint as a policy, see the module. Answers depend on the messages alone.

    `usage` of a generation has `prompt_tokens`, `completion_tokens`, `requests`, `retries` and, if the endpoint's
    options name prices, `cost` in USD.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        """Raises ValueError if the package openai or the key is missing."""
        self.endpoint, self.name = endpoint, f"openai:{endpoint.model}"
        self._openai = _library()
        self._url = endpoint.base_url or os.environ.get("OPENAI_BASE_URL")
        self._key = os.environ.get("OPENAI_API_KEY") or ("none" if self._url else "")
        if not self._key:
            raise ValueError(f"{self.name} needs a key: set OPENAI_API_KEY, or name a server, openai:MODEL@http://...")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Any = None
        self._gate = asyncio.Semaphore(endpoint.concurrency)

    def describe(self) -> dict[str, object]:
        """Model, address and sampling settings."""
        return {
            "policy": self.name,
            "base_url": hidden_url(self._url or "https://api.openai.com/v1"),
            "temperature": self.endpoint.temperature,
            "top_p": self.endpoint.top_p,
            "stop": list(self.endpoint.stop),
            "max_tokens": self.endpoint.max_tokens,
            "actions": "free",
        }

    async def generate(self, request: Request) -> Generation:
        """One answer.

        Raises:
            EndpointLost: the endpoint gave no answer in any try.
            ValueError: the endpoint refuses the request, and would refuse it again.
        """
        self._enter_loop()
        failure: Exception
        async with self._gate:
            for attempt in range(self.endpoint.max_retries + 1):
                try:
                    async with asyncio.timeout(self.endpoint.timeout_s):  # the library's limit is between two bytes
                        completion = await self._ask(request)
                    return self._generation(completion, attempt)
                except TimeoutError:
                    failure = TimeoutError(f"the answer did not end in {self.endpoint.timeout_s:g} s")
                except (self._openai.APIError, ValueError, RecursionError) as error:
                    failure = error
                if self._too_long(failure):
                    usage = {"requests": attempt + 1, "retries": attempt}
                    return Generation(text="", finish="length", usage=usage)
                if not self._may_pass(failure):
                    raise ValueError(f"{self.name} refuses the request: {self._why(failure)}")
                if attempt < self.endpoint.max_retries:
                    await asyncio.sleep(self._wait(failure, attempt))
        tries = self.endpoint.max_retries + 1
        raise EndpointLost(f"{self.name} gave no answer in {tries} tries: {self._why(failure)}")

    def _enter_loop(self) -> None:
        """Make a client for the running event loop; connections of a loop that has ended cannot be used again."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        self._loop, self._gate = loop, asyncio.Semaphore(self.endpoint.concurrency)
        self._client = self._openai.AsyncOpenAI(
            api_key=self._key,
            base_url=self._url,
            timeout=self.endpoint.timeout_s,
            max_retries=0,
            default_headers={"accept-encoding": "identity"},  # so that the bytes that arrive are the bytes that stay
            http_client=self._openai.DefaultAsyncHttpxClient(event_hooks={"response": [_bounded]}),
        )

    async def _ask(self, request: Request) -> Any:
        end = self.endpoint
        limit = "max_tokens" if self._url else "max_completion_tokens"  # OpenAI's newer models take the latter only
        options: dict[str, Any] = {limit: min(request.max_tokens, end.max_tokens)}
        options |= {name: value for name in ("temperature", "top_p") if (value := getattr(end, name)) is not None}
        if end.stop:
            options["stop"] = list(end.stop)
        if end.seeded:
            options["seed"] = fold(request.noise_key) >> (64 - SEED_BITS)
        return await self._client.chat.completions.create(
            model=end.model,
            messages=[{"role": m.role, "content": m.content} for m in request.messages],
            extra_body=end.extra or None,
            **options,
        )

    def _generation(self, completion: Any, attempt: int) -> Generation:
        """The generation in a completion; ValueError if it is not a chat completion."""
        choices: Any = getattr(completion, "choices", None)
        message = getattr(choices[0], "message", None) if choices and isinstance(choices, list) else None
        if message is None:
            raise ValueError("the answer is not a chat completion")
        text = message.content or ""
        if not isinstance(text, str):
            raise ValueError(f"the answer's content is of type {type(text).__name__}, not text")
        text = text.encode("utf-8", "replace").decode()  # "?" for half of a surrogate pair, which no file can hold
        usage: dict[str, float] = {"requests": attempt + 1, "retries": attempt}
        counts = [getattr(completion.usage, name, None) for name in ("prompt_tokens", "completion_tokens")]
        if all(isinstance(count, int) and 0 <= count < MOST_TOKENS for count in counts):
            usage["prompt_tokens"] = completion.usage.prompt_tokens
            usage["completion_tokens"] = completion.usage.completion_tokens
            price_in, price_out = self.endpoint.price_in, self.endpoint.price_out
            if price_in is not None and price_out is not None:
                cost = usage["prompt_tokens"] * price_in + usage["completion_tokens"] * price_out
                usage["cost"] = cost / 1e6
        finish: Finish = FINISH.get(str(choices[0].finish_reason), "stop")
        most = CHARS_PER_TOKEN * self.endpoint.max_tokens
        if len(text) > most:  # a server that does not keep to max_tokens
            text, finish = text[:most], "length"
        return Generation(text=text, finish=finish, usage=usage)

    def _too_long(self, error: Exception) -> bool:
        """Does the prompt exceed the endpoint's context? The agent caused that: its answer is empty and cut off."""
        code = getattr(error, "code", None)
        refused = isinstance(error, self._openai.BadRequestError)
        return refused and (code == "context_length_exceeded" or "maximum context length" in str(error))

    def _may_pass(self, error: Exception) -> bool:
        status = getattr(error, "status_code", None)
        if getattr(error, "code", None) == "insufficient_quota":
            return False
        return status is None or status in (408, 409, 429) or status >= 500 or status < 400

    def _why(self, error: Exception) -> str:
        """The failure in one line, without the key, which some servers repeat."""
        cause = error.__cause__ if isinstance(error, self._openai.APIConnectionError) else None
        return scrubbed(_one_line(error) + (f" {_one_line(cause)}" if cause else ""), [self._key])

    def _wait(self, error: Exception, attempt: int) -> float:
        """Seconds before the next try: those of the endpoint's Retry-After, else exponential with full jitter."""
        response = getattr(error, "response", None)
        seconds = _retry_after(response.headers.get("retry-after", "")) if response is not None else None
        if seconds is None:
            seconds = random.uniform(0.0, 2 * self.endpoint.backoff_s * 2.0**attempt)
        return min(seconds, self.endpoint.max_wait_s)


async def _bounded(response: Any) -> None:
    """Let the body of an answer end with an error after ANSWER_BYTES; refuse a compressed one, which may hide more."""
    httpx = sys.modules[type(response).__module__.partition(".")[0]]  # or httpx2, as the library likes

    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx.DecodingError("the answer is compressed, although it was asked for as it is")

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


def _retry_after(header: str) -> float | None:
    """Seconds that a Retry-After header names, as a number or as a date; None if it names neither."""
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    except ValueError:
        return None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error)[:10_000].split())[:300] or type(error).__name__
