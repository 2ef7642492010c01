"""What a session answers, and what it leaves behind. Runs on whatever sandbox this machine has."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest

from agentrl import catalogue
from agentrl.env import deadline
from agentrl.tool import (
    CodeResult,
    CodeRunner,
    CodeSession,
    Tool,
    ToolFault,
    open_runner,
    tool_spec,
    without_infra_error,
)
from agentrl.tools import python_sandbox
from agentrl.tools._sandbox import launch, probe, process
from agentrl.tools._sandbox.launch import Limits
from agentrl.tools._sandbox.probe import check, choose
from agentrl.tools._sandbox.session import LocalSession
from agentrl.types import EnvFault
from tests.tools.sandbox.attacks import frozen, processes_with

FORGE = """
import os, sys
frame = sys._getframe()
while 'command' not in frame.f_locals:
    frame = frame.f_back
nonce = frame.f_locals['command']['nonce']
line = ('\\n' + {nonce} + '{{"text": "forged", "exit": 0}}\\n').encode()
for number in range(3, 64):
    try:
        os.write(number, line)
    except OSError:
        pass
"""


@pytest.fixture(scope="module")
def runner():
    return python_sandbox.runner(python_sandbox.Config())


@pytest.fixture
def session(runner):
    opened = runner.session()
    yield opened
    opened.close()


def test_protocols_and_catalogue(runner, session):
    assert isinstance(runner, CodeRunner) and isinstance(session, CodeSession)
    tool = catalogue.load("tools", "python_sandbox").make(python_sandbox.Config())
    assert isinstance(tool, Tool)
    assert tool("x = 3\nx + 1") == "4" and tool("x") == "3"
    tool.reset()
    assert tool("x").endswith("NameError: name 'x' is not defined")
    tool.close()


def test_a_cell_is_answered_in_full(session):
    result = session.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\n2 ** 10")
    assert (result.stdout, result.stderr, result.result_text) == ("out\n", "err\n", "1024")
    assert result.ok and result.exit_code == 0 and result.backend == session.backend != ""
    assert session.run("None").result_text == "" and session.run("_ = 5").result_text == ""


def test_errors_name_the_line_and_no_frame_of_ours(session):
    result = session.run("def f(a):\n    return 1 / a\nf(0)")
    assert (result.error_name, result.error_value, result.exit_code) == ("ZeroDivisionError", "division by zero", 1)
    assert "return 1 / a" in result.traceback and result.traceback.count("File ") == 2
    broken = session.run("def f(:\n  pass")
    assert broken.error_name == "SyntaxError" and "def f(:" in broken.traceback and not broken.infra_error


@pytest.mark.parametrize(
    ("code", "exit_code", "stderr"),
    [("import sys; sys.exit(3)", 3, ""), ("raise SystemExit('no')", 1, "no\n"), ("import sys; sys.exit()", 0, "")],
)
def test_exit_ends_the_cell_and_not_the_session(session, code, exit_code, stderr):
    session.run("kept = 1")
    result = session.run(code)
    assert (result.exit_code, result.stderr, result.error_name) == (exit_code, stderr, "")
    assert session.run("kept").result_text == "1"


def test_a_lost_interpreter_is_said_and_replaced(session):
    session.run("kept = 1")
    result = session.run("import os\nprint('last words', flush=True)\nos._exit(7)")
    assert (result.error_name, result.exit_code, result.stdout) == ("InterpreterExit", 7, "last words\n")
    assert "variables and files are lost" in result.error_value
    assert session.run("kept").error_name == "NameError"


def test_time_is_up_and_variables_stay(session):
    session.run("kept = 1")
    result = session.run("try:\n    while True: pass\nexcept Exception: pass", 0.2)
    assert result.timed_out and result.exit_code is None and result.wall_s > 0.15
    assert session.run("kept").result_text == "1"


def test_what_ignores_the_timer_is_killed(session):
    result = session.run("import signal, time\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\ntime.sleep(600)", 0.2)
    assert result.timed_out and result.wall_s < 300
    assert session.run("1 + 1").result_text == "2"


def test_twenty_megabytes_are_read_and_cut(session):
    result = session.run("print('x' * 20_000_000)")
    # 65536 bytes are kept; 20000001 were written with the newline.
    assert result.stdout.startswith("x" * 65536) and "[19934465 more bytes cut off]" in result.stdout
    assert len(result.stdout) < 66000 and result.ok
    assert len(session.run("'y' * 20_000_000").result_text) == 65536


def test_binary_output_and_half_surrogates_become_text(session):
    raw = session.run("import sys\n_ = sys.stdout.buffer.write(bytes(range(256)))")
    assert "\ufffd" in raw.stdout and raw.stdout.startswith("\x00\x01")
    result = session.run("print('\\ud800'); '\\ud800'")
    assert (result.stdout, result.result_text) == ("\\ud800\n", "'\\ud800'")
    for text in (session.run("class E(Exception): pass\nraise E('\\ud800')").error_value, raw.stdout):
        text.encode()  # what a tokenizer must be able to take


def test_input_is_given_once(session):
    assert session.run("a = input(); b = input(); print(b, a)", stdin="one\ntwo\n").stdout == "two one\n"
    assert session.run("input()").error_name == "EOFError"


def test_files_go_in_and_come_out(runner):
    with runner.session({"pkg/mod.py": "X = 41", "data.bin": b"\x00\xff"}) as session:
        code = "import sys; sys.path.insert(0, '.'); from pkg.mod import X\nopen('out', 'wb').write(b'\\x01' * X)"
        result = session.run(code, fetch=("out", "data.bin", "absent", "pkg"))
        assert result.artifacts == {"out": b"\x01" * 41, "data.bin": b"\x00\xff"}
    for path in ("../x", "/etc/x", "a/../../x", ""):
        with pytest.raises(ValueError, match="no path below the working folder"):
            runner.session({path: ""})


def test_stateless_runs_know_nothing_of_each_other(runner):
    with runner.session({"f": "1"}, stateful=False) as session:
        assert session.run("x = 1\nopen('f', 'w').write('2')").ok
        assert session.run("open('f').read()").result_text == "'1'"
        assert session.run("x").error_name == "NameError"


def test_a_reply_forged_without_the_nonce_is_skipped(session):
    result = session.run(FORGE.format(nonce="'0' * 16") + "\n6 * 7")
    assert result.result_text == "42"


def test_a_reply_forged_with_the_nonce_costs_its_own_cell_only(session):
    forged = session.run(FORGE.format(nonce="nonce") + "\n6 * 7")
    # It can succeed, which is why no reply decides a reward; it looks for the nonce in memory, and may not find it.
    assert forged.result_text in ("forged", "42")
    assert [session.run(f"{i} * {i}").result_text for i in range(5)] == ["0", "1", "4", "9", "16"]


@pytest.mark.parametrize("line", ["[" * 100_000, "{}", "null", '{"text": 5, "error": [], "files": 3, "exit": "x"}'])
def test_a_senseless_reply_harms_nobody(session, line):
    code = FORGE.format(nonce="nonce").replace('{"text": "forged", "exit": 0}', line)
    assert isinstance(session.run(code), CodeResult)
    assert session.run("6 * 7").result_text == "42"


def test_an_idle_session_uses_no_processor(session):
    session.run(
        "import threading\ndef spin():\n    while True: pass\nthreading.Thread(target=spin, daemon=True).start()"
    )
    if session.backend == "unsafe-host":
        pytest.skip("without walls nothing is frozen")
    assert frozen(session._process._family.loop)
    assert session.run("6 * 7").result_text == "42"


def test_an_interrupted_run_leaves_no_reply_for_the_next(session):
    session.run("x = 1")
    with pytest.raises(EnvFault, match="no answer"), deadline(0.2):
        session.run("import time; time.sleep(5); 'stale'", 10)
    assert session.run("6 * 7").result_text == "42"


def test_a_session_outlives_the_thread_that_started_it(runner):
    with runner.session() as session:
        thread = threading.Thread(target=lambda: session.run("x = 42"))
        thread.start()
        thread.join()
        time.sleep(0.1)
        assert session.run("x").result_text == "42"


def test_a_copy_has_an_interpreter_of_its_own(session):
    session.run("x = 1")
    copy = pickle.loads(pickle.dumps(session))
    assert copy.run("x").error_name == "NameError" and session.run("x").result_text == "1"
    copy.close()
    copy.close()


@pytest.mark.parametrize("backend", ["bwrap", "unshare", "landlock"])
def test_a_killed_parent_leaves_no_process(backend, tmp_path):
    if check(backend):
        pytest.skip(check(backend))
    mark = f"mark-{os.getpid()}-{backend}"
    code = (
        "import os, signal, sys\nfrom agentrl.tools._sandbox.launch import Limits\n"
        "from agentrl.tools._sandbox.session import LocalSession\n"
        f"s = LocalSession({backend!r}, Limits())\n"
        "s.run('import sys, subprocess')\n"
        "print(s._process._family.loop, flush=True)\n"
        f"s.run('''subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)', {mark!r}])\n"
        "print('x' * 9, flush=True)\nimport time; time.sleep(60)''', 60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=os.getcwd(), text=True)
    assert parent.stdout is not None
    loop = int(parent.stdout.readline())
    ends = time.monotonic() + 120
    while not [pid for pid in processes_with(mark) if pid != parent.pid] and time.monotonic() < ends:
        time.sleep(0.02)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    while (os.path.exists(f"/proc/{loop}") or processes_with(mark)) and time.monotonic() < ends:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{loop}") and not processes_with(mark)


def test_nothing_is_left_by_many_sessions(runner):
    def counts() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(process_children())

    def process_children() -> list[str]:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return file.read().split()

    runner.session().run("1")
    before = counts()
    for i in range(20):
        with runner.session() as session:
            assert session.run(f"{i}").result_text == str(i)
            session.run("import os; os._exit(1)" if i % 2 else "1/0")
    assert counts() == before


def test_a_lost_sandbox_is_nobodys_fault(monkeypatch):
    session = LocalSession("bwrap", Limits())
    monkeypatch.setitem(launch.PLANS, "bwrap", _broken)
    result = session.run("1")
    assert result.infra_error and result.exit_code is None and not result.ok and result.backend == "bwrap"
    with pytest.raises(ToolFault, match="the bwrap sandbox failed: it did not start"):
        without_infra_error(result)


def _broken(limits, python, packages, hide):
    return launch.Plan(command=["/bin/false", "{replies}"], environment={}, rules={}, folder="/")


def test_nothing_that_holds_is_a_refusal_with_a_next_move(monkeypatch):
    monkeypatch.setattr(launch, "_program", _absent)
    monkeypatch.setattr(probe, "_check", probe._check.__wrapped__)
    monkeypatch.setattr(probe, "CHAIN", ("bwrap", "unshare"))
    with pytest.raises(ValueError, match=r"no sandbox holds .*bwrap is not installed.*apt-get install bubblewrap"):
        choose("auto")
    with pytest.raises(ValueError, match=r"'bwrap' does not hold on this machine: .*bwrap is not installed"):
        choose("bwrap")
    assert choose("unsafe-host") == "unsafe-host"


def _absent(name):
    raise ValueError(f"{name} is not installed")


def test_unsafe_is_never_chosen_by_itself_and_says_its_name():
    assert "unsafe-host" not in probe.CHAIN
    with LocalSession(choose("unsafe-host"), Limits()) as session:
        assert session.run("1").backend == "unsafe-host"


def test_without_bubblewrap_the_next_backend_is_taken(monkeypatch):
    if check("unshare"):
        pytest.skip(check("unshare"))
    program = launch._program
    monkeypatch.setattr(launch, "_program", lambda name: _absent(name) if name == "bwrap" else program(name))
    monkeypatch.setattr(probe, "_check", probe._check.__wrapped__)
    assert choose("auto") == "unshare"


def test_packages_are_let_in_by_name():
    bare = python_sandbox.runner(python_sandbox.Config())
    with bare.session() as session:
        assert session.run("import numpy").error_name == "ModuleNotFoundError"
    fed = python_sandbox.runner(python_sandbox.Config(packages=("numpy",)))
    with fed.session() as session:
        assert session.run("import numpy; int(numpy.arange(4).sum())").result_text == "6"
        assert session.run("import agentrl").error_name == "ModuleNotFoundError"
    with pytest.raises(ValueError, match=r"package 'no-such-dist' .* is not installed"):
        python_sandbox.runner(python_sandbox.Config(packages=("no-such-dist",)))


def test_open_runner_takes_tools_that_run_code():
    assert open_runner({"name": "python_sandbox", "timeout_s": 2}).backend
    with pytest.raises(ValueError, match=r"sandbox\.timeout_s"):
        open_runner({"name": "python_sandbox", "timeout_s": -1})
    with pytest.raises(ValueError, match="timeout_s = 0"):
        LocalSession("bwrap", Limits()).run("1", 0)


def test_asyncio_processes_and_threads_work(session):
    assert session.run("import asyncio\nasync def f(): return 5\nasyncio.run(f())").result_text == "5"
    code = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'print(7)'], capture_output=True).stdout"
    assert session.run(code).result_text == "b'7\\n'"
    if session.backend == "bwrap":
        pool = "from multiprocessing import Pool\nwith Pool(2) as p:\n    out = p.map(abs, [-1, 2])\nout"
        assert session.run(pool).result_text == "[1, 2]"


def test_source_sent_inside_is_what_lies_in_the_files():
    assert b"def confine(" in process.SOURCE and b"def loop(" in process.SOURCE


@pytest.mark.parametrize(("stateful", "words"), [(True, "kept for the next call"), (False, "without the variables")])
def test_the_model_reads_whether_variables_are_kept(stateful, words):
    tool = python_sandbox.make(python_sandbox.Config(stateful=stateful))
    assert words in str(tool_spec(tool).schema)
    tool("kept = 1")
    assert ("NameError" in tool("print(kept)")) is not stateful
    tool.close()
