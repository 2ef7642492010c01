"""`agentrl serve SERVICE ...`: serve a policy, a trainer, a search corpus, or an environment to MCP or OpenEnv clients.

SERVICE is policy (an OpenAI-compatible endpoint), trainer (a training server for the Tinker SDK), retriever (a search
server), mcp (an environment's tools for MCP clients) or openenv (an environment for clients of OpenEnv).
"""

import argparse
import asyncio
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentrl import catalogue
from agentrl.cli import _serve_trainer, _stop
from agentrl.cli._eval_words import check_out
from agentrl.cli._parser import Parser, positive, temperature
from agentrl.config import merge, override, resolve, validate
from agentrl.env import EnvironmentFile, Limits, panel_tasks, tasks_of
from agentrl.foreign import McpTable, OpenEnvPlace, OpenEnvTable, serve_mcp, serve_openenv
from agentrl.http import host_names
from agentrl.printed import plain
from agentrl.programs import EvaluatedPolicy, Guests
from agentrl.run import Loop
from agentrl.serve import serve_retriever
from agentrl.tool import Retriever, ToolFile
from agentrl.tool_env import program_fit

if TYPE_CHECKING:
    from agentrl.programs import ProgramEndpoint

LOOK_S = 0.5  # seconds between two checks whether a signal has arrived


def main(words: Sequence[str]) -> int:
    """Run the service that the first word names."""
    services = {"mcp": mcp, "openenv": openenv, "policy": policy, "retriever": retriever, "trainer": trainer}
    if words and words[0] in ("-h", "--help"):
        print(f"{__doc__}\nservices: {', '.join(services)}; see agentrl serve SERVICE --help")
        return 0
    if not words or words[0] not in services:
        word = words[0] if words else ""
        raise ValueError(f"unknown service {word!r}{catalogue.nearest(word, services)}; see agentrl serve --help")
    return services[words[0]](words[1:])


def add_address(parser: Parser) -> None:
    """Add the options --host, --port and --allow-host."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at; default 127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes any free port")
    add_allow_host(parser)


def add_allow_host(parser: Parser) -> None:
    """Add the option --allow-host."""
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a host name that clients use; localhost and the server's own addresses need none. May be repeated",
    )


def check_address(arguments: argparse.Namespace) -> None:
    """Raise ValueError if the options of `add_address` are wrong."""
    if not 0 <= arguments.port < 1 << 16:
        raise ValueError(f"--port {arguments.port} is no port: give a number from 0 to 65535")
    host_names(arguments.host, arguments.allow_host)


POLICY = """\
`agentrl serve policy RUN|MODEL [--port N] [--out FILE]`: an OpenAI-compatible endpoint that records its answers.

