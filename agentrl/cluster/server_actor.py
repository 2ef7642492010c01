"""A Ray actor that starts, watches and ends a vLLM server on its own machine. It starts quickly: it needs no torch."""

import os
import socket
from pathlib import Path
from typing import NamedTuple

from agentrl.engines.vllm import Command, LocalServer, free_port


class StartedServer(NamedTuple):
    """A server that an actor has started: its address and its log."""

    url: str
    log: str


class ServerActor:
    """Starts one server on the machine of the actor."""

    def __init__(self) -> None:
        self._process: LocalServer | None = None

    def start(self, command: Command, model: Path, host: str) -> StartedServer:
        """Start the server on a free port of this machine, at the address `host`."""
        self._process = LocalServer(command, model, free_port(None, host), host)
        return StartedServer(self._process.url, f"{socket.gethostname()}:{self._process.log}")

    def exit_code(self) -> int | None:
        """Exit code of the server; None while the server runs."""
        assert self._process is not None
        return self._process.exit_code

    def last_words(self) -> str:
        """See `WatchedServer`."""
        assert self._process is not None
        return self._process.last_words()

    def hang_up(self) -> None:
        """See `WatchedServer`."""
        if self._process is not None:
            self._process.hang_up()

    def end(self, keep_log: bool) -> None:
        """See `WatchedServer`."""
        if self._process is not None:
            self._process.end(keep_log)

    def pid(self) -> int:
        """Process id of the Ray actor, not of the server."""
        return os.getpid()
