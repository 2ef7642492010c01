"""A real MCP server for tests, made with the SDK: good tools, and every way to go wrong."""

import os
import sys

import anyio
from mcp.server import MCPServer

server = MCPServer("test")
waiting: list[anyio.Event] = []


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def rubbish() -> str:
    """Print what is no message."""
    print("{ I am no message", flush=True)
    return "printed"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("no luck today")


@server.tool()
def die() -> str:
    """End the process."""
    print("dying now", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
async def sleep(seconds: float) -> str:
    """Wait."""
    await anyio.sleep(seconds)
    return "slept"


@server.tool()
async def meet(count: int) -> str:
    """Wait until so many calls wait at the same time."""
    waiting.append(anyio.Event())
    if len(waiting) == count:
        for event in waiting:
            event.set()
    await waiting[-1].wait()
    return "met"


if __name__ == "__main__":
    if sys.argv[1:] == ["http"]:
        server.run("streamable-http", port=int(os.environ["PORT"]))
    else:
        print("hello, this is no message either", flush=True)
        server.run()
