"""Environments in an interpreter of their own: what an episode does there stays there, and each failure is a sentence.

The adapters are small files of these tests; the tests in tests/envs/foreign play real packages.
"""

import ast
import asyncio
import os
import pickle
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from agentrl.config import resolve
from agentrl.env import ThreadPool
from agentrl.foreign import ForeignEnv, ForeignProgram
from agentrl.foreign.adapter_client import WORKER, close_hosts
from agentrl.types import EnvFault, Task

ADAPTER = """
import os, random, sys, time

PACKAGES = {"json": "json"}
SEEN = []


def load(options):
    if options.get("level") == 9:
        raise ValueError("env.level = 9: the highest is 8")
    if options.get("odd"):
        int("odd")
    if options.get("prints"):
        print("words before it is loaded")
    SEEN.append("loaded")
    return options


def found(value):
    return {"observation": {"text": str(value)}, "reward": 1, "terminated": False, "truncated": False, "info": {}}


class Episode:
    def __init__(self, world):
        self.world = world

    def reset(self, seed, params):
        SEEN.append(seed)
        return {"text": f"{len(SEEN)} {random.random()}", "actions": ["a", "b"]}

    def step(self, action):
        if action == "exit":
            os._exit(3)
        if action == "abort":
            os.abort()
        if action == "quit":
            sys.exit("enough")
        if action == "hang":
            time.sleep(600)
        if action == "raise":
            return [][0]
        if action == "set":
            return {"observation": {"text": {1}}}
        if action == "less":
            return {"reward": 1.0}
        if action == "print":
            print("x" * 100_000)
            os.write(1, b"\\x00\\xff" * 10_000)
        if action == "start":
            started = os.fork()
            time.sleep(0 if started else 600)
            return found(started)
        return found([action, os.getpid(), len(SEEN)])

    def where(self):
        return [os.getpid(), os.getppid(), sys.path[0], sys.executable]
"""


@pytest.fixture
def adapter(tmp_path):
    path = tmp_path / "adapter.py"
    path.write_text(ADAPTER)
    yield path
    close_hosts()


def program(adapter: Path, python: str = "", **options) -> ForeignProgram:
    return ForeignProgram.of("other", adapter, python, options)


def task(seed: int = 0) -> Task:
    return Task(key=f"t{seed}", env="other", seed=seed)


def lives(pid: int) -> bool:
    """Does the process exist, and is it no zombie?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(*pids: int) -> bool:
    """Have the processes ended, within a minute?"""
    ends_at = time.monotonic() + 60
    while any(lives(pid) for pid in pids) and time.monotonic() < ends_at:
        time.sleep(0.02)
    return not any(lives(pid) for pid in pids)


def test_nothing_that_an_episode_changes_reaches_another(adapter):
    one, two = ForeignEnv(program(adapter)), ForeignEnv(program(adapter))
    texts = [env.reset(task(5)) for env in (one, one, two)]
    assert texts[0] == texts[1] == texts[2] and texts[0].text.startswith("2 ") and texts[0].actions == ("a", "b")
    assert one.reset(task(6)).text != texts[0].text  # another seed, another random number
    assert [env.step("go").observation.text.endswith(", 2]") for env in (one, two)] == [True, True]


def test_the_package_is_loaded_once_for_all_episodes(adapter):
    hosts = {ForeignEnv(program(adapter)) for _ in range(3)}
    parents = set()
    for env in hosts:
        env.reset(task())
        parents.add(env.ask("where")[1])
    assert len(parents) == 1


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        ("exit", "the process of other ended in this call (exit code 3)"),
        ("abort", "the process of other ended in this call (signal 6)"),
        ("quit", "other: SystemExit: enough (adapter.py:"),
        ("raise", "other: IndexError: list index out of range (adapter.py:"),
        ("set", "other: TypeError: Object of type set is not JSON serializable"),
        ("less", "the adapter returned no result of a step: KeyError: 'info'"),
    ],
)
def test_a_failure_is_one_sentence_and_costs_its_own_episode(adapter, action, sentence):
    lost, other = ForeignEnv(program(adapter)), ForeignEnv(program(adapter))
    lost.reset(task())
    other.reset(task())
    with pytest.raises(EnvFault) as fault:
        lost.step(action)
    assert sentence in str(fault.value) and "\n" not in str(fault.value)
    assert other.step("go").reward == 1
    assert lost.reset(task()).text.startswith("2 ")  # a new process


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_process_of_a_dropped_instance_leaves_no_zombie(adapter):
    for _ in range(4):
        env = ForeignEnv(program(adapter))
        env.reset(task())
        host = env._process._host.process.pid
        del env
    deadline = time.monotonic() + 60
    while True:
        other = ForeignEnv(program(adapter))
        other.reset(task())  # the host looks for ended processes when it starts one
        children = Path(f"/proc/{host}/task/{host}/children").read_text().split()
        if len(children) == 1:
            break
        assert time.monotonic() < deadline, children
        other.close()


def test_what_a_package_prints_does_not_reach_the_channel(adapter, capfd):
    env = ForeignEnv(program(adapter, prints=True))
    env.reset(task())
    assert "print" in env.step("print").observation.text and env.step("go").reward == 1
    printed = capfd.readouterr()
    assert printed.out == "" and "xxxx" in printed.err and "words before" not in printed.err


def test_a_hanging_episode_is_given_up_alone_with_what_it_started(adapter):
    made = program(adapter)
    pool = ThreadPool(lambda: ForeignEnv(made), timeout_s=2.0)

    async def play() -> tuple[int, float]:
        hangs, goes = pool.acquire(), pool.acquire()
        for handle in (hangs, goes):
            await handle.reset(task())
        started = int((await hangs.step("start")).observation.text)
        hanging = asyncio.ensure_future(hangs.step("hang"))
        reward = (await goes.step("go")).reward
        with pytest.raises(EnvFault, match=r"no answer in 2 s"):
            await hanging
        pool.release(hangs, broken=True)
        return started, reward

    pid, reward = asyncio.run(play())
    pool.close()
    assert reward == 1 and gone(pid)


def test_an_instance_is_pickled_as_its_task_and_actions(adapter):
    env = ForeignEnv(program(adapter))
    first = env.reset(task(3))
    env.step("go")
    copy = pickle.loads(pickle.dumps(env))
    assert copy.ask("where")[0] != env.ask("where")[0]
    assert [one.step("go").observation.text.rpartition(" ")[2] for one in (env, copy)] == ["2]", "2]"]
    assert copy.reset(task(3)) == first


def test_a_step_after_the_end_is_answered_in_words(adapter):
    adapter.write_text(ADAPTER.replace('"terminated": False', '"terminated": True'))
    env = ForeignEnv(program(adapter))
    env.reset(task())
    assert env.step("go").terminated and env.step("go").observation.text == "The episode is over."


def test_the_interpreter_is_the_one_that_was_named(adapter, tmp_path, monkeypatch):
    """With the modules of that one, and without those that PYTHONPATH gives to ours."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "own")], check=True)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "ours"))
    python = tmp_path / "own" / "bin" / "python"
    other = ForeignEnv(program(adapter, str(python)))
    other.reset(task())
    assert other.ask("where")[3] == str(python)
    adapter.write_text(ADAPTER.replace("import os", "import os, numpy"))
    with pytest.raises(ValueError, match=f"other cannot be loaded by {python}: ModuleNotFoundError: No module named"):
        ForeignEnv(program(adapter, str(python), again=1))


