"""What a sandbox costs beside a plain subprocess, and what 10,000 executions leave behind.

    python benchmarks/sandbox.py                        # latencies of every backend that holds on this machine
    python benchmarks/sandbox.py --executions 10000     # processes, files, descriptors before and after; exit 1 if more

Each row is measured in turns with the plain subprocess (`python -S -c print(1)`), so that the ratio does not depend on
what else the machine does. Targets of the default backend on a calm machine: start and first cell 40 ms, a cell 0.5 ms,
50 executions per second on two cores.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agentrl.tools._sandbox import interpreter
from agentrl.tools._sandbox.launch import FIRST_SPARE_UID, Limits
from agentrl.tools._sandbox.probe import CHAIN, check
from agentrl.tools._sandbox.session import LocalSession

LIMITS = Limits()
THREADS = 2  # number of threads that ask for executions at the same time; their processes share the machine's cores


def plain() -> None:
    """A process without walls."""
    python = interpreter.find("", False).executable
    subprocess.run([python, "-s", "-S", "-c", "print(1)"], capture_output=True, check=True, env={})


def one_shot(backend: str) -> None:
    """A sandbox, one execution, the end of the sandbox."""
    with LocalSession(backend, LIMITS, stateful=False) as session:
        result = session.run("print(1)")
    assert result.stdout == "1\n", result


def seconds(call: Callable[[], None]) -> float:
    """How long a call takes."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def first_cell(backend: str) -> float:
    """Seconds from the start of the session to the answer of the first cell."""
    session = LocalSession(backend, LIMITS)
    taken = seconds(lambda: session.run("1"))
    session.close()
    return taken


def cells(backend: str, count: int = 200) -> float:
    """Median seconds of a cell in a running interpreter."""
    with LocalSession(backend, LIMITS) as session:
        session.run("x = 0")
        return statistics.median(seconds(lambda: session.run("x += 1")) for _ in range(count))


def rate(call: Callable[[], None], count: int) -> float:
    """Calls per second from `THREADS` threads."""
    with ThreadPoolExecutor(THREADS) as pool:
        started = time.perf_counter()
        list(pool.map(lambda _: call(), range(count)))
    return count / (time.perf_counter() - started)


def latencies(backend: str, rounds: int) -> dict[str, float]:
    """The row of one backend: milliseconds and executions per second, each beside the plain subprocess's."""
    bare, start, once = [], [], []
    one_shot(backend)
    for _ in range(rounds):
        bare.append(seconds(plain))
        start.append(first_cell(backend))
        once.append(seconds(lambda: one_shot(backend)))
    base, ours = rate(plain, 2 * rounds), rate(lambda: one_shot(backend), 2 * rounds)
    median = statistics.median
    return {
        "plain_ms": 1e3 * median(bare),
        "start_ms": 1e3 * median(start),
        "start_ratio": median(start) / median(bare),
        "one_shot_ms": 1e3 * median(once),
        "cell_ms": 1e3 * cells(backend),
        "per_s": ours,
        "plain_per_s": base,
        "rate_ratio": base / ours,
    }


def left() -> dict[str, int]:
    """What could leak: children, processes and files of ours, descriptors, mounts, threads, shared memory, semaphores
    and queues of System V, owners of kernel keys, kilobytes of resident memory."""
    gc.collect()
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        children = len(file.read().split())
    status = Path("/proc/self/status").read_text("utf-8")
    return {
        "children": children,
        "processes": sum(name.isdigit() and _is_ours(name) for name in os.listdir("/proc")),
        "files": len(list(Path(tempfile.gettempdir()).glob("agentrl-sandbox-*"))),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mounts": len(Path("/proc/self/mounts").read_text("utf-8").splitlines()),
        "threads": len(os.listdir("/proc/self/task")),
        "system_v": sum(
            len(Path(f"/proc/sysvipc/{name}").read_text("ascii").splitlines()) for name in ("shm", "sem", "msg")
        ),
        "key_owners": _key_owners(),
        "memory_kb": int(status.split("VmRSS:")[1].split()[0]),
    }


