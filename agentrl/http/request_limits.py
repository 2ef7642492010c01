"""What the HTTP servers of agentrl demand of every request: limits, host names and well-formed JSON.

`agentrl.http.handler` applies these checks in our own servers; `LimitedApp` and `limited_protocol` apply them to the
servers of other packages that run on uvicorn. This module imports the standard library only, because
`agentrl.foreign.openenv_app` loads it by its path in a Python that has no agentrl.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import re
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

LOOPBACK = ("127.0.0.1", "localhost", "::1")  # names under which every server answers
DRAINED_BYTES = 64 << 20  # bytes of a refused body that are read and dropped, so that the client reads the refusal
DRAIN_S = 2.0  # longest time for that
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)  # also one without an end, so it is linear
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")  # the escape of half of a surrogate pair


class Refusal(Exception):
    """The server does not answer a request; `status` is the HTTP status, `code` is the error code for programs."""

    def __init__(self, status: int, message: str, code: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.status, self.code = status, code


class HttpLimits(NamedTuple):
    """The limits of a server. A server that needs other limits replaces single values.

    Attributes:
        connections: largest number of open connections, and so of threads. If one more client connects, the server
            closes the connection that has waited longest for its client; if none waits, the new client gets status 503.
        idle_s: longest time between two requests on a connection.
        head_s: longest time for the head of a request, from its first byte.
        body_s: longest time for the body of a request.
        write_s: longest time in which a client takes a response. There is no limit on the time until the response.
        line_bytes: longest line of a head; head_bytes: longest head.
        headers: largest number of headers.
        body_bytes: longest body.
        depth: deepest nesting of JSON.
        items: largest number of values in JSON.
        digits: longest number in JSON, in characters.
    """

    connections: int = 256
    idle_s: float = 60.0
    head_s: float = 20.0
    body_s: float = 60.0
    write_s: float = 30.0
    line_bytes: int = 1 << 15
    head_bytes: int = 1 << 16
    headers: int = 100
    body_bytes: int = 1 << 20
    depth: int = 64
    items: int = 100_000
    digits: int = 100


LIMITS = HttpLimits()


def host_name(header: str) -> str:
    """The name in a Host header without its port, in lower case; empty if the header has another form."""
    found = _HOST.fullmatch(header)
    name = found[1].lower() if found else ""
    if not name.startswith("["):
        return name
    try:
        return str(ipaddress.ip_address(name[1:-1]))
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Does this host name or IP address mean this machine alone?"""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_names(bound: str, allowed: Iterable[str] = ()) -> frozenset[str]:
    """The names for which a server answers.

    Args:
        bound: the address that the server binds.
        allowed: further names, as the user gives them.

    Raises:
        ValueError: one of `allowed` is no host name.
    """
    found = {*LOOPBACK}
    for name in (bound, *allowed):
        plain = host_name(f"[{name}]" if ":" in name else name)
        if not plain and name != bound:
            raise ValueError(f"--allow-host {name!r:.100} is no host name: give a name such as model.example, no port")
        if plain and not _is_unspecified(plain):
            found.add(plain)
    return frozenset(found)


def _is_unspecified(name: str) -> bool:
    """Does this address bind all interfaces? It is no name of this machine then."""
    try:
        return ipaddress.ip_address(name).is_unspecified
    except ValueError:
        return False


def check_host(hosts: Sequence[str], origins: Sequence[str], names: Collection[str]) -> None:
    """Raise Refusal for a request that a page of another web site may have caused.

    The host name of that site may point to this machine (the Host header then holds this name), or the page may send
    requests to this server (the Origin header then names the page).

    Args:
        hosts: the Host headers of the request.
        origins: its Origin headers.
        names: the host names for which the server answers.
    """
    if len(hosts) != 1:
        raise Refusal(400, f"the request has {len(hosts)} Host headers: send one")
    if host_name(hosts[0]) not in names:
        raise Refusal(
            403,
            f"this server does not answer for the host name {hosts[0]!r:.100}: use 127.0.0.1 or localhost, or the "
            "address that the server printed; serve has --allow-host for other names",
            "forbidden_host",
        )
    if any(origin.partition("://")[2].lower() != hosts[0].lower() for origin in origins):
        raise Refusal(
            403, f"this server answers no requests of other web sites ({origins[0]!r:.100})", "forbidden_origin"
        )


