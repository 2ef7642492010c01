"""A server that speaks E2B's wire protocol: sandboxes, contexts, executions as JSON lines. Code really runs, here."""

import itertools
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agentrl.tools._sandbox.launch import Limits
from agentrl.tools._sandbox.session import LocalSession

KEY = "e2b_" + "0" * 40


class Stub(ThreadingHTTPServer):
    """Sandboxes by id, each with the interpreters of its contexts; every request is kept in `seen`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.sandboxes: dict[str, dict[str, LocalSession]] = {}
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.created: list[dict[str, Any]] = []
        self.numbers = itertools.count()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        for contexts in self.sandboxes.values():
            for session in contexts.values():
                session.close()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gave up is no error."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Stub

    def log_message(self, *words: object) -> None:
        pass

    def do_GET(self) -> None:
        self._route()

    def do_POST(self) -> None:
        self._route()

    def do_DELETE(self) -> None:
        self._route()

    def _route(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append((self.command, self.path, headers))
        data = json.loads(body) if body else {}
        path = self.path.partition("?")[0].removeprefix("/v2").strip("/").split("/")
        match (self.command, *path):
            case ("POST", "sandboxes"):
                self._create(headers, data)
            case ("DELETE", "sandboxes", name):
                contexts = self.server.sandboxes.pop(name, None)
                for session in (contexts or {}).values():
                    session.close()
                self._send(204 if contexts is not None else 404, {"code": 404, "message": "no such sandbox"})
            case ("GET", "health"):
                self._send(204 if headers.get("e2b-sandbox-id") in self.server.sandboxes else 502, {})
            case ("POST", "execute"):
                self._execute(headers, data)
            case _:
                self._send(404, {"code": 404, "message": f"no {self.path}"})

    def _create(self, headers: dict[str, str], data: dict[str, Any]) -> None:
        if headers.get("x-api-key") != KEY:
            self._send(401, {"code": 401, "message": "Invalid API key"})
            return
        name = f"sandbox{next(self.server.numbers)}"
        self.server.created.append(data)
        self.server.sandboxes[name] = {}
        told = {"templateID": "code-interpreter-v1", "sandboxID": name, "clientID": "c", "envdVersion": "0.4.0"}
        self._send(201, {**told, "envdAccessToken": "token"})

    def _execute(self, headers: dict[str, str], data: dict[str, Any]) -> None:
        contexts = self.server.sandboxes.get(headers.get("e2b-sandbox-id", ""))
        if contexts is None or headers.get("x-access-token") != "token" or headers.get("e2b-sandbox-port") != "49999":
            message = "The sandbox was not found"
            self._send(502, {"code": 502, "message": message, "sandboxId": headers.get("e2b-sandbox-id")})
            return
        if "HANG" in data["code"]:
            time.sleep(3)
        session = contexts.setdefault(data["context_id"] or "default", LocalSession("unsafe-host", Limits()))
        result = session.run(data["code"])
        events: list[dict[str, Any]] = [{"type": "number_of_executions", "execution_count": 1}]
        stamp = "2026-01-01T00:00:00Z"
        events += [{"type": "stdout", "text": line, "timestamp": stamp} for line in result.stdout.splitlines(True)]
        if result.stderr:
            events.append({"type": "stderr", "text": result.stderr, "timestamp": stamp})
        if result.result_text:
            events.append({"type": "result", "text": result.result_text, "is_main_result": True})
        if "PLOT" in data["code"]:
            events.append({"type": "result", "png": "iVBORw==", "text": "<Figure>", "is_main_result": False})
        if result.error_name:
            told = {"name": result.error_name, "value": result.error_value, "traceback": result.traceback}
            events.append({"type": "error", **told})
        self._send(200, "".join(json.dumps(event) + "\n" for event in events).encode())

    def _send(self, status: int, body: dict[str, Any] | bytes) -> None:
        data = b"" if status == 204 else body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
