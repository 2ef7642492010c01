"""`agentrl serve retriever --corpus FILE [options] [key=value ...]`: a search server of the Search-R1 protocol.

POST /retrieve takes JSON with `queries` (a list) or `query` (a text), `topk` and `return_scores`. If `topk` is missing,
0 or null, --top-k applies. The server returns {"result": [[...], ...]}, one list of passages per query. GET /health
answers as soon as the server is ready. key=value are options of the search tool, such as backend=faiss
faiss.encoder=intfloat/e5-base-v2 or bm25.k1=1.2.
"""

import signal
import sys
import threading
from collections.abc import Sequence

from agentrl import catalogue
from agentrl.cli._parser import Parser, positive
from agentrl.config import merge, override, validate
from agentrl.serve import serve_retriever
from agentrl.tool import Retriever, ToolFile


def main(words: Sequence[str]) -> int:
    """See the module."""
    parser = Parser("agentrl serve retriever", __doc__)
    parser.add_argument("options", nargs="*", metavar="key=value")
    parser.add_argument("--corpus", help="a JSONL file, one passage per line: id and contents, or title and text")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes any free port")
    parser.add_argument("--top-k", type=positive, default=3, help="passages per query if the request has no topk")
    parser.add_argument(
        "--max-batch",
        type=positive,
        default=512,
        help="largest number of queries per request; the server refuses a request with more",
    )
    parser.add_argument(
        "--max-top-k",
        type=positive,
        default=1000,
        help="largest topk of a request; the server refuses a request with a larger topk",
    )
    arguments = parser.parse_intermixed_args(list(words))
    if not 0 <= arguments.port < 1 << 16:
        raise ValueError(f"--port {arguments.port} is no port: give a number from 0 to 65535")
    if arguments.top_k > arguments.max_top_k:
        raise ValueError(f"--top-k {arguments.top_k} is more than --max-top-k {arguments.max_top_k}: raise --max-top-k")
    retriever = _retriever(arguments.corpus, arguments.options)
    try:
        most = (arguments.top_k, arguments.max_batch, arguments.max_top_k)
        server = serve_retriever(retriever, arguments.host, arguments.port, *most)
    except OSError as error:
        why = f"{error.strerror or error}: choose another --port, or 0 for any free port"
        raise ValueError(f"cannot listen at {arguments.host}:{arguments.port}: {why}") from None
    print(f"retriever at http://{arguments.host}:{server.server_address[1]}/retrieve", flush=True)
    signal.signal(signal.SIGTERM, lambda signum, frame: threading.Thread(target=server.shutdown).start())
    try:
        server.serve_forever()  # until SIGTERM or Ctrl-C
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
    print("agentrl: stopped", file=sys.stderr)
    return 0


def _retriever(corpus: str | None, options: Sequence[str]) -> Retriever:
    """The search tool with these options; `corpus` becomes the option `corpus` of the backend that they choose."""
    search = catalogue.load(ToolFile, "search")
    tables = override({}, options)
    if corpus is not None:
        tables = merge(tables, {str(tables.get("backend", "bm25")): {"corpus": corpus}})
    retriever: Retriever = search.make(validate(search.config, tables, "search"))
    return retriever
