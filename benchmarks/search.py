"""Search: queries per CPU second, each against the way its peer is used.

    python benchmarks/search.py [--queries 2000] [--threads 64] [--json]

index     the embedded world's own index, against `bm25s.BM25.retrieve` (one query per call) on the same passages and k
bm25      the bm25 tool, against the same call of bm25s, on which the tool is built
http      64 threads that query one server through our client (open connections, several queries per request, no cache),
          against the way of the published clients: a new connection and one request per query
cached    the same client when groups of 8 rollouts send the same query, against the client without a cache

CPU seconds of the process that asks and of the server together; both sides in one run.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bm25s
import httpx

from agentrl.envs.search_qa.encyclopaedia import World, world
from agentrl.envs.search_qa.lexicon import lexicon
from agentrl.tools.search.bm25 import Bm25, Bm25Config
from agentrl.tools.search.http import Http, HttpConfig

K = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--world", default="medium")
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    made = world(given.world, 0)
    queries = [f"{name} {i}" for i, name in enumerate(random.Random(0).choices(sorted(made.called), k=given.queries))]
    with tempfile.TemporaryDirectory() as folder:
        corpus = write(made, Path(folder) / "corpus.jsonl")
        result = {
            "machine": f"{platform.machine()}, Python {platform.python_version()}, bm25s {bm25s.__version__}",
            "passages": len(made.passages),
            "queries": len(queries),
            **local(given.world, made, corpus, queries),
            **remote(corpus, queries, given.threads),
        }
    print(json.dumps(result, indent=None if given.json else 1))


def write(made: World, path: Path) -> Path:
    path.write_text("".join(json.dumps({"id": p.id, "contents": p.contents}) + "\n" for p in made.passages))
    return path


def cpu_s(work: Callable[[], Any]) -> float:
    """CPU seconds of this process, all its threads."""
    start = time.process_time()
    work()
    return time.process_time() - start


def compare(ours: float, theirs: float, count: int) -> dict[str, float]:
    """Queries per CPU second of both, and the ratio."""
    return {"ours_qps": round(count / ours), "peer_qps": round(count / theirs), "ratio": round(theirs / ours, 2)}


def local(name: str, made: World, corpus: Path, queries: list[str]) -> dict[str, Any]:
    """In this process, one query per call."""
    texts = [p.contents for p in made.passages]
    library = bm25s.BM25(k1=0.9, b=0.4)
    library.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)

    def peer() -> None:
        for query in queries:
            tokens = bm25s.tokenize([query], show_progress=False)
            library.retrieve(tokens, corpus=texts, k=K, show_progress=False)

    own, tool = lexicon(name, 0), Bm25(Bm25Config(corpus=str(corpus)))
    theirs = cpu_s(peer)
    return {
        "index": compare(cpu_s(lambda: [own.search([q], K) for q in queries]), theirs, len(queries)),
        "bm25": compare(cpu_s(lambda: [tool.search([q], K) for q in queries]), theirs, len(queries)),
    }


@contextmanager
def server(corpus: Path) -> Iterator[tuple[str, Callable[[], float]]]:
    """`agentrl serve retriever` as a process: its address, and its CPU seconds so far."""
    command = [sys.executable, "-m", "agentrl", "serve", "retriever", "--corpus", str(corpus), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None

    def spent() -> float:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    try:
        yield process.stdout.readline().split()[-1], spent
    finally:
        process.terminate()
        process.wait()


def remote(corpus: Path, queries: list[str], threads: int) -> dict[str, Any]:
    """Threads asking one server."""
    with server(corpus) as (url, spent):

        def timed(ask: Callable[[str], Any], asked: list[str]) -> float:
            before = spent()
            return cpu_s(lambda: together(ask, asked, threads)) + spent() - before

        context = httpx.create_ssl_context()  # a client that is made anew for each query need not read certificates

        def plain(query: str) -> None:
            told = {"queries": [query], "topk": K, "return_scores": True}
            with httpx.Client(verify=context, timeout=60.0) as client:
                client.post(url, json=told).json()["result"]

        client = Http(HttpConfig(urls=(url,), cache=0))
        ours = timed(lambda query: client.search([query], K), queries)
        theirs = timed(plain, queries)
        groups = [query for query in queries[: len(queries) // 8] for _ in range(8)]
        cached = Http(HttpConfig(urls=(url,)))
        kept = timed(lambda query: cached.search([query], K), groups)
        again = timed(lambda query: client.search([query], K), groups)
    return {"http": compare(ours, theirs, len(queries)), "cached": compare(kept, again, len(groups))}


def together(ask: Callable[[str], Any], queries: list[str], threads: int) -> None:
    """The queries, divided over `threads` threads."""
    deals = [queries[i::threads] for i in range(threads)]
    workers = [threading.Thread(target=lambda own: [ask(q) for q in own], args=(own,)) for own in deals]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
