"""Older versions of the SDK, with which servers of others work: the same tests as with the installed version."""

import os
import re
import subprocess
import sys

import pytest

from tests.other_pythons import ROOT, folder_with

pytestmark = [pytest.mark.slow, pytest.mark.foreign, pytest.mark.timeout(1200)]

FILES = ("tests/engines/test_tinker_client.py", "tests/engines/test_tinker_engine.py", "tests/tinker/test_sums.py")


# 0.16.1: JSON alone, and methods that block (for SkyRL 0.3.0). 0.25.0: the first with bodies of protobuf alone (for the
# main branch of SkyRL of August 2026).
@pytest.mark.parametrize("version", ["0.16.1", "0.25.0"])
def test_client_engine_and_probes_work_with_an_older_sdk(version):
    folder = folder_with("tinker", version)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    look = [sys.executable, "-c", "import tinker; print(tinker.__version__)"]
    assert subprocess.run(look, env=env, capture_output=True, text=True, check=True).stdout.strip() == version
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *FILES]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
    assert re.search(r"\[100%\]", done.stdout) and "SKIPPED" not in done.stdout
