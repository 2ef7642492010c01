"""CPU seconds per folder at the end of a run, of the test processes and of the children that they waited for.

On a machine that others use too, wall time says little. `--cpu 20` lists the 20 costliest tests as well.
"""

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path, PurePath
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

import pytest

ROOT = Path(__file__).parents[1]
FOLDER_PARTS = 2  # tests/runs, tests/envs/alfworld counts as tests/envs


def spent(*whose: int) -> float:
    """CPU seconds of this process and of its children that have ended, since it started."""
    used = map(getrusage, whose or (RUSAGE_SELF, RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


class CpuSeconds:
    """Marks each report with the seconds since the report before it, and adds them up."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.before = config, 0.0
        self.collecting = 0.0
        self.tests: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session):
        self.before = self.collecting = spent()
        done = yield
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["collecting"] = self.collecting
        return done

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item):
        report = yield
        now = spent()
        report.cpu_seconds, self.before = now - self.before, now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tests[report.nodeid] += getattr(report, "cpu_seconds", 0.0)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error) -> None:
        self.collecting += getattr(node, "workeroutput", {}).get("collecting", 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        folders: defaultdict[str, float] = defaultdict(float)
        for test, seconds in self.tests.items():
            folders["/".join(PurePath(test.partition("::")[0]).parent.parts[:FOLDER_PARTS])] += seconds
        if len(folders) > 1:
            rows = sorted(folders.items(), key=lambda row: -row[1])
            total = self.collecting + sum(folders.values())
            terminalreporter.write_line(f"CPU seconds: {total:.0f}, of them {self.collecting:.0f} to load the tests")
            for folder, seconds in rows:
                terminalreporter.write_line(f"{seconds:8.1f} {folder}")
        for test, seconds in sorted(self.tests.items(), key=lambda row: -row[1])[: self.config.getoption("cpu")]:
            terminalreporter.write_line(f"{seconds:8.2f} {test}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu", type=int, default=0, metavar="N", help="list the N tests that took the most CPU seconds")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CpuSeconds(config))


def least_seconds(*words: str, times: int = 4, enough: float = 0.0) -> float:
    """The least CPU seconds of `python WORDS` in so many processes, the first of which writes the bytecode.

    A process that takes at most `enough` CPU seconds is the last one. Compare the result with that of
    `python -c pass`: on a busy machine both take more.
    """
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    seconds: list[float] = []
    while len(seconds) < times and min(seconds, default=enough + 1) > enough:
        before = spent(RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, capture_output=True)
        seconds.append(spent(RUSAGE_CHILDREN) - before)
    return min(seconds)