def length_of(lengths: Sequence[str], chunked: bool) -> int | None:
    """The value of the content-length headers of a request; None without such a header. Raises Refusal."""
    if chunked and lengths:
        raise Refusal(400, "the request has content-length and transfer-encoding: send content-length alone")
    if chunked:
        raise Refusal(411, "this server reads no transfer-encoding: send the body's content-length")
    if not lengths:
        return None
    if len(lengths) > 1 or not (lengths[0].isascii() and lengths[0].isdigit()):
        raise Refusal(400, f"content-length = {', '.join(lengths)!r:.50} is no number of bytes")
    return int(lengths[0]) if len(lengths[0]) < 20 else 1 << 63


def too_long(length: int, limit: int) -> Refusal:
    """The refusal of a body."""
    size = f"{length} bytes" if length < 1 << 63 else "too many bytes"
    return Refusal(413, f"the body has {size}, the limit is {limit}: send less in one request", "too_large")


def too_long_head(limits: HttpLimits, status: int) -> Refusal:
    """The refusal of a head; the status is 414 if its first line is too long, else 431."""
    return Refusal(
        status,
        f"the head of the request is too long: {limits.headers} headers, {limits.line_bytes} bytes per line and "
        f"{limits.head_bytes} bytes in all are allowed",
    )


def too_slow(part: str, seconds: float) -> Refusal:
    """The refusal of a request of which a part, its head or its body, did not arrive in time."""
    return Refusal(408, f"the {part} of the request did not arrive within {seconds:g} s", "timeout")


def json_value(body: bytes, limits: HttpLimits = LIMITS) -> Any:
    """The JSON value in a request's body.

    Raises:
        Refusal: the body is no JSON in UTF-8, or it exceeds a limit. Sizes are checked before the body is parsed,
            because a parsed value takes up to 25 times the memory of its text.
    """
    _check_shape(body, limits)

    def number(text: str, kind: type) -> Any:
        if len(text) > limits.digits:
            raise Refusal(400, f"the request has a number of {len(text)} digits, the limit is {limits.digits}")
        value = kind(text)
        if value in (float("inf"), -float("inf")):
            raise Refusal(400, f"the request has a number that is too large: {text:.50}")
        return value

    def constant(text: str) -> Any:
        raise Refusal(400, f"the request is not JSON: {text} is no number of JSON")

    try:
        found = json.loads(
            body.decode("utf-8-sig"),
            parse_int=lambda text: number(text, int),
            parse_float=lambda text: number(text, float),
            parse_constant=constant,
        )
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the request is not JSON: {error}") from None
    if _HALF.search(body):
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise Refusal(400, "the request has half of a surrogate pair, which is no character") from None
    return found


def json_object(body: bytes, example: str = "", limits: HttpLimits = LIMITS) -> dict[str, Any]:
    """The JSON object in a request's body; Refusal as in `json_value`, or if the body is another value.

    `example` ends the sentence on other values.
    """
    found = json_value(body, limits)
    if not isinstance(found, dict):
        raise Refusal(400, f"the request is no JSON object{example and f': {example}'}")
    return found


def _check_shape(body: bytes, limits: HttpLimits) -> None:
    """Raise Refusal if JSON has too many values or is nested too deeply; the text is not parsed for this."""
    items = sum(map(body.count, (b",", b"[", b"{")))
    if items <= limits.depth:
        return
    bare = _STRING.sub(b"", body)
    items = sum(map(bare.count, (b",", b"[", b"{")))
    if items > limits.items:
        raise Refusal(413, f"the request has {items} values, the limit is {limits.items}", "too_large")
    depth = deepest = 0
    for bracket in re.findall(rb"[\[{]|[\]}]", bare):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    if deepest > limits.depth:
        raise Refusal(400, f"the request is nested {deepest} deep, the limit is {limits.depth}")