It serves /v1/chat/completions and /v1/responses (tools, streaming, n, logprobs). The API key (any text of up to 200
characters) names the episode; POST /v1/agentrl/end with {"task": ..., "reward": ..., "success": ...} ends the episode.
When the server stops (Ctrl-C), the ended episodes are stored in --out as a step graph, with the sampled tokens and
their log-probs, for example for `agentrl credit METHOD --steps FILE`. Sampling options of requests, such as
temperature and stop, have no effect: --temperature sets the temperature.
"""


def policy(words: Sequence[str]) -> int:
    """See `POLICY`."""
    from agentrl.programs import ProgramEndpoint  # its module has an HTTP server

    parser = Parser("agentrl serve policy", POLICY)
    parser.add_argument("model", metavar="RUN|MODEL")
    parser.add_argument("options", nargs="*", metavar="model.template.NAME=VALUE", help="for a model folder")
    add_address(parser)
    parser.add_argument("--out", type=Path, help="a .safetensors file for the ended episodes")
    parser.add_argument("--temperature", type=temperature, help="default: the run's, or 1")
    parser.add_argument(
        "--turns",
        type=positive,
        default=1000,
        help="largest number of answers per episode; the server refuses further requests",
    )
    parser.add_argument(
        "--turn-tokens",
        type=positive,
        default=1024,
        help="largest number of tokens per answer; a longer answer is cut off there",
    )
    parser.add_argument("--trust", action="store_true", help="run the code that the run's config.toml names")
    arguments = parser.parse_intermixed_args(list(words))
    check_address(arguments)
    if arguments.out is not None:
        if arguments.out.suffix != ".safetensors":
            raise ValueError(f"--out {arguments.out}: name a file that ends with .safetensors")
        check_out(arguments.out)
    template = override({}, arguments.options)
    if set(template) - {"model"}:
        raise ValueError(
            f"{arguments.options[0]!r} is no option: serve policy takes model.template and model.template_file"
        )
    given = template.get("model", {})
    actor = EvaluatedPolicy.model(arguments.model, arguments.temperature, given, trust=arguments.trust)
    assert actor.chat is not None, "a model folder has a tokenizer"
    for line in program_fit(actor.chat).splitlines():
        print(f"note: {plain(line)}", file=sys.stderr)
    guests = Guests(actor, Limits(turns=arguments.turns, turn_tokens=arguments.turn_tokens))
    endpoint = ProgramEndpoint(
        actor.name,
        arguments.host,
        arguments.port,
        admit=guests.admit,
        end=guests.end,
        allowed=arguments.allow_host,
        context=actor.context_limit,
    )
    try:
        with Loop() as loop:
            loop.run(_serve(endpoint))
    finally:
        stored = guests.store(arguments.out) if arguments.out is not None else 0
        _stop.on_stop(lambda: _words(stored, guests.open, arguments.out))
    return 0


def _words(stored: int, unfinished: int, out: Path | None) -> str:
    if out is None:
        return ""
    if not stored:
        return f"; no episode has ended and {unfinished} were in progress, so nothing is stored"
    return f"; {stored} episodes are stored in {out}, {unfinished} in progress are lost"


async def _serve(endpoint: "ProgramEndpoint") -> None:
    endpoint.open()
    print(f"{endpoint.name} at {endpoint.url}", flush=True)
    try:
        # SIGTERM and Ctrl-C raise KeyboardInterrupt in the code that is running. In a destructor the exception is lost.
        # So this loop also checks whether a signal has arrived.
        while not _stop.requested():
            await asyncio.sleep(LOOK_S)
        raise KeyboardInterrupt
    finally:
        endpoint.close()


def trainer(words: Sequence[str]) -> int:
    """See `agentrl.cli._serve_trainer`."""
    parser = _serve_trainer.parser()
    add_address(parser)
    arguments = parser.parse_intermixed_args(list(words))
    check_address(arguments)
    return _serve_trainer.serve(arguments)


RETRIEVER = """\
`agentrl serve retriever --corpus FILE [options] [key=value ...]`: a search server of the Search-R1 protocol.

POST /retrieve takes JSON with `queries` (a list) or `query` (a text), `topk` and `return_scores`. If `topk` is missing,
0 or null, --top-k applies. The server returns {"result": [[...], ...]}, one list of passages per query. GET /health
answers as soon as the server is ready. key=value are options of the search tool, such as backend=faiss
faiss.encoder=intfloat/e5-base-v2 or bm25.k1=1.2.
"""


def retriever(words: Sequence[str]) -> int:
    """See `RETRIEVER`."""
    parser = Parser("agentrl serve retriever", RETRIEVER)
    parser.add_argument("options", nargs="*", metavar="key=value")
    parser.add_argument("--corpus", help="a JSONL file, one passage per line: id and contents, or title and text")
    add_address(parser)
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
    check_address(arguments)
    if arguments.top_k > arguments.max_top_k:
        raise ValueError(f"--top-k {arguments.top_k} is more than --max-top-k {arguments.max_top_k}: raise --max-top-k")
    tool = _retriever(arguments.corpus, arguments.options)
    most = (arguments.top_k, arguments.max_batch, arguments.max_top_k)
    server = serve_retriever(tool, arguments.host, arguments.port, *most, allowed=arguments.allow_host)
    print(f"retriever at {server.url}/retrieve", flush=True)
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
    tool: Retriever = search.make(validate(search.config, tables, "search"))
    return tool


MCP = """\
`agentrl serve mcp ENV [key=value ...] [--task KEY] [--http HOST:PORT]`: an environment's tools for any MCP client.

