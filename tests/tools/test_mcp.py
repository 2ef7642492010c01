"""Tools of real MCP server processes: strict arguments, rubbish, failures, deaths, time-outs."""

import os
import re
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentrl.tool import ToolError, ToolFault, run_all
from agentrl.tool_env import environment
from tests.tools.raw_mcp_server import WRITTEN

pytest.importorskip("mcp")
from agentrl.tools import mcp
from agentrl.tools.mcp import Config, Server, closed, make

SPOILT = sorted(WRITTEN)
RAW = Path(__file__).with_name("raw_mcp_server.py")
SERVER = (sys.executable, str(Path(__file__).with_name("mcp_server.py")))
PATIENT = {"start_s": 120.0, "timeout_s": 60.0}


@pytest.fixture(scope="module")
def box():
    made = make(Config(command=SERVER, **PATIENT))
    yield made
    made.close()


def call(box, name: str, **arguments):
    (spec,) = [spec for spec in box.specs() if spec.name == name]
    (value,) = run_all([spec.function(**spec.check(arguments))])
    return value


def test_the_servers_tools_are_ours_with_their_schemas(box):
    specs = {spec.name: spec for spec in box.specs()}
    assert list(specs) == ["add", "rubbish", "fail", "die", "sleep", "meet"] and specs["add"].waits
    shown = specs["add"].schema["function"]
    assert shown["description"] == "Add two numbers."
    assert shown["parameters"] == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    }
    assert call(box, "add", a=1, b=2) == "3"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"a": "1", "b": 2}, "add: argument 'a': '1' is not of type 'integer'"),
        ({"a": 1, "b": 2, "c": 3}, "'c' was unexpected"),
        ({"a": 1}, "'b' is a required property"),
    ],
)
def test_arguments_are_checked_strictly_on_our_side(box, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(box, "add", **arguments)


@pytest.mark.fault
def test_rubbish_on_stdout_is_passed_over(box):
    assert call(box, "rubbish") == "printed" and call(box, "add", a=2, b=2) == "4"


@pytest.mark.fault
def test_a_tool_that_fails_tells_the_model(box):
    error = call(box, "fail")
    assert isinstance(error, ToolError) and "Error executing tool fail" in str(error)  # the SDK hides the rest


@pytest.mark.fault
def test_a_server_that_dies_costs_that_call_and_is_started_again(box):
    fault = call(box, "die")
    assert isinstance(fault, ToolFault) and "was lost during a call: its last words: dying now" in str(fault)
    assert call(box, "add", a=5, b=5) == "10"


@pytest.mark.fault
def test_a_call_that_takes_too_long_is_a_fault_and_the_others_go_on(box):
    quick = box.server.config
    box.server.config = quick.model_copy(update={"timeout_s": 0.5})
    try:
        fault = call(box, "sleep", seconds=300.0)
        box.server.config = quick.model_copy(update={"timeout_s": 0.5, "on_timeout": "message"})
        told = call(box, "sleep", seconds=300.0)
    finally:
        box.server.config = quick
    assert isinstance(fault, ToolFault) and "no answer in 0.5 s" in str(fault)
    assert isinstance(told, ToolError) and call(box, "add", a=1, b=1) == "2"


def test_calls_of_one_turn_run_at_once_in_a_tool_environment(box):
    hooks = environment(tools=list(box.specs()), reward=lambda answer: 1.0, rows=[{"prompt": "?"}], module=__name__)
    env = hooks.make(hooks.Config())
    env.reset(hooks.tasks(hooks.Config())[0])
    call_of = '{"name": "meet", "arguments": {"count": 4}}'
    result = env.step(f'{{"calls": [{", ".join([call_of] * 4)}]}}')
    assert [m.content for m in result.observation.messages] == ["met"] * 4
    assert env.step("add(1, '2')").observation.text == "error: add: argument 'b': '2' is not of type 'integer'"


@pytest.mark.fault
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"command": ("no-such-program",)}, "no-such-program does not start: .*No such file"),
        ({"command": ("false",)}, "false does not start: Connection closed"),
        (
            {"command": (sys.executable, "-c", "import time; print('rubbish'); time.sleep(60)"), "start_s": 2.0},
            "told nothing in 2 s|timed out",
        ),
        ({"url": "http://127.0.0.1:9/mcp", "start_s": 20.0}, "127.0.0.1:9/mcp does not start"),
        ({}, "name the server"),
        ({"command": ("x",), "url": "http://x"}, "name the server"),
    ],
)
def test_what_is_no_server_is_one_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(Config(**options))


