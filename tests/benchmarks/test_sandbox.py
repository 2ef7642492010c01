"""What many executions leave behind, counted by the benchmark's own code."""

import importlib.util
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from agentrl.tools._sandbox.probe import CHAIN, check

FILE = Path(__file__).parents[2] / "benchmarks" / "sandbox.py"


def load():
    spec = importlib.util.spec_from_file_location("benchmark_of_the_sandbox", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def unchanged(backend, executions, per_sandbox):
    """Kilobytes that memory has grown by; everything else must be as before."""
    module = load()
    told = module.leaks(backend, executions, per_sandbox)
    grown = told["after"].pop("memory_kb") - told["before"].pop("memory_kb")
    ends = time.monotonic() + 20
    before, after = told["before"].pop("processes"), told["after"].pop("processes")
    while after > before and time.monotonic() < ends:  # sandboxes of tests that run beside this one end; leaks do not
        time.sleep(0.1)
        after = module.left()["processes"]
    assert after <= before
    assert told["after"] == told["before"]
    return grown


@pytest.fixture(autouse=True)
def own_folder(monkeypatch):
    """Temporary files go where no other test puts any; the folder is open to a sandbox that runs as another user."""
    folder = tempfile.mkdtemp()
    Path(folder).chmod(0o711)
    monkeypatch.setattr(tempfile, "tempdir", folder)
    yield
    shutil.rmtree(folder)


@pytest.mark.parametrize("backend", [CHAIN[0], *(pytest.param(b, marks=pytest.mark.slow) for b in CHAIN[1:])])
def test_executions_leave_nothing(backend):
    if check(backend):
        pytest.skip(f"{backend} does not hold on this machine: {check(backend)}")
    assert unchanged(backend, 40, 4) < 4096  # kilobytes


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_executions_leave_nothing():
    if check("bwrap"):
        pytest.skip(f"bubblewrap does not hold on this machine: {check('bwrap')}")
    assert unchanged("bwrap", 10_000, 20) < 8192
