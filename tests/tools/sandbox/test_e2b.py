"""The E2B client against a server that speaks its wire protocol."""

import asyncio
import pickle

import pytest

from agentrl.tool import CodeRunner, CodeSession, ToolFault, open_runner, without_infra_error
from agentrl.tools import e2b
from tests.tools.sandbox.e2b_stub import KEY, Stub

pytest.importorskip("e2b_code_interpreter", reason="pip install 'agentrl-stepgraph[e2b]'")


@pytest.fixture(scope="module")
def stub():
    server = Stub()
    yield server
    server.stop()


@pytest.fixture
def config(stub, monkeypatch):
    monkeypatch.setenv("E2B_API_KEY", KEY)
    return e2b.Config(api_url=stub.url, sandbox_url=stub.url, timeout_s=10)


@pytest.fixture
def session(config):
    opened = e2b.runner(config).session({"data/x.txt": "41", "raw": b"\x00\xff"})
    yield opened
    opened.close()


def test_protocols(config, session):
    assert isinstance(e2b.runner(config), CodeRunner) and isinstance(session, CodeSession)


def test_a_run_is_answered_in_full(session):
    result = session.run("import sys\nprint('a\\nb')\nprint('e', file=sys.stderr)\n6 * 7")
    assert (result.stdout, result.stderr, result.result_text) == ("a\nb\n", "e\n", "42")
    assert result.ok and result.backend == "e2b" and result.wall_s > 0


def test_state_files_input_and_artifacts(session):
    session.run("x = int(open('data/x.txt').read())")
    assert session.run("x + 1").result_text == "42"
    code = "open('out', 'wb').write(b'\\x01' * 3)\nprint(input())"
    result = session.run(code, stdin="said\n", fetch=("out", "raw", "absent"))
    assert result.stdout == "said\n" and result.artifacts == {"out": b"\x01" * 3, "raw": b"\x00\xff"}
    assert session.run("# PLOT").artifacts == {"result-0.png": b"\x89PNG"}


def test_errors(session):
    result = session.run("1/0")
    assert (result.error_name, result.error_value, result.exit_code) == ("ZeroDivisionError", "division by zero", 1)
    assert "line 1" in result.traceback and not result.infra_error


def test_the_wire(stub, config):
    before = len(stub.seen)
    session = e2b.runner(config).session()
    session.run("1")
    session.close()
    session.close()
    calls = [(verb, path.removeprefix("/v2").partition("?")[0]) for verb, path, _ in stub.seen[before:]]
    name = calls[-1][1].rpartition("/")[2]
    assert calls == [("POST", "/sandboxes"), ("POST", "/execute"), ("DELETE", f"/sandboxes/{name}")]
    execute = stub.seen[before + 1][2]
    assert execute["e2b-sandbox-port"] == "49999" and execute["x-access-token"] == "token"
    assert stub.created[-1]["timeout"] == 600 and stub.created[-1]["allow_internet_access"] is False
    assert name not in stub.sandboxes


def test_time_is_up(stub, config, session):
    session.run("x = 1")
    result = session.run("# HANG", 0.5)
    assert result.timed_out and not result.infra_error and result.exit_code is None
    assert "variables and files are lost" in result.error_value
    assert session.run("x").error_name == "NameError"


def test_stateless_runs_are_fresh_and_given_back(stub, config):
    session = e2b.runner(config).session(stateful=False)
    session.run("x = 1")
    assert session.run("x").error_name == "NameError"
    before = dict(stub.sandboxes)
    session.run("1")
    assert stub.sandboxes == before


@pytest.mark.fault
def test_a_sandbox_that_is_gone_is_nobodys_fault(stub, config, session):
    session.run("1")
    stub.sandboxes.clear()
    result = session.run("2")
    assert result.infra_error and not result.timed_out
    with pytest.raises(ToolFault, match="the e2b sandbox failed: "):
        without_infra_error(result)
    assert session.run("3").result_text == "3"


@pytest.mark.fault
def test_no_server_is_nobodys_fault(monkeypatch):
    monkeypatch.setenv("E2B_API_KEY", KEY)
    config = e2b.Config(api_url="http://127.0.0.1:9", sandbox_url="http://127.0.0.1:9", timeout_s=1)
    assert e2b.runner(config).session().run("1").infra_error


def test_a_wrong_key_is_said(config, monkeypatch):
    monkeypatch.setenv("E2B_API_KEY", "e2b_" + "1" * 40)
    result = e2b.runner(config).session().run("1")
    assert "Invalid API key" in result.infra_error and "1" * 40 not in result.infra_error


def test_a_missing_key_is_one_sentence(monkeypatch):
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    monkeypatch.delenv("E2B_DEBUG", raising=False)
    for call in (lambda: e2b.make(e2b.Config()), lambda: open_runner({"name": "e2b"})):
        with pytest.raises(ValueError, match=r"^the e2b sandbox needs a key: set E2B_API_KEY .*needs none$"):
            call()


def test_a_copy_holds_no_key(config, session):
    data = pickle.dumps(session)
    assert KEY.encode() not in data
    copy = pickle.loads(data)
    assert copy.run("open('data/x.txt').read()").result_text == "'41'"
    copy.close()


def test_the_tool(config):
    tool = e2b.make(config)
    assert tool("x = 2\nx * 21") == "42" and tool("x") == "2"
    tool.reset()
    assert "NameError" in tool("x")
    tool.close()


def test_awaited(config):
    async def both() -> None:
        one, other = (e2b.Runner(config).async_session({"f": "7"}) for _ in range(2))
        first, second = await asyncio.gather(one.run("x = 1\nopen('f').read()"), other.run("print(2)", fetch=("f",)))
        assert first.result_text == "'7'" and second.stdout == "2\n" and second.artifacts == {"f": b"7"}
        assert (await one.run("x")).result_text == "1" and (await other.run("x")).error_name == "NameError"
        assert (await one.run("# HANG", 0.5)).timed_out
        await one.close()
        await other.close()

    asyncio.run(both())


@pytest.mark.fault
def test_a_flood_of_output_is_the_codes_doing(session, monkeypatch):
    monkeypatch.setattr(e2b, "FLOOD_CHARS", 1000)
    result = session.run("print('x' * 5000)")
    assert result.error_name == "OutputLimit" and not result.infra_error and not result.ok
    assert session.run("print('x' * 500)").ok


def test_a_file_too_large_is_not_brought_back(session, monkeypatch):
    monkeypatch.setattr(e2b, "FETCH_BYTES", 10)
    code = "open('small', 'w').write('x' * 10)\nopen('large', 'w').write('x' * 11)"
    assert session.run(code, fetch=("small", "large")).artifacts == {"small": b"x" * 10}
