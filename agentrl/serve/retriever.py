"""A search server that speaks the protocol of Search-R1."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from agentrl.tool import Passage, Retriever, ToolFault

BODY_BYTES = 64 << 20  # largest size of a request's body
MAX_TOPK = 1000  # largest number of passages per query, if the caller of `serve_retriever` sets none


class Question(NamedTuple):
    """A valid request: the queries, the number of passages per query, and whether to return scores."""

    queries: list[str]
    topk: int
    scores: bool


class Refused(ValueError):
    """A request that cannot be answered; `status` is the HTTP status of the response."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def serve_retriever(
    retriever: Retriever, host: str, port: int, topk: int, max_batch: int, max_topk: int = MAX_TOPK
) -> ThreadingHTTPServer:
    """A server that is bound to its port and not yet running; OSError if the port is in use.

    Args:
        retriever: carries out the searches.
        host: address to bind.
        port: port to bind; 0 for any free port.
        topk: number of passages per query if `topk` is missing or 0 in the request.
        max_batch: largest number of queries per request; the server refuses a request with more queries.
        max_topk: largest number of passages per query; the server refuses a request for more passages.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # clients reuse connections
        timeout = 60.0  # seconds after which an idle connection is closed
        wbufsize = 1 << 16  # sends head and body together, so that the client need not wait for two packets
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            if self.path.partition("?")[0] == "/health":
                self.answer(200, {"status": "ok"})
            else:
                self.answer(404, {"error": f"no {self.path}: GET /health or POST /retrieve"})

        def do_POST(self) -> None:
            try:
                question = _question(self.path, self.body(), topk, max_batch, max_topk)
                self.answer(200, {"result": _result(retriever, question)})
            except Refused as refusal:
                self.answer(refusal.status, {"error": str(refusal)})
            except ToolFault as fault:  # another retriever, to which this server forwards queries, has failed
                self.answer(502, {"error": str(fault)})
            except Exception as error:  # noqa: BLE001  the client gets the error; the server must not end
                self.answer(500, {"error": f"{type(error).__name__}: {error}"})

        def body(self) -> bytes:
            length = self.headers.get("content-length", "")
            if not length.isdecimal() or int(length) > BODY_BYTES:
                self.close_connection = True
                raise Refused(413 if length.isdecimal() else 411, f"content-length must be 0 to {BODY_BYTES}")
            return self.rfile.read(int(length))

        def answer(self, status: int, content_json: Any) -> None:
            content = json.dumps(content_json).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: a batch of episodes sends thousands of requests per second."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 1024  # all episodes of a batch connect at the same time

    return Server((host, port), Handler)


def _question(path: str, body: bytes, topk: int, max_batch: int, max_topk: int) -> Question:
    """The question in a request; raises Refused if the request is not valid."""
    if path.partition("?")[0] != "/retrieve":
        raise Refused(404, f"no {path}: GET /health or POST /retrieve")
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the request is not JSON: {error}") from None
    if not isinstance(request, dict):
        raise Refused(400, "the request is no JSON object: send {queries: [...], topk: 3, return_scores: true}")
    queries = request["queries"] if "queries" in request else request.get("query")
    queries = [queries] if isinstance(queries, str) else queries
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise Refused(400, "the request names no queries: send queries (a list of texts) or query (a text)")
    if len(queries) > max_batch:
        raise Refused(413, f"{len(queries)} queries in one request, the limit is {max_batch} (--max-batch)")
    k = request.get("topk") or topk
    if not isinstance(k, int) or isinstance(k, bool) or k < 0:
        raise Refused(400, f"topk = {k!r} is no number of passages")
    if k > max_topk:
        raise Refused(413, f"topk = {k} passages per query, the limit is {max_topk} (--max-top-k)")
    return Question(queries, k, bool(request.get("return_scores", False)))


def _result(retriever: Retriever, question: Question) -> list[list[Any]]:
    hits = retriever.search(question.queries, question.topk) if question.queries else []
    return [[_item(passage, question.scores) for passage in passages] for passages in hits]


def _item(passage: Passage, scores: bool) -> dict[str, Any]:
    document = {"id": passage.id, "contents": passage.contents}
    return {"document": document, "score": passage.score} if scores else document
