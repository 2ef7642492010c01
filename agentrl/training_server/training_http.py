"""The HTTP server of a training service."""

import hmac
import threading
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any
from urllib.parse import parse_qsl, unquote

from agentrl.http import LIMITS, HttpHandler, HttpServer, Refusal, json_object
from agentrl.training_server.body_fields import text
from agentrl.training_server.json_form import result_json
from agentrl.training_server.promises import PromiseFailure
from agentrl.training_server.protobuf_form import MEDIA_TYPE, messages, result_bytes
from agentrl.training_server.routes import Routes, no_route
from agentrl.training_server.service import TrainingService
from agentrl.training_server.verbs import PlainResult

PREFIX = "/api/v1/"
LARGE = 1 << 20  # bytes; of larger bodies, only a few are read at a time
LARGE_AT_ONCE = 4
HTTP_LIMITS = LIMITS._replace(connections=1024, body_bytes=32 << 20, items=4_000_000)


class TrainingHandler(HttpHandler):
    """One connection. A subclass of `serve_trainer` has the class attributes."""

    allow = ("GET", "POST", "PUT", "DELETE")
    routes: Routes
    token: str
    large: threading.Semaphore

    def get(self) -> None:
        """Answer GET, PUT and DELETE."""
        self._check_token()
        if self.command == "PUT":
            self.send(200, self.routes.put(self._route(), json_object(self._whole_body() or b"{}")))
        elif self.command == "DELETE":
            self.routes.delete(self._route())
            self.send(204, b"")
        else:
            self.send(200, self.routes.get(self._route(), dict(parse_qsl(self.path.partition("?")[2]))))

    def post(self) -> None:
        """Answer POST."""
        self._check_token()
        route = self._route()
        with self.large if (self._length or 0) > LARGE else nullcontext():
            data = self._whole_body()
            if self.headers.get("content-type", "").startswith(MEDIA_TYPE):
                answer = self.routes.post_protobuf(route, data)
            elif route == "retrieve_future":
                answer = None
            else:
                answer = self.routes.post(route, json_object(data or b"{}", limits=self.limits))
        if answer is None:
            self._retrieve(text(json_object(data), "request_id"))
        else:
            self.send(200, answer)

    def _retrieve(self, name: str) -> None:
        """Send the outcome of a promise, or that the client shall ask again."""
        service = self.routes.service
        outcome = service.promises.wait(name, service.limits.answer_s)
        if outcome is None:
            self.send(408, {"type": "try_again", "request_id": name, "queue_state": "active"})
        elif isinstance(outcome, PromiseFailure):
            self.send(200, {"error": outcome.sentence, "category": "user" if outcome.user else "server"})
        elif isinstance(outcome, PlainResult) or MEDIA_TYPE not in self.headers.get("accept", "") or not messages():
            self.send(200, result_json(outcome))
        else:
            self.send(200, result_bytes(outcome), MEDIA_TYPE)

    def _check_token(self) -> None:
        """Refusal if the server has a token, and the request another one or none."""
        given = self.headers.get("x-api-key", "")
        if self.token and not hmac.compare_digest(given.encode(), self.token.encode()):
            raise Refusal(
                401, "the API key is missing or wrong: set TINKER_API_KEY to the token of this server", "no_token"
            )

    def _whole_body(self) -> bytes:
        if self.headers.get("content-encoding", "identity") != "identity":
            raise Refusal(415, "this server reads no compressed bodies: send them without content-encoding")
        return self.body() if self._length is not None else b""

    def _route(self) -> str:
        path = self.path.partition("?")[0]
        if not path.startswith(PREFIX):
            raise no_route(path)
        return unquote(path.removeprefix(PREFIX))

    def refuse(self, error: Exception) -> None:
        """Send the error as this protocol's clients read it."""
        status = error.status if isinstance(error, Refusal) else 500
        words = str(error) if isinstance(error, Refusal) else f"{type(error).__name__}: {error}"
        sentence = " ".join(words.split())[:1000]
        self.send(status, {"detail": sentence, "error": sentence})


def serve_trainer(
    service: TrainingService,
    host: str,
    port: int,
    *,
    token: str = "",
    allowed: Iterable[str] = (),
    handler: type[TrainingHandler] = TrainingHandler,
) -> HttpServer:
    """A server of a service that is bound to its port and not yet running.

    Args:
        service: the service; the caller starts and stops it.
        host, port: where to listen; port 0 takes any free port.
        token: what clients must send as their API key (header X-API-Key); empty for nothing.
        allowed: host names for which the server answers, besides those of the loopback and `host`.
        handler: answers the requests of one connection.

    Raises:
        ValueError: the port cannot be used, or one of `allowed` is no host name.
    """
    attributes: dict[str, Any] = {
        "routes": Routes(service),
        "token": token,
        "large": threading.BoundedSemaphore(LARGE_AT_ONCE),
    }
    return HttpServer(host, port, type("Bound", (handler,), attributes), allowed=allowed, limits=HTTP_LIMITS)
