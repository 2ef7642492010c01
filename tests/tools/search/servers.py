"""A small search server in a process of its own, speaking any dialect, or misbehaving: `python servers.py DIALECT HOW`.

It answers query q with documents "q 0", "q 1", ... HOW is `well`, or a fault: `500:N` and `429:N` (that status to the
first N requests), `die:N` (the process ends at request N), `slow:S` (waits S seconds), `drip:S` (S seconds between two
bytes), `rubbish`, `short` (a list too few), `bad:WORD` (500 to every request that holds WORD), `refuse` (422).
"""

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgpack


def documents(query: str, k: int) -> list[dict]:
    return [{"id": f"{query}/{i}", "contents": f'"{query} {i}"\nabout {query}'} for i in range(k)]


def scored(query: str, k: int) -> list[dict]:
    return [{"document": d, "score": 1.0 / (1 + i)} for i, d in enumerate(documents(query, k))]


def reply(dialect: str, asked: dict) -> object:
    """What each dialect's server answers; KeyError where it is asked for in another one."""
    if dialect == "skyrl":
        assert isinstance(asked["query"], str) and "queries" not in asked
        return {"result": [scored(asked["query"], asked["topk"])]}
    if dialect == "gem":  # the older form: one query, a flat list
        return {"result": scored(asked["query"], asked["topk"])}
    if dialect == "gem_lists":  # the newer one
        return {"result": [scored(q, asked["topk"]) for q in asked["queries"]]}
    if dialect == "rerank":
        assert asked["topk_retrieval"] > asked["topk_rerank"]
        texts = [[d["contents"] for d in documents(q, asked["topk_rerank"])] for q in asked["queries"]]
        return {"result": [[{"document": t, "score": 0.5} for t in one] for one in texts]}
    if dialect == "serp":
        assert set(asked) == {"queries"}
        return {"result": [[{"document": d} for d in documents(q, 10)] for q in asked["queries"]]}
    if dialect == "bare":  # the reference server without scores
        return {"result": [documents(q, asked["topk"]) for q in asked["queries"]]}
    if not asked["return_scores"]:
        raise ValueError("not enough values to unpack")
    return {"result": [scored(q, asked["topk"] or 3) for q in asked["queries"]]}


def run(dialect: str, how: str) -> None:
    fault, _, number = how.partition(":")
    count = itertools.count(1)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            at = next(count)
            if fault in ("500", "429") and at <= int(number):
                self.say(int(fault), b"busy")
                return
            if fault == "die" and at >= int(number):
                os._exit(1)
            if fault == "slow":
                time.sleep(float(number))
            if fault == "rubbish":
                self.say(200, b"<html>It works!</html>")
                return
            if fault == "refuse":
                self.say(422, b'{"detail": "field required: docs"}')
                return
            if fault == "bad" and number.encode() in body:
                self.say(500, b"cannot encode")
                return
            packs = dialect.startswith("gem")
            told = reply(dialect, msgpack.unpackb(body) if packs else json.loads(body))
            if fault == "short":
                told = {"result": told["result"][:-1]}
            self.say(200, msgpack.packb(told) if packs else json.dumps(told).encode())

        def say(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            if fault == "drip":
                for byte in content:
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    time.sleep(float(number))
                return
            self.wfile.write(content)

        def log_message(self, *args) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128  # episodes connect at once

    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


@contextmanager
def server(dialect: str = "search_r1", how: str = "well") -> Iterator[str]:
    """Its address; the process is gone afterwards."""
    command = [sys.executable, __file__, dialect, how]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/retrieve"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    run(*sys.argv[1:])