def _key_owners() -> int:
    """Spare users of sandboxes that own keys of the kernel."""
    try:
        owners = [int(line.partition(":")[0]) for line in Path("/proc/key-users").read_text("ascii").splitlines()]
    except OSError:  # a kernel without keys
        return 0
    return sum(FIRST_SPARE_UID <= owner < 2 * FIRST_SPARE_UID for owner in owners)


def _is_ours(pid: str) -> bool:
    """Does a process run the sandbox's first line, and descend from this process or from no living process?"""
    try:
        if b"exec(marshal.loads(d)if" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return False
        while pid not in ("0", "1", str(os.getpid())):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"exec(marshal.loads(d)if" not in words:
                return False  # another program's sandbox
            pid = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[1]
    except (OSError, IndexError):
        return False
    return True


def leaks(backend: str, executions: int, per_sandbox: int) -> dict[str, dict[str, int]]:
    """The counts of `left` before and after some executions, among them hangs, crashes, forks and closed folders."""
    codes = [
        "print(1)",
        "1/0",
        "import os; os._exit(1)",
        "import os\nif os.fork() == 0:\n    os.setsid()\n    while 1: pass",
        "import os\nos.makedirs('d/d', exist_ok=True)\nopen('d/d/f', 'w')\nfor d in ('d/d', 'd'): os.chmod(d, 0)",
    ]
    for code in codes:
        with LocalSession(backend, LIMITS) as session:
            session.run(code)
    before = left()
    for start in range(0, executions, per_sandbox):
        with LocalSession(backend, LIMITS) as session:
            for i in range(start, min(start + per_sandbox, executions)):
                if i % 500 == 499:
                    session.run("while True: pass", 0.05)
                else:
                    session.run(codes[i % len(codes)] if i % 7 == 0 else f"open('f{i}', 'w').write('x' * 1000)")
    return {"before": before, "after": left()}


def main() -> None:
    """Print a table, or with --executions what is left; --json for machines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--executions", type=int, default=0, metavar="N", help="count what N executions leave behind")
    parser.add_argument("--per-sandbox", type=int, default=1, metavar="N", help="executions per sandbox (--executions)")
    parser.add_argument("--backend", default="", help="one backend instead of all that hold here")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    backends = [options.backend] if options.backend else [name for name in CHAIN if not check(name)]
    if options.executions:
        started = time.perf_counter()
        name = backends[0]
        told = {name: leaks(name, options.executions, options.per_sandbox)}
        print(json.dumps(told) if options.json else _left_table(told))
        if not options.json:
            print(f"{options.executions} executions in {time.perf_counter() - started:.0f} s")
        more = [what for what in told[name]["before"] if told[name]["after"][what] > told[name]["before"][what]]
        if set(more) - {"memory_kb"}:
            raise SystemExit(f"{options.executions} executions left more {', '.join(more)} than there were")
        return
    rows = {name: latencies(name, options.rounds) for name in [*backends, "unsafe-host"]}
    print(json.dumps(rows) if options.json else _table(rows))


def _table(rows: dict[str, dict[str, float]]) -> str:
    columns = list(next(iter(rows.values())))
    lines = [f"{'':12}" + "".join(f"{name:>13}" for name in columns)]
    lines += [f"{name:12}" + "".join(f"{row[column]:13.2f}" for column in columns) for name, row in rows.items()]
    return "\n".join(lines)


def _left_table(told: dict[str, dict[str, dict[str, int]]]) -> str:
    return "\n".join(
        f"{name:8} {what:12} before {both['before'][what]:8} after {both['after'][what]:8}"
        for name, both in told.items()
        for what in both["before"]
    )


if __name__ == "__main__":
    main()
