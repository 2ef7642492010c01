"""Options of an OpenAI-compatible endpoint, and counts and times of the requests that were sent to it."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, field_validator, model_validator

from agentrl.config import validate
from agentrl.secret import HIDDEN, REFERENCE, hidden_url, redacted

WORD = re.compile(r"openai:(?P<model>.+?)(?:@(?P<base_url>https?://\S+))?")
ADDRESS = re.compile(r".*://.*|localhost(:.*)?|[\w.-]+:\d+(/.*)?|.*/v1/?|", re.DOTALL)  # meant as an address
SAMPLING = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "reasoning_effort")
# A word of the sentence with which a server refuses a request -> the option to change.
HINTS: Mapping[str, str] = MappingProxyType(
    {
        "max_completion_tokens": "set endpoint.token_parameter=max_completion_tokens",
        "max_tokens": "set endpoint.token_parameter=max_tokens, or lower limits.turn_tokens",
        "reasoning_effort": "drop endpoint.reasoning_effort, or set it to a value that the model takes",
        "tool": "set endpoint.tool_calls=text",
        "seed": "set endpoint.seeded=false",
        "temperature": "drop --temperature and endpoint.temperature",
    }
)
# Kind of a refusal (`agentrl.engines.openai.refusals`) -> the next move.
ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "system": "set endpoint.system=user, which joins the system message to the first user message",
        "order": "set endpoint.alternating=true, and endpoint.tool_calls=text if there are tools",
        "tools": "set endpoint.tool_calls=text",
        "auth": "see whether the key (OPENAI_API_KEY or endpoint.api_key) is right and may use the model",
        "gone": "correct the model or the address in --policy (most addresses end in /v1)",
        "quota": "see the account's balance and limits at the provider",
    }
)
# Fields of the request's body that agentrl fills in itself.
OWN_FIELDS = ("model", "messages", "tools", "stream", "n")


class Endpoint(BaseModel, frozen=True, extra="forbid"):
    """Address of an endpoint, and options of its requests.

    Attributes:
        model: name of the model at the endpoint.
        base_url: address of the endpoint. None: the variable OPENAI_BASE_URL or, if it is not set, OpenAI's address.
        api_key: key; write it as "${NAME}". Empty: the variable OPENAI_API_KEY.
        temperature, top_p, presence_penalty, frequency_penalty: settings of the endpoint's sampling; None leaves the
            endpoint's default.
        reasoning_effort: how much a thinking model thinks, such as low; None leaves the endpoint's default.
        stop: stop strings.
        max_tokens: largest number of tokens per answer.
        token_parameter: name of the field that holds `max_tokens` in a request. None: `max_tokens` if there is an
            address, else `max_completion_tokens`, because OpenAI's newer models take only the second name.
        tool_calls: `native`: tools go to the server as data, and calls come back as data. `text`: the prompt describes
            the tools, and the text of the answer holds the calls. `auto`: `native`, or `text` if the server refuses
            tools.
        system: role of the system message. `developer` and `user` are for servers that refuse the role `system`; with
            `user`, the text of the system message is joined to the first user message. `auto`: `system`, or another
            role if the server refuses it, and the report says so.
        alternating: join messages of one role in a row, and a user message behind the result of a tool to this result,
            for servers that demand user and assistant messages in turn. None: only if the server refuses the order of
            the roles, and the report says so.
        seeded: send a seed that is computed from the noise key of the request.
        concurrency: largest number of requests at the same time.
        retries: further tries after an error that may be temporary (408, 409, 429, 5xx, time-outs, lost
            connections, answers that are not completions).
        timeout_s: longest time in seconds for one try.
        probe_s: longest time in seconds for the short request that an evaluation sends first, to see whether the
            endpoint answers; 0 sends no such request.
        backoff_s: mean wait in seconds before the first retry, doubled for each further retry.
        max_wait_s: longest wait in seconds, even if the endpoint's Retry-After asks for more.
        price_in: USD per million tokens of prompts.
        price_out: USD per million tokens of answers.
        headers: further headers of each request; write secrets as "${NAME}".
        extra_body: further fields of the request body, such as top_k or chat_template_kwargs.
    """

    model: str = Field(min_length=1)
    base_url: str | None = None
    api_key: str = ""
    temperature: float | None = Field(None, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    reasoning_effort: str | None = None
    stop: tuple[str, ...] = ()
    max_tokens: int = Field(512, ge=1)
    token_parameter: Literal["max_tokens", "max_completion_tokens"] | None = None
    tool_calls: Literal["auto", "native", "text"] = "auto"
    system: Literal["auto", "system", "developer", "user"] = "auto"
    alternating: bool | None = None
    seeded: bool = True
    concurrency: int = Field(16, ge=1)
    retries: int = Field(5, ge=0)
    timeout_s: float = Field(120.0, gt=0)
    probe_s: float = Field(45.0, ge=0)
    backoff_s: float = Field(0.5, gt=0)
    max_wait_s: float = Field(60.0, gt=0)
    price_in: float | None = Field(None, ge=0)
    price_out: float | None = Field(None, ge=0)
    headers: dict[str, str] = Field(default_factory=dict)
    extra_body: dict[str, Any] = Field(default_factory=dict)

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        """Raises ValueError if the address has another scheme than http and https, or no host."""
        if value is None or REFERENCE.search(value):
            return value
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("an address begins with http:// or https:// and names a host")
        return value

    @model_validator(mode="after")
    def _no_own_fields(self) -> "Endpoint":
        own = next((name for name in OWN_FIELDS if name in self.extra_body), None)
        if own is not None:
            raise ValueError(f"extra_body has {own!r}, a field that agentrl fills in itself: leave it out")
        return self

    def describe(self, url: str | None) -> dict[str, object]:
        """Address and sampling for reports, without secrets.

        Args:
            url: the address in use; None for OpenAI's.
        """
        given = {name: value for name in SAMPLING[2:] if (value := getattr(self, name)) is not None}
        headers = {name: value if REFERENCE.search(value) else HIDDEN for name, value in self.headers.items()}
        return {
            "base_url": hidden_url(url or "https://api.openai.com/v1"),
            "temperature": self.temperature,
            "top_p": self.top_p,
            **given,
            "stop": list(self.stop),
            "max_tokens": self.max_tokens,
            "seeded": self.seeded,
            **({"system": self.system} if self.system != "auto" else {}),
            **({"alternating": self.alternating} if self.alternating is not None else {}),
            **({"headers": headers} if headers else {}),
            **({"extra_body": redacted(self.extra_body)} if self.extra_body else {}),
        }


def endpoint_of(word: str, options: Mapping[str, Any] = MappingProxyType({})) -> Endpoint:
    """The endpoint that the word `openai:MODEL` or `openai:MODEL@BASE_URL` names.

    Args:
        word: the word; its model and address override those of the options.
        options: options of `Endpoint` by name.

    Raises:
        ValueError: the word names no endpoint, or an option is wrong or unknown.
    """
    match = WORD.fullmatch(word)
    if match is None:
        raise ValueError(f"{hidden_url(word)!r} is no endpoint: write openai:MODEL or openai:MODEL@http://host:port/v1")
    named = {name: value for name, value in match.groupdict().items() if value is not None}
    model, at, address = named["model"].rpartition("@")
    if at and ADDRESS.fullmatch(address):
        raise ValueError(
            f"{hidden_url(word)!r} names the server {hidden_url(address)!r}: an address begins with http:// or "
            f"https://, such as openai:{model or 'MODEL'}@http://127.0.0.1:8000/v1"
        )
    return validate(Endpoint, {**options, **named}, "endpoint")


def hint(kind: str, sentence: str) -> str:
    """The end of an error message: the next move after a refusal of this kind; empty if unknown.

    Args:
        kind: see `agentrl.engines.openai.refusals.Kind`.
        sentence: the server's words.
    """
    found = ADVICE.get(kind) or next((advice for word, advice in HINTS.items() if word in sentence), "")
    return f"; {found}" if found else ""


@dataclass(kw_only=True)
class Traffic:
    """Counts and times of the requests to an endpoint so far, for the display of progress.

    Attributes:
        answered: number of requests that got an answer; an answer that reports an error counts too.
        waiting: the requests that wait for an answer: number of the request (as `sent` returned it) -> time at which it
            was sent, in seconds of `time.monotonic`.
        last: time of the last answer, in seconds of `time.monotonic`; before the first answer, the time at which this
            object was made.
    """

    answered: int = 0
    waiting: dict[int, float] = field(default_factory=dict)
    last: float = field(default_factory=time.monotonic)
    _number: int = 0

    def sent(self) -> int:
        """Note that a request is sent; returns the number of the request."""
        self._number += 1
        self.waiting[self._number] = time.monotonic()
        return self._number

    def ended(self, number: int, answered: bool) -> None:
        """Note that the request of this number got an answer, or was given up."""
        self.waiting.pop(number, None)
        if answered:
            self.answered, self.last = self.answered + 1, time.monotonic()

    def silence(self) -> float:
        """Seconds that the endpoint has been silent; 0 if no request waits.

        The seconds count from the last answer or from the start of the oldest waiting request, whichever is later.
        """
        return time.monotonic() - max(self.last, min(self.waiting.values())) if self.waiting else 0.0