class LimitedApp:
    """An ASGI application behind the checks of this module: host names, a token, size, time and shape of bodies.

    Args:
        app: the application.
        names: the host names for which the server answers, see `host_names`.
        token: the bearer token that clients must send; empty for none.
        limits: the limits of bodies, and of messages over WebSockets.
    """

    def __init__(self, app: Any, names: Collection[str], token: str = "", limits: HttpLimits = LIMITS) -> None:
        self.app, self.names, self.token, self.limits = app, names, token, limits

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer one request, or pass it on."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        body = b""
        try:
            self._check(scope)
            if scope["type"] == "http":
                body = await self._body(scope, receive)
        except Refusal as refusal:
            await _refuse(scope, receive, send, refusal)
            return
        except ConnectionResetError:  # the client is gone
            return
        if scope["type"] == "websocket":
            await self.app(scope, self._checked(receive, send), send)
            return
        first = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Any:
            return first.pop() if first else await receive()

        await self.app(scope, again, send)

    def _check(self, scope: dict[str, Any]) -> None:
        server, headers, limits = scope.get("server") or ("", 0), scope["headers"], self.limits
        if len(headers) > limits.headers or sum(len(key) + len(value) for key, value in headers) > limits.head_bytes:
            raise too_long_head(limits, 431)
        check_host(_values(scope, b"host"), _values(scope, b"origin"), {*self.names, server[0]})
        given = "".join(_values(scope, b"authorization"))
        wanted = f"Bearer {self.token}"
        if self.token and not hmac.compare_digest(given.encode(), wanted.encode()):
            raise Refusal(401, "a bearer token is needed", "no_token")

    async def _body(self, scope: dict[str, Any], receive: Any) -> bytes:
        limits, parts, size = self.limits, [], 0
        length = length_of(_values(scope, b"content-length"), chunked=False) or 0
        if length > limits.body_bytes:
            raise too_long(length, limits.body_bytes)
        ends = time.monotonic() + limits.body_s
        while True:
            try:
                message = await asyncio.wait_for(receive(), max(0.0, ends - time.monotonic()))
            except TimeoutError:
                raise too_slow("body", limits.body_s) from None
            if message["type"] == "http.disconnect":
                raise ConnectionResetError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > limits.body_bytes:
                raise too_long(size, limits.body_bytes)
            if not message.get("more_body"):
                break
        body = b"".join(parts)
        if body:
            json_value(body, limits)
        return body

    def _checked(self, receive: Any, send: Any) -> Any:
        """`receive` of a WebSocket whose messages are checked; a message beyond the limits ends the connection."""

        async def checked() -> Any:
            message = await receive()
            content = message.get("text") if message.get("text") is not None else message.get("bytes")
            data = content.encode() if isinstance(content, str) else content
            if message["type"] != "websocket.receive" or data is None:
                return message
            try:
                if len(data) > self.limits.body_bytes:
                    raise too_long(len(data), self.limits.body_bytes)
                json_value(data, self.limits)
            except Refusal as refusal:
                code = 1009 if refusal.status == 413 else 1008
                with suppress(Exception):  # the client is gone
                    await send({"type": "websocket.close", "code": code, "reason": str(refusal)[:100]})
                return {"type": "websocket.disconnect", "code": code}
            return message

        return checked


def _values(scope: dict[str, Any], name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope.get("headers", ()) if key == name]


async def _refuse(scope: dict[str, Any], receive: Any, send: Any, refusal: Refusal) -> None:
    """Send a refusal: a JSON object with the sentence, or the end of a WebSocket that was not accepted."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": str(refusal)[:100]})
        return
    body = json.dumps({"error": str(refusal)}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    headers += [(b"www-authenticate", b"Bearer")] if refusal.status == 401 else []
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    if refusal.status == 413:
        await _drain(receive)
    await send({"type": "http.response.body", "body": b""})  # the connection ends


async def _drain(receive: Any) -> None:
    """Read and drop the rest of a body; a client that is still sending would not read the response."""
    ends, left = time.monotonic() + DRAIN_S, DRAINED_BYTES
    while left > 0:
        try:
            message = await asyncio.wait_for(receive(), max(0.0, ends - time.monotonic()))
        except TimeoutError:
            return
        left -= len(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            return


def limited_protocol(limits: HttpLimits = LIMITS) -> type:
    """The HTTP protocol for `uvicorn.Config(http=...)` that bounds connections and the time for a request's head.

    uvicorn itself waits for ever for the head of a request, and keeps any number of such connections.
    """
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Limited(H11Protocol):
        timer: Any = None  # runs while the connection waits for its client
        since = 0.0

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > limits.connections and not self._make_room():
                transport.write(FULL)
                transport.close()
                return
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def _watch(self) -> None:
            answering = self.cycle is not None and not self.cycle.response_complete
            if answering or self.transport.is_closing() or self.transport.get_protocol() is not self:
                self._stop()
            elif self.timer is None:
                self.since = time.monotonic()
                self.timer = self.loop.call_later(limits.head_s, self.transport.close)

        def _stop(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

        def _make_room(self) -> bool:
            """Close the connection that has waited longest for its client; False if no connection waits."""
            waiting: list[Any] = [one for one in self.connections if getattr(one, "timer", None) is not None]
            if waiting:
                oldest = min(waiting, key=lambda one: one.since)
                oldest._stop()
                oldest.transport.abort()
            return bool(waiting)

    return Limited


BUSY = "this server has as many connections as it may have: try again"
_BUSY_BODY = json.dumps(
    {"error": {"message": BUSY, "type": "server_busy", "param": None, "code": "server_busy"}}
).encode()
# The response to a connection beyond the limit; it is sent before a request is read.
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_BUSY_BODY), _BUSY_BODY)
)
