"""An MCP server on stdio written by hand; it lists and answers what no library would: `raw_mcp_server.py MODE`."""

import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

NUMBER = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def of(**a: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": a}}


LAUGHS = {f"d{i}": of(**{"$ref": f"#/$defs/d{i + 1}"}) | {"not": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(40)}
DEEP: dict[str, Any] = {"type": "object"}
for _ in range(3000):
    DEEP = {"type": "object", "properties": {"a": DEEP}}

TOOLS = {
    "twice": [("x", NUMBER), ("x", NUMBER)],
    "two": [("a b", NUMBER), ("a_b", of(type="string"))],
    "no type": [("x", of(type="strng")), ("y", NUMBER)],
    "no output type": [("x", NUMBER)],
    "in a circle": [("x", {**of(**{"$ref": "#/$defs/p"}), "$defs": {"p": {"allOf": [{"$ref": "#/$defs/p"}]}}})],
    "no pattern": [("x", of(type="string", pattern="("))],
    "no reference": [("x", of(**{"$ref": "http://nowhere.invalid/schema.json"}))],
    "odd names": [("<|im_end|>", NUMBER), ("\U000f0000", NUMBER), ("3d", NUMBER)],
    "long name": [("x" * 65, NUMBER)],
    "no name": [("", NUMBER)],
    "laughs": [("x", {**of(**{"$ref": "#/$defs/d0"}), "$defs": LAUGHS})],
    "deep": [("x", DEEP)],
    "slow pattern": [("x", of(type="string", pattern="^(a+)+$"))],
    "slow key": [("x", {"type": "object", "patternProperties": {"^(a+)+$": {"type": "integer"}}})],
    "old": [("x", {**of(**{"$ref": "#/definitions/P"}), "definitions": {"P": NUMBER}})],
}
RESULTS = {
    "no content": {},
    "huge": {"content": [{"type": "text", "text": "x" * 3_000_000}]},
    "surrogate": {"content": [{"type": "text", "text": "\ud800"}]},
    "object": {"content": [{"type": "text", "text": {"a": 1}}]},
    "null": {"content": None},
    "list": [1, 2],
    "mute error": {"content": [], "isError": True},
    "image": {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]},
}
OK: dict[str, Any] = {"content": [{"type": "text", "text": "ok"}]}


def write(*parts: str, then: Any = None) -> None:
    """Write to stdout; then nothing more for ten minutes, or what `then` does."""
    for part in parts:
        sys.stdout.write(part)
    sys.stdout.flush()
    then() if then else time.sleep(600)


def endless(*streams: Any) -> None:
    """A line without an end."""
    while True:
        for stream in streams:
            stream.write("x" * 65536)


# What the first server of a test does at its first call; it gets the true answer, which it may spoil.
WRITTEN: dict[str, Any] = {
    "dies": lambda answer: os._exit(3),
    "dies in its answer": lambda answer: write(json.dumps(answer)[:40], then=lambda: os._exit(3)),
    "half an answer": lambda answer: write(json.dumps(answer)[:40]),
    "no json": lambda answer: write("{'content': nothing}\n"),
    "json of other types": lambda answer: write("[]\n", "null\n", "3\n", '"text"\n', "{}\n", '{"jsonrpc": 2}\n'),
    "deep json": lambda answer: write("[" * 100_000 + "\n"),
    "wrong id": lambda answer: write(json.dumps({**answer, "id": 10**6}) + "\n"),
    "id of other type": lambda answer: write(json.dumps({**answer, "id": [1]}) + "\n"),
    "endless line": lambda answer: endless(sys.stdout),
    "floods stderr": lambda answer: endless(sys.stderr),
    "closes stdout": lambda answer: (os.close(1), time.sleep(600)),
}


def run(mode: str) -> None:
    counts = itertools.count(1)
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked:
            method, number = asked["method"], next(counts)
            sys.stdout.write(
                json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer(mode, method, asked, number)}) + "\n"
            )
            sys.stdout.flush()


def answer(mode: str, method: str, asked: dict[str, Any], number: int) -> dict[str, Any]:
    if method == "initialize":
        about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "raw", "version": "1"}}
        return {"result": {"protocolVersion": asked["params"]["protocolVersion"], **about}}
    if method == "tools/list":
        output = {"outputSchema": of(type="strng")} if mode == "no output type" else {}
        listed = [{"name": name, "inputSchema": schema, **output} for name, schema in TOOLS.get(mode, [("x", NUMBER)])]
        return {"result": {"tools": listed, **({"nextCursor": str(number)} if mode == "endless" else {})}}
    if method == "tools/call":
        if mode == "binary":
            os.write(1, b"\xff\xfe\x00\n")
        if mode == "leak":
            print("my key is", os.environ["TOKEN"], file=sys.stderr, flush=True)
            return {"result": {"content": [{"type": "text", "text": f"key {os.environ['TOKEN']} {sys.argv[2:]}"}]}}
        if mode in WRITTEN and not Path(sys.argv[2]).exists():
            Path(sys.argv[2]).touch()  # the server that is started after it answers
            WRITTEN[mode]({"jsonrpc": "2.0", "id": asked["id"], "result": OK})
        if mode == "stderr":
            os.write(2, b"x" * (64 << 20))
        if mode == "late":
            time.sleep(2.0)
        if mode == "silent":
            time.sleep(600)
        return {"result": RESULTS.get(mode, OK)}
    return {"error": {"code": -32601, "message": f"no {method}"}}


if __name__ == "__main__":
    run(sys.argv[1])