def raw(mode: str, **options):
    return make(Config(command=(sys.executable, str(RAW), mode), **{**PATIENT, **options}))


@pytest.mark.fault
@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        ("two", "has two tools named 'a_b', which a model could not tell apart: choose among its tools with only"),
        (
            "no type",
            "the tool 'x' of the MCP server .* has a schema by which nothing can be checked: Unknown type 'strng' at "
            "properties.a; leave it out with only",
        ),
        ("no output type", "'x' of the MCP server .* has an output schema by which nothing .*'strng' at properties.a"),
        ("in a circle", "can be checked: the reference #/\\$defs/p leads back to itself"),
        (
            "long name",
            "tool 'x{65}' of the MCP server .* cannot be offered, .*at most 64.*: choose other tools with only",
        ),
        ("no name", "tool '' of the MCP server .* cannot be offered"),
        ("laughs", "can be checked: the schema has more than 20000 parts.*; leave it out with only"),
        ("deep", "MCP server"),
        ("no pattern", "can be checked: missing \\), unterminated subpattern"),
        ("no reference", "can be checked: Unresolvable: http://nowhere.invalid/schema.json"),
    ],
)
def test_tools_that_cannot_be_offered_are_named_at_the_start(mode, sentence):
    with pytest.raises(ValueError, match=sentence):
        raw(mode)


@pytest.mark.fault
def test_names_of_tools_are_made_harmless():
    box = raw("odd names")
    assert [spec.name for spec in box.specs()] == ["__im_end__", "_", "_3d"]
    assert call(box, "_3d", a=1) == "ok"
    box.close()


@pytest.mark.fault
@pytest.mark.parametrize(("mode", "key"), [("slow pattern", False), ("slow key", True)])
def test_a_servers_regular_expression_is_matched_in_linear_time(mode, key):
    box = raw(mode)
    hostile = "a" * 100_000 + "!"
    arguments = {hostile: 1} if key else {"a": hostile}
    before = time.process_time()
    with pytest.raises(ValueError, match="was unexpected" if key else "does not match") as refused:
        box.specs()[0].check(arguments)
    assert len(str(refused.value)) < 500
    fits = {"aaa": 1} if key else {"a": "aaa"}
    assert box.specs()[0].check(fits) == fits
    if key:
        with pytest.raises(ValueError, match="argument 'aaa': 'b' is not of type 'integer'"):
            box.specs()[0].check({"aaa": "b"})
    assert time.process_time() - before < 1.0
    box.close()


@pytest.mark.fault
def test_a_server_that_never_comes_to_the_end_of_its_list():
    with pytest.raises(ValueError, match="does not end its list of tools"):
        raw("endless", start_s=3.0)


@pytest.mark.fault
def test_a_tool_that_cannot_be_checked_can_be_left_out_and_doubles_count_once():
    for mode, options, name in (("no type", {"only": ("y",)}, "y"), ("twice", {}, "x"), ("old", {}, "x")):
        box = raw(mode, **options)
        assert [spec.name for spec in box.specs()] == [name]
        with pytest.raises(ValueError, match="is not of type"):
            box.specs()[0].check({"a": "text"})
        box.close()


