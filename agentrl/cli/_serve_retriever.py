"""`agentrl serve retriever --corpus FILE [options] [key=value ...]`: a search server of the Search-R1 protocol.

POST /retrieve takes JSON with `queries` (a list) or `query` (a text), `topk` (0 or null: --topk) and `return_scores`,
and answers {"result": [[...], ...]}, one list a query; GET /health tells that it is up. key=value are options of the
search tool, such as backend=faiss faiss.encoder=intfloat/e5-base-v2 or bm25.k1=1.2.
"""

import json
import signal
import sys
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from agentrl import catalogue
from agentrl.cli._parser import Parser, positive
from agentrl.config import merge, override, validate
from agentrl.tool.protocol import ToolFault
from agentrl.tool.retrieval import Passage, Retriever

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


def main(words: Sequence[str]) -> int:
    """See the module."""
    parser = Parser("agentrl serve retriever", __doc__)
    parser.add_argument("options", nargs="*", metavar="key=value")
    parser.add_argument("--corpus", help="a JSONL file, one passage a line: id and contents, or title and text")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes any that is free")
    parser.add_argument("--topk", type=positive, default=3, help="passages of a query that does not say")
    parser.add_argument("--max-batch", type=positive, default=512, help="most queries of one request")
    given = parser.parse_intermixed_args(list(words))
    if not 0 <= given.port < 1 << 16:
        raise ValueError(f"--port {given.port} is no port: give a number from 0 to 65535")
    retriever = _retriever(given.corpus, given.options)
    try:
        server = serve(retriever, given.host, given.port, given.topk, given.max_batch)
    except OSError as error:
        why = f"{error.strerror or error}: choose another --port, or 0 for any that is free"
        raise ValueError(f"cannot listen at {given.host}:{given.port}: {why}") from None
    print(f"retriever at http://{given.host}:{server.server_address[1]}/retrieve", flush=True)
    signal.signal(signal.SIGTERM, lambda signum, frame: threading.Thread(target=server.shutdown).start())
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print("agentrl: stopped", file=sys.stderr)
    finally:
        server.server_close()
    return 0


def _retriever(corpus: str | None, options: Sequence[str]) -> Retriever:
    """The search tool under some options; the corpus belongs to whichever backend they choose."""
    module = catalogue.load("tools", "search")
    tables = override({}, options)
    if corpus is not None:
        tables = merge(tables, {str(tables.get("backend", "bm25")): {"corpus": corpus}})
    retriever: Retriever = module.make(validate(module.Config, tables, "search"))
    return retriever


def serve(retriever: Retriever, host: str, port: int, topk: int, max_batch: int) -> ThreadingHTTPServer:
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
    except ValueError as error:
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