@pytest.mark.parametrize(
    ("python", "sentence"),
    [
        ("nowhere/python", "env.python = 'nowhere/python' is no program: give the path of a Python"),
        ("/usr/bin", "env.python = '/usr/bin' is a folder: name the program in it"),
        ("/bin/true", "env.python = '/bin/true' ended with code 0 before it had loaded other: it must be a Python"),
        (
            "says_no",
            "says_no' ended with code 4 before it had loaded other: it must be a Python 3.9 or later; it wrote: no",
        ),
    ],
)
def test_a_wrong_interpreter_is_one_sentence(adapter, tmp_path, monkeypatch, python, sentence):
    monkeypatch.chdir(tmp_path)
    if python == "says_no":
        python = str(tmp_path / python)
        Path(python).write_text("#!/bin/sh\necho no\nexit 4\n")
        Path(python).chmod(0o755)
    with pytest.raises(ValueError) as error:
        ForeignEnv(program(adapter, python))
    assert sentence in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "source", "sentence"),
    [
        ({"level": 9}, ADAPTER, "env.level = 9: the highest is 8"),
        ({"odd": 1}, ADAPTER.replace("int(", "__import__('fractions').Fraction("), "other cannot be loaded by "),
        ({}, ADAPTER.replace('"json": "json"', '"no_such": "no-such"'), "has no package no-such: "),
    ],
)
def test_a_program_that_cannot_be_loaded_is_one_sentence(adapter, options, source, sentence):
    adapter.write_text(source)
    with pytest.raises(ValueError) as error:
        ForeignEnv(program(adapter, **options))
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_a_host_that_dies_is_replaced(adapter):
    env, other = ForeignEnv(program(adapter)), ForeignEnv(program(adapter))
    env.reset(task())
    host = env.ask("where")[1]
    os.kill(host, 9)
    assert gone(host)
    with pytest.raises(EnvFault):
        env.step("go")
    other.reset(task())
    assert other.ask("where")[1] != host


def test_everything_ends_with_the_process_that_plays(adapter, tmp_path):
    """Also if that is killed while an episode hangs."""
    script = f"""
import sys, threading, time
from pathlib import Path
from agentrl.foreign import ForeignEnv, ForeignProgram
from agentrl.types import Task
env = ForeignEnv(ForeignProgram.of("other", Path({str(adapter)!r}), "", {{}}))
env.reset(Task(key="t", env="other"))
print(*env.ask("where")[:2], flush=True)
env.step("hang")
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert all(lives(pid) for pid in pids)
        process.kill()
    assert gone(*pids)


def test_the_worker_reads_as_python_3_9():
    for path in (WORKER, WORKER.parents[1] / "env" / "channel.py"):
        ast.parse(path.read_text("utf-8"), feature_version=(3, 9))


PAGE = (Path(__file__).parents[2] / "docs" / "foreign.md").read_text("utf-8")


@pytest.mark.parametrize("name", ["reasoning_gym", "verifiers", "textarena", "openenv"])
def test_the_page_names_options_that_the_environment_has(name):
    """Its blocks are not run, because they need the package; the options are agentrl's own."""
    blocks = [tomllib.loads(text) for text in re.findall(r"```toml\n(.*?)```", PAGE, re.S)]
    (section,) = (block["env"] for block in blocks if block.get("env", {}).get("name") == name)
    assert resolve("envs", section, "env").name == name