@pytest.mark.fault
@pytest.mark.parametrize(
    ("mode", "kind", "said"),
    [
        ("binary", str, "ok"),
        ("image", str, r"\[image image/png, 4 base64 characters\]"),
        ("mute error", ToolError, "x failed and did not say why"),
        ("no content", ToolFault, "answered a call with what is no result"),
        ("silent", ToolFault, "was lost during a call: it said nothing on stderr"),
    ],
)
def test_whatever_a_server_answers(mode, kind, said, monkeypatch):
    monkeypatch.setattr(mcp, "PING_S", 0.5)
    box = raw(mode, timeout_s=1.0 if mode == "silent" else 60.0)
    told = call(box, "x", a=1)
    box.close()
    assert isinstance(told, kind) and re.match(f".*{said}", str(told))


@pytest.mark.slow
def test_a_tool_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="has no tool 'ad': did you mean add"):
        make(Config(command=SERVER, only=("ad",), **PATIENT))


@pytest.mark.fault
def test_a_result_that_does_not_fit_its_output_schema_is_an_error_of_the_tool_and_no_lost_server():
    server = str(Path(__file__).with_name("structured_mcp_server.py"))
    box = make(Config(command=(sys.executable, server), **{**PATIENT, "restarts": 1}))
    other = "does not fit the tool's output schema ('count' is a required property), its text is: 3 files"

    def told() -> dict[str, str]:
        names = ["fits", "alone", "links", "other shape", "wrong type", "text alone", "no object", "long"]
        names += ["fails", "fails at a place"]
        return {name: call(box, name.replace(" ", "_")) for name in names}

    first = told()
    assert [first[name] for name in ("fits", "alone", "links")] == [
        "3 files",
        '{"count": 3}',
        "[resource_link a, file:///a.txt]",
    ]
    errors = {name: str(error) for name, error in first.items() if isinstance(error, ToolError)}
    assert errors == {
        "other shape": f"the result of other shape {other}",
        "wrong type": "the result of wrong type does not fit the tool's output schema "
        "(count: 'three' is not of type 'integer')",
        "text alone": "the result of text alone does not fit the tool's output schema (it has no structured content), "
        "its text is: 3 files",
        "no object": "the result of no object does not fit the tool's output schema ([3] is not of type 'object'), its "
        "text is: 3 files",
        "fails": "no disk",
        "fails at a place": '{"at": 3}',
        "long": "the result of long does not fit the tool's output schema "
        f"(count: '{'y' * 149}...{'y' * 124}' is not of type 'integer')",
    }
    assert box.server._lost == 0
    lost = call(box, "dies")
    assert isinstance(lost, ToolFault) and "was lost during a call" in str(lost) and box.server._lost == 1
    # the new session has listed the first page only: the results are the same all the same
    assert {name: str(result) for name, result in told().items()} == {name: str(r) for name, r in first.items()}
    assert box.server._lost == 0
    box.close()


def test_schemas_are_closed_unless_they_say_they_are_open():
    assert closed({})["additionalProperties"] is False
    assert closed({"additionalProperties": True})["additionalProperties"] is True


@pytest.mark.slow
def test_a_server_over_http():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([*SERVER, "http"], env={**os.environ, "PORT": str(port)})
    try:
        until = time.monotonic() + 120
        while True:
            try:
                box = make(Config(url=f"http://127.0.0.1:{port}/mcp", only=("add", "fail"), prefix="x_", **PATIENT))
                break
            except ValueError:
                assert time.monotonic() < until and process.poll() is None
                time.sleep(0.5)
        assert [spec.name for spec in box.specs()] == ["x_add", "x_fail"]
        assert call(box, "x_add", a=1, b=2) == "3" and isinstance(call(box, "x_fail"), ToolError)
        process.kill()
        process.wait()
        assert isinstance(call(box, "x_add", a=1, b=2), ToolFault)
        box.close()
    finally:
        process.kill()


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    """What a first call and the call after it come to, for each chosen way to spoil the first answer, all at once."""
    items = [item for item in request.session.items if item.originalname.startswith("test_a_spoilt_answer")]
    chosen = [item.callspec.params["mode"] for item in items]
    patch = pytest.MonkeyPatch()
    patch.setattr(mcp, "PING_S", 0.5)
    folder = tmp_path_factory.mktemp("struck")

    def two_calls(mode: str):
        command = (sys.executable, str(RAW), mode, str(folder / mode.replace(" ", "_")))
        box = make(Config(command=command, start_s=120.0, timeout_s=2.0))
        try:
            first = call(box, "x", a=1)
            box.server.config = box.server.config.model_copy(update={"timeout_s": 60.0})
            return first, call(box, "x", a=1)
        finally:
            box.close()

    with ThreadPoolExecutor(4) as threads:
        yield dict(zip(chosen, threads.map(two_calls, chosen), strict=True))
    patch.undo()


