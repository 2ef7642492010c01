"""The process that judges expressions: its limits, its life, and several callers."""

import os
import signal
import subprocess
import sys
import threading
import time
from fractions import Fraction

import pytest

from agentrl.envs import code_math
from agentrl.envs.code_math import judge
from agentrl.envs.code_math.judge import Judge
from agentrl.envs.code_math.judge_worker import approximates
from agentrl.tool import action as tool_action
from agentrl.types import EnvFault

LEFT, RIGHT = "\\frac{1}{\\sqrt{2}}", "\\frac{\\sqrt{2}}{2}"


@pytest.fixture(scope="module")
def one():
    """A judge whose process the tests start and end: a start takes half a CPU second."""
    made = Judge()
    yield made
    made.close()


def gone(pid):
    """Has the process ended, without a zombie that is left?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_process_is_started_once_and_ends_with_close(one):
    assert one._process is None
    assert one.compare(LEFT, RIGHT) == "equal" and one.compare("x", "y") == "different"
    pid = one._process.pid
    assert one.compare("2 x", "x + x") == "equal" and one._process.pid == pid
    one.close()
    assert gone(pid)
    assert one.compare(LEFT, RIGHT) == "equal" and one._process.pid != pid


def test_a_process_that_dies_is_replaced_and_the_verdict_is_the_same(one):
    assert one.compare(LEFT, RIGHT) == "equal"
    first = one._process.pid
    os.kill(first, signal.SIGKILL)
    assert one.compare(LEFT, RIGHT) == "equal" and one._process.pid != first


def test_work_in_python_and_in_c_is_cut_by_cpu_time(tmp_path, monkeypatch):
    # The same program with small limits: a timer ends work in Python; the kernel ends one long call in C.
    worker = tmp_path / "worker.py"
    text = judge.WORKER.read_text()
    slow = """
class Slow(Expressions):
    def __init__(self):
        pass
    def same(self, given, expected):
        if given == "python":
            while True:
                pass
        if given == "memory":
            return len(bytearray(4 << 30)) > 0
        if given == "c":
            import collections, itertools
            collections.deque(itertools.repeat(None), maxlen=0)
        return given == expected
Expressions = Slow
CPU_S, C_CALL_S = 0.2, 0.2
"""
    head, main = text.rsplit('if __name__ == "__main__":', 1)
    worker.write_text(head + slow + 'if __name__ == "__main__":' + main)
    monkeypatch.setattr(judge, "WORKER", worker)
    one = Judge()
    assert one.compare("a", "a") == "equal"
    pid = one._process.pid
    assert one.compare("python", "b") == "unjudged" and one.compare("memory", "b") == "unjudged"
    assert one._process.pid == pid and one.compare("a", "b") == "different"
    assert one.compare("c", "b") == "unjudged" and gone(pid)
    assert one.compare("a", "a") == "equal"
    one.close()


def test_a_process_that_cannot_start_is_a_fault_and_no_verdict(tmp_path, monkeypatch):
    (tmp_path / "worker.py").write_text("raise SystemExit(3)\n")
    monkeypatch.setattr(judge, "WORKER", tmp_path / "worker.py")
    with pytest.raises(EnvFault, match="ended at its start with exit code 3"):
        Judge().compare("a", "b")


def test_without_the_package_one_sentence_names_the_extra(monkeypatch):
    monkeypatch.setattr(judge.importlib.util, "find_spec", lambda name: None)
    for use in (lambda: code_math.tasks(code_math.Config()), lambda: code_math.make(code_math.Config())):
        with pytest.raises(ValueError, match=r"code_math needs the package math-verify: pip install .*\[math\]"):
            use()


def test_threads_share_one_process(one):
    found = {}

    def ask(number):
        found[number] = one.compare(f"x + {number}", f"{number} + x") + one.compare(f"x + {number}", "x")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(1, 9), "equaldifferent")


PROGRAM = """
import os, sys
from agentrl.envs.code_math import judge
print(judge.compare("x + 1", "1 + x"), judge._shared._process.pid, flush=True)
child = os.fork()
if child == 0:
    same = judge.compare("x + 2", "2 + x")
    print(same, judge._shared._process.pid, flush=True)
    judge._shared.close()
    os._exit(0)
os.waitpid(child, 0)
print(judge.compare("x + 3", "3 + x"), judge._shared._process.pid, flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("end", [pytest.param("ordinary", marks=pytest.mark.slow), "killed"])
def test_a_forked_child_has_its_own_process_and_none_outlives_its_trainer(end):
    ran = subprocess.run([sys.executable, "-c", PROGRAM, end], capture_output=True, text=True, timeout=300)
    (first, a), (second, b), (third, c) = (line.split() for line in ran.stdout.splitlines())
    assert {first, second, third} == {"equal"} and a == c != b
    until = time.monotonic() + 60
    while not (gone(int(a)) and gone(int(b))) and time.monotonic() < until:
        time.sleep(0.02)
    assert gone(int(a)) and gone(int(b))


def test_an_unjudged_answer_is_counted(monkeypatch):
    config = code_math.Config()
    env = code_math.make(config)
    env.reset(code_math.tasks(config)[0])
    result = env.step(tool_action.answer("\\boxed{9^{9^{9^{9}}}}"))
    env.close()
    assert result.info["signals"]["unjudged"] == 1.0 and result.reward == 0.0 and not result.info["success"]


def test_rounded_and_cut_decimals_by_hand():
    third, two_thirds = Fraction(1, 3), Fraction(2, 3)
    assert approximates("0.333333", Fraction("0.333333"), third)
    assert approximates("0.666667", Fraction("0.666667"), two_thirds)  # rounded
    assert approximates("0.666666", Fraction("0.666666"), two_thirds)  # cut
    assert not approximates("0.666668", Fraction("0.666668"), two_thirds)
    assert not approximates("0.66667", Fraction("0.66667"), two_thirds)  # five places
    assert not approximates("0.000003", Fraction("0.000003"), Fraction(1, 333000))  # one digit that counts
    assert approximates("-0.333333", Fraction("-0.333333"), -third)
    assert not approximates("-0.333333", Fraction("-0.333333"), third)
