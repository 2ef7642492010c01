"""A process that reads step graphs and computes their credit for the inspector. The server ends it if it is too slow.

The process reads one JSON request per line from standard input. Its answer on standard output begins with a line that
has the word `ok` or `bad` and a number of bytes. After this line comes that number of bytes: JSON after `ok`, an error
message after `bad`.
"""

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from agentrl import catalogue
from agentrl.config import Entry, parse_value
from agentrl.credit import Credit, CreditMethod, assign, parse_options
from agentrl.graph import StepGraph, read_graph
from agentrl.report import SearchConditions, credit_data, search, token_words

STORED = "as trained"  # name of the credit that the run used and stored with its steps
MOST_FOUND = 200  # largest number of episodes in the answer to a search


class TookTooLong(Exception):
    """The process did not answer in time, or ended without an answer."""


class CreditWorker:
    """Starts the process and sends requests to it, one at a time.

    The first request starts the process. If an answer takes too long, the process is killed, and the next request
    starts a new one.

    Args:
        seconds: longest time for an answer; the time in which a request waits for earlier requests counts too.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: Mapping[str, Any]) -> bytes:
        """The JSON that answers a request.

        Raises:
            ValueError: the request has a mistake, which the message names.
            TookTooLong: there was no answer in time, or the process has ended.
        """
        end = time.monotonic() + self.seconds
        if not self._turn.acquire(timeout=self.seconds):
            raise TookTooLong(f"other requests took longer than {self.seconds:g} s: wait for them, and ask again")
        try:
            process = self._running()
            assert process.stdin is not None
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            fine, data = self._answer(process, end)
        except (TookTooLong, OSError) as error:
            self.close()
            if isinstance(error, TookTooLong):
                raise
            raise TookTooLong(f"the process that computes the credit has ended ({error}): ask again") from None
        finally:
            self._turn.release()
        if not fine:
            raise ValueError(data.decode())
        return data

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None or self._process.poll() is not None:
            command = [sys.executable, "-c", "from agentrl.serve.credit_worker import main; main()"]
            # The new process gets the module search path of this process, so that both load the same agentrl.
            path = os.pathsep.join(dict.fromkeys(one or os.getcwd() for one in sys.path))
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
            )
        return self._process

    def _answer(self, process: "subprocess.Popen[bytes]", end: float) -> tuple[bool, bytes]:
        """(True if the answer is `ok`, the bytes of the answer)."""
        assert process.stdout is not None
        pipe, data = process.stdout, b""
        head, size = b"", -1
        while size < 0 or len(data) < size:
            left = end - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise TookTooLong(
                    f"the request took longer than {self.seconds:g} s, so it was ended: show fewer groups or methods, "
                    "search fewer graphs, or start agentrl report --serve with a larger --seconds"
                )
            chunk = os.read(pipe.fileno(), 1 << 20)
            if not chunk:
                raise TookTooLong("the process that computes the credit has ended, perhaps out of memory: ask again")
            data += chunk
            if size < 0 and b"\n" in data:
                head, _, data = data.partition(b"\n")
                size = int(head.split()[1])
        return head.startswith(b"ok"), data


class GraphReader:
    """Reads graphs and the words of a run's tokens. The `keep` graphs that were read last stay in memory."""

    def __init__(self, keep: int = 2) -> None:
        self._keep = keep
        self._graphs: dict[tuple[str, int, int], StepGraph] = {}
        self._words: dict[Path, Callable[[Sequence[int]], Sequence[str]] | None] = {}

    def graph(self, path: Path) -> StepGraph:
        """A stored graph; a file that was replaced is read again."""
        try:
            stat = path.stat()
        except OSError:
            raise ValueError(f"{path} is gone: choose another iteration") from None
        key = (str(path), stat.st_mtime_ns, stat.st_size)
        if key not in self._graphs:
            found = read_graph(path)
            self._graphs = dict([*self._graphs.items(), (key, found)][-self._keep :])
        return self._graphs[key]

    def words(self, run: Path) -> Callable[[Sequence[int]], Sequence[str]] | None:
        """See `token_words`. If none is found, the next call searches again, because a new checkpoint may have one."""
        if self._words.get(run) is None:
            self._words[run] = token_words(run)
        return self._words[run]


def credits_of(
    graph: StepGraph, asked: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Credit], dict[str, dict[str, Any]]]:
    """The credit of each method that a request asks for, and its options.

    Raises:
        ValueError: a method or an option does not exist, or the method does not fit these steps.
    """
    credits: dict[str, Credit] = {}
    options: dict[str, dict[str, Any]] = {}
    for one in asked:
        name = str(one["name"])
        if name == STORED:
            credits[name], options[name] = _as_trained(graph), {}
            continue
        entry = _entry(name, [str(word) for word in one["options"]])
        shown = name
        while shown in credits:  # one method with two settings
            shown = f"{shown}'"
        credits[shown], options[shown] = assign(entry, graph), entry.config.model_dump(mode="json")
    return credits, options


