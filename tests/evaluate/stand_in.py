"""A stand-in for an OpenAI-compatible server: chat completions over HTTP, with tools, errors and silences."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def answer(
    content: str | None = None,
    *,
    calls: list[tuple[str, str]] = (),
    finish: str = "",
    tokens: int = 10,
    **message: Any,
) -> dict[str, Any]:
    """The body of a completion; `calls` are pairs of a tool's name and its arguments as JSON text."""
    asked = [
        {"id": f"id-{n}-{name}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate(calls)
    ]
    said = {"role": "assistant", "content": content, **message, **({"tool_calls": asked} if asked else {})}
    why = finish or ("tool_calls" if asked else "stop")
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": why, "message": said}],
        "usage": {"prompt_tokens": 100, "completion_tokens": tokens, "total_tokens": 100 + tokens},
    }


def error(message: str, code: str | None = None) -> dict[str, Any]:
    """The body of an error."""
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


Reply = dict[str, Any] | tuple[int, dict[str, Any] | str] | None


class Quiet(ThreadingHTTPServer):
    """A server that prints nothing if a client closes its connection before it has the answer."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class StandIn:
    """A server whose answers are `reply(body)`: a body, (status, body or the text of a page), or None, which
    closes the connection.

    It checks the protocol: every tool call of the history is answered by a tool message with its id, and the other
    way round; a request that breaks this rule gets a 400, and is in `broken`.
    """

    def __init__(self, reply: Callable[[dict[str, Any]], Reply]) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.broken: list[str] = []
        self.ended = threading.Event()
        outer, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with lock:
                    outer.bodies.append(body)
                    outer.headers.append(dict(self.headers))
                wrong = protocol_fault(body["messages"])
                if wrong:
                    outer.broken.append(wrong)
                made = (400, error(wrong)) if wrong else reply(body)
                if made is None:
                    self.close_connection = True
                    return
                status, payload = made if isinstance(made, tuple) else (200, made)
                data = (payload if isinstance(payload, str) else json.dumps(payload)).encode()
                self.send_response(status)
                self.send_header("content-type", "text/html" if isinstance(payload, str) else "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self.http = Quiet(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def word(self) -> str:
        """The word of `--policy`."""
        return f"openai:m@http://127.0.0.1:{self.http.server_port}/v1"

    @property
    def played(self) -> list[dict[str, Any]]:
        """The bodies of requests that belong to episodes."""
        return [body for body in self.bodies if not is_probe(body)]

    def stall(self) -> None:
        """Give no answer, until the server ends."""
        self.ended.wait()

    def close(self) -> None:
        self.ended.set()
        self.http.shutdown()
        self.http.server_close()


def is_probe(body: dict[str, Any]) -> bool:
    """Is it the first short request of an evaluation?"""
    return body["messages"] == [{"role": "user", "content": "Reply with the word ready."}]


def protocol_fault(messages: list[dict[str, Any]]) -> str:
    """What is wrong with a history; empty if it follows the protocol of tool calls."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message.get("tool_call_id") not in waiting:
                return "a tool message answers no call"
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return f"tool_calls must be followed by tool messages: {waiting}"
        for call in message.get("tool_calls", ()):
            if not isinstance(json.loads(call["function"]["arguments"]), dict):
                return "arguments are no JSON object"
            waiting.append(call["id"])
    return f"tool_calls must be followed by tool messages: {waiting}" if waiting else ""
