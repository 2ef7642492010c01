"""A server with a token answers only to clients that have it."""

import socket

import pytest

from agentrl.training_server import training_http
from tests.toys.training_service import training_service
from tests.training_server.plain_client import PlainClient


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with training_service(tmp_path_factory.mktemp("service"), token="tml-secret") as found:
        yield found


@pytest.mark.parametrize("token", ["", "tml-secre", "tml-secret2", "tml-sécret"])
def test_another_token_is_refused_before_the_body_is_read(running, token):
    client = PlainClient(running.url, token.encode().decode("latin-1"))
    for method, route in (("GET", "healthz"), ("POST", "create_session"), ("DELETE", "x"), ("PUT", "x")):
        reply = client.send(method, route, None if method == "GET" else {})
        assert reply.status == 401
        assert reply.body["error"] == "the API key is missing or wrong: set TINKER_API_KEY to the token of this server"
        assert "tml-secret" not in str(reply)


def test_the_token_opens_the_server(running):
    assert PlainClient(running.url, "tml-secret").begin()


def test_the_token_is_compared_in_constant_time(running, monkeypatch):
    compared = []
    monkeypatch.setattr(training_http.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or True)
    PlainClient(running.url, "tml-other").begin()
    assert compared == [(b"tml-other", b"tml-secret")]


def test_another_host_name_is_refused(running):
    reply = PlainClient(running.url, "tml-secret").send("GET", "healthz", None, host="evil.example")
    assert reply.status == 403


def test_a_body_over_the_limit_is_refused_unread(running):
    host, port = running.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        head = f"POST /api/v1/forward_backward HTTP/1.1\r\nhost: {host}\r\nx-api-key: tml-secret\r\n"
        connection.sendall(f"{head}content-type: application/x-protobuf\r\ncontent-length: {1 << 30}\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