The client sees the environment's tools and two more: `new_task` begins an episode and returns its first message, and
`final_answer` gives the final answer, which ends the episode and returns its reward (in the environment desk, the final
answer is a message to the customer). If the environment has no tools, the client sees `act` and `new_task`. Without
--http the server uses stdin and stdout, for clients that start servers themselves. The server plays one episode at a
time.
"""


def mcp(words: Sequence[str]) -> int:
    """See `MCP`."""
    parser = Parser("agentrl serve mcp", MCP)
    parser.add_argument("env")
    parser.add_argument("options", nargs="*", metavar="key=value", help="options of the environment")
    parser.add_argument("--task", help="key of the task to begin with; default: the environment's first task")
    parser.add_argument("--http", metavar="HOST:PORT", help="serve http://HOST:PORT/mcp instead of stdin and stdout")
    add_allow_host(parser)
    arguments = parser.parse_intermixed_args(words)
    entry = resolve(EnvironmentFile, override({"name": arguments.env}, arguments.options), "env")
    task = panel_tasks(entry, [arguments.task])[0] if arguments.task else tasks_of(entry)[0]
    host, port = address(arguments.http) if arguments.http else ("", 0)
    if arguments.allow_host and not host:
        raise ValueError("--allow-host is for --http: a server on stdin and stdout has no host name")
    names = host_names(host, arguments.allow_host)
    table = McpTable(entry, task)
    try:
        serve_mcp(table, host, port, names)
    finally:
        table.close()
    return 0


def address(word: str) -> tuple[str, int]:
    """(host, port) of a word HOST:PORT; raises ValueError if the word has another form."""
    host, colon, port = word.rpartition(":")
    host = host.strip("[]") if host.startswith("[") else host
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{word!r} is no address: write HOST:PORT, such as 127.0.0.1:8765")
    return host, int(port)


OPENENV = """\
`agentrl serve openenv ENV [key=value ...] [--port N] [--python PYTHON]`: an environment for clients of OpenEnv.

The package openenv has the server, which runs in the Python that --python names (docs/foreign.md). Each session plays
its own instance of the environment. The argument `seed` of `reset` chooses a task by its position in the list, and
`task=KEY` by its key; without these arguments each `reset` takes the next task of the list. If the environment has
tools, actions are calls of its tools; the tool `final_answer` ends the episode (in the environment desk, the final
answer is a message to the customer). If the environment has no tools, an action is {"action": TEXT}. Ctrl-C stops the
server.
"""


def openenv(words: Sequence[str]) -> int:
    """See `OPENENV`."""
    parser = Parser("agentrl serve openenv", OPENENV)
    parser.add_argument("env")
    parser.add_argument("options", nargs="*", metavar="key=value", help="options of the environment")
    add_address(parser)
    parser.add_argument("--sessions", type=positive, default=16, help="largest number of sessions at a time")
    parser.add_argument(
        "--token-variable", default="", metavar="NAME", help="environment variable of the token that clients send"
    )
    parser.add_argument("--python", default="", help="the Python that has the package openenv; default: this one")
    arguments = parser.parse_intermixed_args(list(words))
    check_address(arguments)
    entry = resolve(EnvironmentFile, override({"name": arguments.env}, arguments.options), "env")
    place = OpenEnvPlace(
        host=arguments.host,
        port=arguments.port,
        allowed=tuple(arguments.allow_host),
        sessions=arguments.sessions,
        token_variable=arguments.token_variable,
        python=arguments.python,
    )
    serve_openenv(OpenEnvTable(entry), place, lambda url: print(f"{entry.name} at {url}", flush=True), _stop.requested)
    raise KeyboardInterrupt
