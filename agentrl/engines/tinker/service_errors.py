"""Failures of a training service in one sentence each: what failed, and the next move.

The exceptions of the SDK differ from version to version, so this module reads the names of their classes and a few
attributes, and imports no SDK.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from agentrl.engines.entry import EngineLost
from agentrl.secret import HIDDEN, scrubbed

KEY = re.compile(r"\b(tml-|eyJ)[A-Za-z0-9._~+/=-]{6,}")  # keys of the hosted service, and tokens (JWT)
ENVELOPE = re.compile(r"^(Request failed|Error retrieving result): (?P<words>.*?) for self\.request_id=.*$", re.DOTALL)
MOST = 300  # characters that are quoted of the service's own words
BUSY, NO_KEY, UNKNOWN, PAYMENT, FAILED = (408, 409, 425, 429), (401, 403), 404, 402, 500
ENDED = 410  # the session has ended, or an answer was dropped, whatever the request is about
BODY_OF_PROTOBUF = (0, 25)  # the SDK from which the bodies of forward and forward_backward are protobuf alone
FITTING = (
    "SkyRL 0.3.0 takes tinker==0.16.1, SkyRL's main branch of August 2026 takes tinker==0.25.0, and the hosted service "
    "and agentrl serve trainer take the newest"
)


class ServiceError(ValueError):
    """The service or its SDK refuses something, or the two do not fit; the message says what to change."""


class ServiceLost(EngineLost):
    """An answer of the service cannot be had any more. The run ends, and can be resumed from its last checkpoint."""


class AnswerLost(ServiceLost):
    """The service failed at one request, and may answer others."""


class Doing(NamedTuple):
    """A request, for messages.

    Attributes:
        what: the request as a noun, such as "a forward pass".
        advice: what may be wrong if the service refuses the request; empty if nothing is known.
        known: the request is about a model or sampler of this run, so the service has lost it if it does not know it.
    """

    what: str
    advice: str = ""
    known: bool = False


class Line(NamedTuple):
    """The connection on which a request failed, for messages.

    Attributes:
        url: address of the service, without credentials.
        sdk: version of the SDK, such as 0.38.0.
        section: section of the recipe with the option `timeout_s`.
        timeout_s: longest time in seconds to wait for an answer.
        warning: last warning of the SDK, such as that the service has paused the run; empty if there was none.
    """

    url: str
    sdk: str
    section: str
    timeout_s: float
    warning: str = ""

    @property
    def who(self) -> str:
        """The service, at the beginning of a sentence."""
        return f"the training service at {self.url}"


def failure(error: BaseException, doing: Doing, line: Line) -> ServiceError | ServiceLost:
    """The error of the SDK as an error of this package."""
    if isinstance(error, ServiceError | ServiceLost):
        return error
    if isinstance(error, ConnectionRefusedError):
        return ServiceLost(
            f"nothing listens at {line.url} any more, so there is no answer to {doing.what}: start the service again"
        )
    names = {kind.__name__ for kind in type(error).__mro__}
    status = _status(error)
    if isinstance(error, TimeoutError) and status is None:
        paused = f" (its SDK says: {words(line.warning)})" if line.warning else ""
        return ServiceLost(
            f"{line.who} gave no answer to {doing.what} in {line.timeout_s:g} s{paused}: look at the service, or raise "
            f"{line.section}.timeout_s"
        )
    if status is not None:
        return _of_status(status, error, doing, line)
    if "APIConnectionError" in names:
        return ServiceLost(f"{line.who} cannot be reached for {doing.what}: {words(str(error))}")
    if "RequestFailedError" in names:
        by_user = str(getattr(getattr(error, "category", ""), "value", "")).lower() == "user"
        return _refused(error, doing, line) if by_user else _failed(error, doing, line)
    return _of_text(error, names, doing, line)


def words(text: str) -> str:
    """The service's own words in one line, without keys, and not too long."""
    found = ENVELOPE.match(text)
    line = " ".join((found["words"] if found else text).split()).rstrip(".")
    clean = KEY.sub(HIDDEN, scrubbed(line))
    return clean if len(clean) <= MOST else f"{clean[:MOST]}..."


