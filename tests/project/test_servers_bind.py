"""Every server of the project listens on 127.0.0.1 unless it is told another address."""

import ast
import re
from pathlib import Path

import pytest

from agentrl.cli import _serve_trainer, main, serve

ROOT = Path(__file__).parents[2]
SOURCES = [path for place in ("agentrl", "envs", "algorithms", "tools") for path in (ROOT / place).rglob("*.py")]
LISTENS = re.compile(
    r"HTTPServer|HttpServer|TCPServer|UDPServer|uvicorn|start_server|start_unix_server|create_server|\.bind\(|run_app"
)
EVERY_INTERFACE = ("0.0.0.0", "::")
# file -> how it comes by its address
SERVERS = {
    "agentrl/engines/vllm/process.py": "a port is only tried; the vLLM server is told --host 127.0.0.1, or on another "
    "machine of a cluster (cluster.engines) that machine's address, as docs/scaling.md says",
    "agentrl/http/__init__.py": "binds nothing: the names of the next two",
    "agentrl/http/handler.py": "the base of three servers, the sockets of mcp and openenv; each is told its address",
    "agentrl/http/request_limits.py": "binds nothing: the checks of the servers on uvicorn",
    "agentrl/programs/server.py": "127.0.0.1 in a run; --host of `serve policy`, 127.0.0.1",
    "agentrl/serve/inspector.py": "127.0.0.1, which no option of `report --serve` changes",
    "agentrl/foreign/mcp.py": "HOST:PORT of `serve mcp --http`, which has no default",
    "agentrl/foreign/openenv_app.py": "the socket that agentrl/foreign/openenv.py has made, of --host, 127.0.0.1",
    "agentrl/training_server/training_http.py": "--host of `serve trainer`, 127.0.0.1",
    "agentrl/serve/retriever.py": "--host of `serve retriever`, 127.0.0.1",
    "envs/verifiers/adapter.py": "127.0.0.1, for the requests of one episode",
    "tools/_sandbox/probe.py": "127.0.0.1, to see whether a sandbox can reach it",
}


def test_the_servers_of_the_project_are_these():
    found = {path.relative_to(ROOT).as_posix() for path in SOURCES if LISTENS.search(path.read_text())}
    assert found == set(SERVERS)


def test_no_source_names_the_address_of_every_interface():
    for path in SOURCES:
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if any(address in text for address in EVERY_INTERFACE) else ():
            if isinstance(node, ast.Constant):
                assert node.value not in EVERY_INTERFACE, path


@pytest.mark.parametrize(("words", "host"), [([], "127.0.0.1"), (["--host", "192.0.2.1"], "192.0.2.1")])
def test_the_retriever_listens_here_unless_told(words, host, tmp_path, monkeypatch):
    (tmp_path / "wiki.jsonl").write_text('{"id": "1", "contents": "tea"}\n')
    addresses = []

    def told(retriever, host, port, topk, max_batch, max_topk, allowed):
        addresses.append(host)
        raise OSError("not now")

    monkeypatch.setattr(serve, "serve_retriever", told)
    assert main(["serve", "retriever", "--corpus", str(tmp_path / "wiki.jsonl"), *words]) == 2
    assert addresses == [host]


@pytest.mark.parametrize(("words", "host"), [([], "127.0.0.1"), (["--host", "192.0.2.1"], "192.0.2.1")])
def test_a_trainer_listens_here_unless_told(words, host, monkeypatch):
    """At another address it needs a token."""
    addresses = []
    monkeypatch.setenv("TRAINER_TOKEN", "tml-x")
    monkeypatch.setattr(_serve_trainer, "serve", lambda arguments: addresses.append(arguments.host) or 130)
    assert main(["serve", "trainer", "folder", *words]) == 130
    assert addresses == [host]
    assert _serve_trainer.check_token(host, [], "TRAINER_TOKEN") == "tml-x"
    if words:
        with pytest.raises(ValueError, match="can be reached from other machines"):
            _serve_trainer.check_token(host, [], "")
    else:
        assert _serve_trainer.check_token(host, [], "") == ""


@pytest.mark.parametrize(("words", "host"), [([], "127.0.0.1"), (["--host", "192.0.2.1"], "192.0.2.1")])
def test_an_openenv_server_listens_here_unless_told(words, host, monkeypatch):
    addresses = []
    monkeypatch.setattr(serve, "serve_openenv", lambda table, place, told, stopped: addresses.append(place.host))
    assert main(["serve", "openenv", "tests.toys.walk", *words]) == 130
    assert addresses == [host]


@pytest.mark.parametrize(("words", "address"), [([], ("", 0)), (["--http", "127.0.0.1:8765"], ("127.0.0.1", 8765))])
def test_tools_are_served_on_stdin_unless_an_address_is_given(words, address, monkeypatch):
    """An empty host is stdin and stdout; there is no port without a host."""
    told = []
    monkeypatch.setattr(serve, "serve_mcp", lambda table, host, port, names: told.append((host, port)))
    assert main(["serve", "mcp", "tests.toys.sums", *words]) == 0
    assert told == [address]
