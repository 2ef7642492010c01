"""A search server of the Search-R1 protocol."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from agentrl.tool import Passage, Retriever, ToolFault

BODY_BYTES = 64 << 20  # longest request


class Question(NamedTuple):
    """A request that was understood."""

    queries: list[str]
    topk: int
    scores: bool


class Refused(ValueError):
    """A request that cannot be answered, and the status that says so."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def serve_retriever(retriever: Retriever, host: str, port: int, topk: int, max_batch: int) -> ThreadingHTTPServer:
    """A server that is bound and not yet running; OSError if the port is taken."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections are kept
        timeout = 60.0  # seconds an idle connection is kept
        wbufsize = 1 << 16  # head and body leave together, or the asker waits for a delayed acknowledgement
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            if self.path.partition("?")[0] == "/health":
                self.answer(200, {"status": "ok"})
            else:
                self.answer(404, {"error": f"no {self.path}: GET /health or POST /retrieve"})

        def do_POST(self) -> None:
            try:
                asked = _question(self.path, self.body(), topk, max_batch)
                self.answer(200, {"result": _result(retriever, asked)})
            except Refused as refusal:
                self.answer(refusal.status, {"error": str(refusal)})
            except ToolFault as fault:  # a retriever behind this one
                self.answer(502, {"error": str(fault)})
            except Exception as error:  # noqa: BLE001  the asker is told, the server lives on
                self.answer(500, {"error": f"{type(error).__name__}: {error}"})

        def body(self) -> bytes:
            length = self.headers.get("content-length", "")
            if not length.isdecimal() or int(length) > BODY_BYTES:
                self.close_connection = True
                raise Refused(413 if length.isdecimal() else 411, f"content-length must be 0 to {BODY_BYTES}")
            return self.rfile.read(int(length))

        def answer(self, status: int, told: Any) -> None:
            content = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: thousands of lines a second help nobody."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 1024  # a batch of episodes connects at once

    return Server((host, port), Handler)


def _question(path: str, body: bytes, topk: int, max_batch: int) -> Question:
    """What is asked; Refused if that cannot be told."""
    if path.partition("?")[0] != "/retrieve":
        raise Refused(404, f"no {path}: GET /health or POST /retrieve")
    try:
        told = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the request is not JSON: {error}") from None
    if not isinstance(told, dict):
        raise Refused(400, "the request is no JSON object: send {queries: [...], topk: 3, return_scores: true}")
    queries = told["queries"] if "queries" in told else told.get("query")
    queries = [queries] if isinstance(queries, str) else queries
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise Refused(400, "the request names no queries: send queries (a list of texts) or query (a text)")
    if len(queries) > max_batch:
        raise Refused(413, f"{len(queries)} queries in one request, the limit is {max_batch} (--max-batch)")
    k = told.get("topk") or topk
    if not isinstance(k, int) or isinstance(k, bool) or k < 0:
        raise Refused(400, f"topk = {k!r} is no number of passages")
    return Question(queries, k, bool(told.get("return_scores", False)))


def _result(retriever: Retriever, asked: Question) -> list[list[Any]]:
    found = retriever.search(asked.queries, asked.topk) if asked.queries else []
    return [[_item(passage, asked.scores) for passage in passages] for passages in found]


def _item(passage: Passage, scores: bool) -> dict[str, Any]:
    document = {"id": passage.id, "contents": passage.contents}
    return {"document": document, "score": passage.score} if scores else document
