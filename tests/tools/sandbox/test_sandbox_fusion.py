"""The SandboxFusion client against a server with its `/run_code`."""

import base64
import json
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agentrl.tool import CodeRunner, CodeSession
from agentrl.tools import sandbox_fusion
from agentrl.tools._sandbox.launch import Limits
from agentrl.tools._sandbox.session import LocalSession


class Handler(BaseHTTPRequestHandler):
    failures = 0

    def log_message(self, *words):
        pass

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if Handler.failures:
            Handler.failures -= 1
            self._send(504, {})
            return
        assert self.path == "/run_code" and asked["language"] == "python"
        if "BREAK" in asked["code"]:
            self._send(200, {"status": "SandboxError", "message": "no disk", "run_result": None, "files": {}})
            return
        files = {path: base64.b64decode(data) for path, data in asked["files"].items()}
        with LocalSession("unsafe-host", Limits(), echo=False, stateful=False, files=files) as session:
            ran = session.run(asked["code"], asked["run_timeout"], stdin=asked["stdin"], fetch=asked["fetch_files"])
        well = ran.exit_code == 0
        result = {
            "status": "TimeLimitExceeded" if ran.timed_out else "Finished" if well else "Error",
            "execution_time": ran.wall_s,
            "return_code": ran.exit_code,
            "stdout": ran.stdout,
            "stderr": ran.stderr + ran.traceback,
        }
        found = {path: base64.b64encode(data).decode() for path, data in ran.artifacts.items()}
        status = "Success" if well else "Failed"
        self._send(200, {"status": status, "message": "", "run_result": result, "files": found})

    def _send(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture(scope="module")
def url():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def opened(url, *, stateful=False, files=None, **options):
    return sandbox_fusion.runner(sandbox_fusion.Config(url=url, **options)).session(files, stateful=stateful)


def test_runs(url):
    session = opened(url, files={"f.txt": "41"})
    assert isinstance(session, CodeSession)
    code = "import sys\nprint(int(open('f.txt').read()) + 1, input())\nopen('o', 'w').write('x')"
    result = session.run(code, stdin="in\n", fetch=("o",))
    assert (result.stdout, result.artifacts, result.exit_code) == ("42 in\n", {"o": b"x"}, 0) and result.ok
    assert result.backend == "sandbox_fusion"
    broken = session.run("import sys\nprint('e', file=sys.stderr)\n1/0")
    assert (broken.error_name, broken.error_value, broken.stderr) == ("ZeroDivisionError", "division by zero", "e\n")
    assert broken.traceback.startswith("Traceback") and broken.exit_code == 1
    assert session.run("while True: pass", 0.2).timed_out


def test_state_is_replayed_or_refused(url):
    assert isinstance(sandbox_fusion.Runner(sandbox_fusion.Config(url=url)), CodeRunner)
    with pytest.raises(ValueError, match="keeps no variables between runs"):
        opened(url, stateful=True)
    session = opened(url, stateful=True, replay=True)
    assert session.run("x = 20\nprint('once')").stdout == "once\n"
    assert session.run("x += 1\n1/0").error_name == "ZeroDivisionError"  # a failed cell is not repeated
    assert session.run("print(x * 2)").stdout == "40\n"
    session.close()
    assert session.run("print(x)").error_name == "NameError"


@pytest.mark.fault
def test_a_lost_server_is_nobodys_fault(url):
    assert opened(url).run("# BREAK").infra_error == "no disk"
    assert opened("http://127.0.0.1:9", retries=0).run("1").infra_error
    Handler.failures = 1
    assert opened(url).run("print(1)").stdout == "1\n"
    Handler.failures = 9
    assert "504" in opened(url, retries=1).run("print(1)").infra_error
    Handler.failures = 0


def test_the_tool(url):
    tool = sandbox_fusion.make(sandbox_fusion.Config(url=url))
    assert tool("print(6 * 7)") == "42"
    assert tool("1/0").endswith("ZeroDivisionError: division by zero")


@pytest.mark.fault
def test_a_flood_of_output_is_the_codes_doing(url, monkeypatch):
    monkeypatch.setattr(sandbox_fusion, "ANSWER_BYTES", 1000)
    result = opened(url).run("print('x' * 5000)")
    assert result.error_name == "OutputLimit" and not result.infra_error and not result.ok
    assert opened(url).run("print('x' * 5)").ok


RAN = {"status": "Finished", "return_code": 0, "stdout": "", "stderr": ""}


@pytest.mark.fault
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n\r\n{'a': 1}",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
        b"HTTP/1.1 200 OK\r\n\r\n[1]",
        b"HTTP/1.1 200 OK\r\n\r\nnull",
        b"HTTP/1.1 200 OK\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9000\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}",
        b"HTTP/1.1 200 OK\r\n\r\n\xff\xfe\x00",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"no HTTP at all\r\n\r\n",
        b"",
        *(
            b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps({"status": "Success", "run_result": {**RAN, **odd}}).encode()
            for odd in ({"return_code": float("inf")}, {"return_code": "x"}, {"return_code": [1]})
        ),
        b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps({"status": "Success", "run_result": 3}).encode(),
        b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps({"status": "S", "run_result": RAN, "files": {"f": "abc"}}).encode(),
    ],
)
def test_an_answer_that_is_none_is_nobodys_fault(answer):
    asked = []

    class Raw(socketserver.BaseRequestHandler):
        def handle(self):
            asked.append(self.request.recv(1 << 16))
            self.request.sendall(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Raw) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        result = opened(f"http://127.0.0.1:{server.server_address[1]}", retries=0).run("print(1)", 1.0)
        server.shutdown()
    assert result.infra_error and not result.ok and len(asked) == 1


@pytest.mark.fault
def test_an_answer_that_trickles_ends():
    class Trickle:
        def read1(self, size):
            time.sleep(0.01)
            return b"x"

    with pytest.raises(TimeoutError, match=r"did not end in 0\.1 s"):
        sandbox_fusion._body(Trickle(), 0.1)