def _entry(name: str, words: Sequence[str]) -> Entry[CreditMethod]:
    """A method of the catalogue. A request may name no other module, because loading a module runs its code."""
    _known(name)
    method = catalogue.load(CreditMethod, name)
    if method.wraps:
        for option in words:
            key, _, value = option.partition("=")
            if key in ("base", "methods", "options"):
                for inner in _method_names(key, parse_value(value) if value[:1] in ("[", "{") else value):
                    _known(inner)
    return Entry(name, method, parse_options(name, method.config, words))


def _known(name: str) -> None:
    known = [*catalogue.names("credit"), *catalogue.aliases("credit")]
    if name not in known:
        raise ValueError(f"unknown credit method {name!r}{catalogue.nearest(name, known)}")


def _method_names(key: str, value: Any) -> Iterator[str]:
    """The names of methods in the options of a method that wraps others, at any depth."""
    if isinstance(value, Mapping):
        for inner, one in value.items():
            yield from _method_names(str(inner), one)
    elif isinstance(value, list):
        for one in value:
            yield from _method_names(key, one)
    elif isinstance(value, str) and key in ("base", "methods"):
        yield from (part.strip() for part in value.split(","))


def _as_trained(graph: StepGraph) -> Credit:
    if not graph.has("advantage"):
        raise ValueError("these steps have no stored credit, as in an evaluation: choose a credit method")
    given = graph.column("advantage")  # [N]
    weight = graph.column("credit_weight") if graph.has("credit_weight") else None
    assigned = ~np.isnan(given)  # [N]
    return Credit.of(np.where(assigned, given, 0.0), assigned=assigned, weight=weight)


def page(reader: GraphReader, request: Mapping[str, Any]) -> dict[str, Any]:
    """The data of the credit page for one stored graph.

    Two entries are for the command `agentrl branch`, which the page shows: `episode` has the number of the episode of
    each shown step, and `branch` is the beginning of the command.
    """
    graph = reader.graph(Path(request["file"]))
    credits, options = credits_of(graph, request["methods"])
    data = credit_data(
        graph,
        credits,
        options,
        title=request["title"],
        subtitle=request["subtitle"],
        groups=request["groups"] or None,
        decode=reader.words(Path(request["run"])),
    )
    rows = data.steps.row
    return {
        "data": data.model_dump(mode="json"),
        "episode": graph.episode[rows].tolist() if len(rows) else [],
        "branch": request["branch"],
    }


def found(reader: GraphReader, request: Mapping[str, Any]) -> dict[str, Any]:
    """The episodes that a search finds in stored graphs, each with the key of its graph.

    The graphs are searched one after the other, at least one per request. After `MOST_FOUND` episodes or after
    `seconds`, no further graph is begun, and `next` is the key of the next graph. `more` is the number of episodes that
    were found and are left out of the answer. `of` is the number of all episodes of the searched graphs. `searched` is
    the number of these graphs, and `sources` that of the graphs in the request. `unread` lists the keys of graphs that
    cannot be read. The graph stays in memory only if the request names a single graph.
    """
    end, files = time.monotonic() + request["seconds"], request["files"]
    answer: dict[str, Any] = {"episodes": [], "more": 0, "of": 0, "searched": 0, "unread": [], "next": ""}
    for key, file in files:
        left = MOST_FOUND - len(answer["episodes"])
        if answer["searched"] and (left <= 0 or time.monotonic() > end):
            answer["next"] = key
            break
        answer["searched"] += 1
        try:
            graph = reader.graph(Path(file)) if len(files) == 1 else read_graph(Path(file))
        except ValueError:
            if len(files) == 1:
                raise
            answer["unread"].append(key)
            continue
        episodes = search(graph, SearchConditions(**request["asked"]))
        answer["episodes"] += [{"source": key, **one.model_dump(mode="json")} for one in islice(episodes, left)]
        answer["more"] += sum(1 for _ in episodes)
        answer["of"] += len(np.unique(graph.episode))
    return {**answer, "sources": len(files)}


ANSWERS: Mapping[str, Callable[[GraphReader, Mapping[str, Any]], dict[str, Any]]] = {"page": page, "found": found}


def work(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until the input ends."""
    reader = GraphReader()
    for line in requests:
        request = json.loads(line)
        try:
            text, head = json.dumps(ANSWERS[request["do"]](reader, request), allow_nan=False), "ok"
        except (ValueError, OSError) as error:
            text, head = str(error), "bad"
        except Exception as error:  # noqa: BLE001  on unsuitable steps, a method may raise any exception
            text, head = f"{type(error).__name__} in {request['do']}: {error}", "bad"
        data = text.encode("utf-8", "replace")
        answers.write(f"{head} {len(data)}\n".encode() + data)
        answers.flush()


def main() -> None:
    """The main function of the process, which ends when its standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C also reaches this process, which the server ends
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # text that a library prints must not get into an answer
    work(sys.stdin.buffer, channel)
