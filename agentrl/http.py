"""What the HTTP servers of agentrl share: a server with one thread per connection, and a handler that answers in JSON.

A subclass of `HttpHandler` has `get` and `post`. They send one response by `send`, or raise. `refuse` sends a response
for an exception.
"""

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BODY_BYTES = 64 << 20  # largest number of bytes of a request body


class Refusal(Exception):
    """The server does not answer a request; `status` is the HTTP status, `code` is the error code for programs."""

    def __init__(self, status: int, message: str, code: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.status, self.code = status, code


def cannot_listen(host: str, port: int, error: OSError) -> ValueError:
    """The exception for a port that cannot be used."""
    why = f"{error.strerror or error}: choose another --port, or 0 for any free port"
    return ValueError(f"cannot listen at {host}:{port}: {why}")


def json_object(body: bytes, example: str = "") -> dict[str, Any]:
    """The JSON object in a request's body; Refusal if it is none. `example` ends the sentence on other JSON values."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the request is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Refusal(400, f"the request is no JSON object{example and f': {example}'}")
    return found


class HttpServer(ThreadingHTTPServer):
    """A server that is bound to its port and not yet running.

    `serve_forever` runs it in this thread, `start` in a new one; `server_close` frees the port, `stop` also ends the
    thread of `start`.

    Raises:
        ValueError: the port cannot be used.
    """

    daemon_threads = True
    request_queue_size = 1024  # all episodes of a batch connect at the same time

    def __init__(self, host: str, port: int, handler: type["HttpHandler"]) -> None:
        try:
            super().__init__((host, port), handler)
        except OSError as error:
            raise cannot_listen(host, port, error) from None
        self.url = f"http://{host}:{self.server_address[1]}"

    def start(self, name: str) -> None:
        """Answer requests in a new thread of this name."""
        threading.Thread(target=self.serve_forever, name=name, daemon=True).start()

    def stop(self) -> None:
        """End `serve_forever`, which must be running, and free the port."""
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: usually the client has closed its connection."""


class HttpHandler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"  # clients reuse connections
    timeout = 60.0  # seconds after which an idle connection is closed
    wbufsize = 1 << 16  # send head and body together; else the client waits for a delayed acknowledgement
    disable_nagle_algorithm = True

    def get(self) -> None:
        """Answer a GET request."""
        raise NotImplementedError

    def post(self) -> None:
        """Answer a POST request."""
        raise NotImplementedError

    def do_GET(self) -> None:
        self._answer(self.get)

    def do_POST(self) -> None:
        self._answer(self.post)

    def _answer(self, respond: Callable[[], None]) -> None:
        try:
            respond()
        except Exception as error:  # noqa: BLE001  the client gets the error; the server must not end
            try:
                self.refuse(error)
            except OSError:  # the client has closed the connection
                self.close_connection = True

    def refuse(self, error: Exception) -> None:
        """Send the response for an exception: the status of a Refusal, or 500."""
        text = str(error) if isinstance(error, Refusal) else f"{type(error).__name__}: {error}"
        self.send(error.status if isinstance(error, Refusal) else 500, {"error": text})

    def body(self) -> bytes:
        """The body of the request; Refusal if it is too large, or its length is not given."""
        length = self.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > BODY_BYTES:
            self.close_connection = True
            raise Refusal(413 if length.isdecimal() else 411, f"content-length must be a number from 0 to {BODY_BYTES}")
        return self.rfile.read(int(length))

    def send(
        self, status: int, content: Any, kind: str = "application/json", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a response; `content` is sent as JSON, except bytes."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "content-type": kind, "content-length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a batch of episodes sends thousands of requests, and an address may hold a token."""