@pytest.mark.fault
@pytest.mark.parametrize(
    "mode", [mode if i % 3 == 0 else pytest.param(mode, marks=pytest.mark.slow) for i, mode in enumerate(SPOILT)]
)
def test_a_spoilt_answer_costs_its_call_and_the_server_is_started_again(outcomes, mode):
    first, second = outcomes[mode]
    assert isinstance(first, ToolFault) and re.search("was lost during a call|no answer in 2 s", str(first))
    assert second == "ok"


@pytest.mark.fault
@pytest.mark.parametrize(
    ("mode", "kind", "said"),
    [
        ("late", str, "ok"),
        ("object", ToolFault, "answered a call with what is no result"),
        ("null", ToolFault, "answered a call with what is no result"),
        ("surrogate", ToolFault, r"no answer in 3 s"),
    ],
)
def test_answers_that_come_late_or_are_of_other_types(mode, kind, said):
    box = raw(mode, timeout_s=3.0 if mode == "surrogate" else 60.0)
    told = call(box, "x", a=1)
    box.close()
    assert isinstance(told, kind) and re.search(said, str(told))


@pytest.mark.fault
def test_an_answer_of_three_million_characters_arrives():
    box = raw("huge")
    told = call(box, "x", a=1)
    box.close()
    assert told == "x" * 3_000_000


@pytest.mark.fault
def test_what_a_server_writes_to_stderr_is_given_back_while_a_call_runs():
    box = raw("stderr")
    assert call(box, "x", a=1) == "ok"
    until = time.monotonic() + 120
    while (held := os.fstat(box.server._said.fileno()).st_blocks * 512) > mcp.STDERR_BYTES:
        assert time.monotonic() < until, f"{held} bytes are kept"
        time.sleep(0.05)
    assert os.fstat(box.server._said.fileno()).st_size >= 64 << 20 or held == 0
    box.close()


@pytest.mark.fault
def test_a_schema_that_holds_itself_twice_is_checked_in_bounded_time():
    branch = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}}
    node = {"anyOf": [{**branch, "required": ["x"]}, {**branch, "required": ["y"]}]}
    check = mcp.checker("t", closed({"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": node}}))
    assert check({"a": {"x": 1, "a": {"y": 1}}})
    nested: dict = {}
    for _ in range(90):
        nested = {"a": nested}
    before = time.process_time()
    with pytest.raises(ValueError, match="t: the arguments are nested too deeply to be checked"):
        check(nested)
    assert time.process_time() - before < 5.0


@pytest.mark.fault
def test_a_server_that_floods_stderr_fills_neither_memory_nor_disk(monkeypatch):
    server = Server(Config(command=("nothing",)))
    said = server._stderr()
    os.write(said.fileno(), b"much\n" * 400_000 + b"the last words\n")
    assert server.words() == "its last words: the last words"
    monkeypatch.setattr(mcp, "STDERR_BYTES", 1 << 20)
    server._shorten_stderr()
    assert os.fstat(said.fileno()).st_blocks == 0
    os.write(said.fileno(), b"and more\n")  # the server goes on where it was
    assert server.words() == "its last words: and more"
    server.close()