def fitting(line: Line) -> str:
    """Advice if SDK and service speak different versions of the protocol."""
    return f"the service may need another version of the SDK than {line.sdk}: {FITTING}"


def version_of(sdk: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(int(part) for part in re.findall(r"\d+", sdk)[:2])


def _status(error: BaseException) -> int | None:
    """The HTTP status with which the service answered, if the error comes from one."""
    for one in _chain(error):
        status = getattr(one, "status_code", None)
        if isinstance(status, int):
            return status
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and the errors that caused it."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__


def _of_status(status: int, error: BaseException, doing: Doing, line: Line) -> ServiceError | ServiceLost:
    said = words(_body(error))
    if status in NO_KEY:
        return ServiceError(
            f"{line.who} does not accept the key for {doing.what} (HTTP {status}): set TINKER_API_KEY to a key of this "
            "service"
        )
    if status == PAYMENT:
        return ServiceError(f"{line.who} asks for payment before {doing.what}: {said}")
    if status in BUSY:
        return ServiceLost(f"{line.who} was too busy for {doing.what} in every try of its SDK (HTTP {status}): {said}")
    if status >= FAILED:
        old = version_of(line.sdk) >= BODY_OF_PROTOBUF and "forward" in doing.what
        hint = f"; if its log shows no other reason, {fitting(line)}" if old else ""
        return ServiceLost(f"{line.who} failed at {doing.what} in every try of its SDK (HTTP {status}): {said}{hint}")
    if str(error).startswith("Error retrieving result"):
        return ServiceLost(f"{line.who} has lost the answer to {doing.what} ({said}): it may have been started again")
    if status == ENDED or (status == UNKNOWN and doing.known):
        return ServiceLost(
            f"{line.who} no longer has what {doing.what} needs ({said}): it may have been started again, or have ended "
            "a session that was silent"
        )
    return _refused(error, doing, line)


def _of_text(error: BaseException, names: set[str], doing: Doing, line: Line) -> ServiceError | ServiceLost:
    """The error of an exception that has no status: it is known by its class or its text."""
    text = str(error)
    if "RetryableException" in names:
        return ServiceLost(f"{line.who} has lost the answer to {doing.what}")
    if "CancelledError" in names:
        return ServiceLost(f"{doing.what} was given up, because the connection to {line.who} was closed")
    if "poisoned" in text or "is closed" in text:
        return ServiceLost(f"{line.who} takes no more requests of this run, after an earlier one failed")
    if "sample_sequence_ids" in text or "as proto" in text or "Proto deserialization" in text:
        return ServiceError(f"{line.who} answers {doing.what} in an older form of the protocol: {fitting(line)}")
    if "api_key" in text or "TINKER_CREDENTIAL_CMD" in text:
        return ServiceError(f"the SDK does not take the key of TINKER_API_KEY: {words(text)}")
    if isinstance(error, RuntimeError | MemoryError | OSError):
        return ServiceLost(f"the SDK failed at {doing.what} of {line.who}: {type(error).__name__}: {words(text)}")
    return ServiceError(
        f"the SDK and {line.who} do not understand each other at {doing.what} ({type(error).__name__}: {words(text)}): "
        f"{fitting(line)}"
    )


def _refused(error: BaseException, doing: Doing, line: Line) -> ServiceError:
    advice = f": {doing.advice}" if doing.advice else ""
    return ServiceError(f"{line.who} refuses {doing.what} ({words(_body(error))}){advice}")


def _failed(error: BaseException, doing: Doing, line: Line) -> ServiceLost:
    return AnswerLost(f"{line.who} failed at {doing.what}: {words(_body(error))}")


def _body(error: BaseException) -> str:
    """The words of the service in an error: the text of its JSON answer if there is one, else the error's message."""
    for one in _chain(error):
        body = getattr(one, "body", None)
        if isinstance(body, dict):
            for name in ("detail", "error", "message"):
                if isinstance(body.get(name), str) and body[name]:
                    return str(body[name])
    return str(getattr(error, "message", "") or error or type(error).__name__)
