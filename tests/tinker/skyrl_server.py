"""SkyRL's training server with its JAX back end on the CPU, in an interpreter of its own.

The interpreter has the Python that runs the tests and the CPU build of torch, so it takes 1.8 GB instead of the 6 GB of
SkyRL's own recipe. Its SDK is the version that SkyRL 0.3.0 fits; `sdk` makes a folder with this version for the client.
"""

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.integrations.host_pythons import NEEDS, ROOT, built

SDK = "0.16.1"  # the newest that SkyRL 0.3.0 was tried with; its wheel asks only for tinker>=0.3.0
NEEDS["skyrl-server"] = ([], ["skyrl[jax,tinker]==0.3.0", f"tinker=={SDK}", "psutil", "peft==0.18.1"], "", [])
# Before Python 3.12, pydantic refuses the TypedDict of the standard library, with which SkyRL defines its requests.
TYPED_DICT = "import typing, typing_extensions; typing.TypedDict = typing_extensions.TypedDict\n"
START_S, STOP_S = 300.0, 60.0


def skyrl_python() -> Path:
    """A Python with SkyRL and JAX; made on the first call."""
    python = built("skyrl-server")
    if sys.version_info < (3, 12):
        (packages,) = python.parents[1].glob("lib/python*/site-packages")
        (packages / "typed_dict_of_3_12.pth").write_text(TYPED_DICT)
    return python


def uv() -> str:
    """The program that installs packages and starts SkyRL."""
    found = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    assert found is not None, "uv builds the environments of foreign packages: make install has it"
    return found


def sdk(version: str) -> Path:
    """A folder with this version of the package `tinker` alone; its dependencies are those of the tests' own Python.

    A Python whose path begins with this folder has this version instead of the installed one.
    """
    folder = ROOT / ".venv-foreign" / f"tinker-{version}"
    if not (folder / "ready").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        install = [uv(), "pip", "install", "--quiet", "--no-deps", "--python", sys.executable, "--target", str(folder)]
        subprocess.run([*install, f"tinker=={version}"], check=True)
        (folder / "ready").touch()
    return folder


class Exchange(NamedTuple):
    """A request as the server stored it, and its answer."""

    request: dict[str, Any]
    answer: dict[str, Any]


class SkyRL:
    """A running server; `close` ends it with all its processes.

    Args:
        model: folder of the base model, which is also its name at the server.
        folder: an empty folder for its files.
        back_end: options of the JAX back end.

    Attributes:
        url: address of the server.
        model: name of the base model.
        checkpoints: the folder with its checkpoints.
    """

    def __init__(self, model: Path, folder: Path, **back_end: Any) -> None:
        self.model, self.checkpoints, self._folder = str(model), folder / "checkpoints", folder
        self._cpu_s = 0.0
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        python = skyrl_python()
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment |= {
            "VIRTUAL_ENV": str(python.parents[1]),
            "PATH": os.pathsep.join([str(Path(uv()).parent), environment["PATH"]]),
            "JAX_PLATFORMS": "cpu",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
        }
        # The server starts its engine with the options of its parent process, which therefore must be `uv run`.
        command = ["uv", "run", "--active", "-m", "skyrl.tinker.api", "--base-model", self.model, "--backend", "jax"]
        command += ["--host", "127.0.0.1", "--port", str(port), "--checkpoints-base", str(self.checkpoints)]
        command += ["--database-url", f"sqlite:///{folder / 'tinker.db'}", "--backend-config", json.dumps(back_end)]
        with (folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def exchanges(self, kind: str) -> list[Exchange]:
        """The answered requests of one kind, such as FORWARD_BACKWARD, in the order of their arrival."""
        question = "select request_data, result_data from futures where request_type = ? order by request_id"
        with sqlite3.connect(self._folder / "tinker.db") as database:
            rows = database.execute(question, (kind,)).fetchall()
        return [Exchange(json.loads(request), json.loads(answer)) for request, answer in rows if answer]

    def adapters(self, path: str, folder: Path) -> Path:
        """The adapters of the weights that were saved for samplers under this path (tinker://MODEL/NAME), as peft reads
        them, in the new folder."""
        model, _, name = path.removeprefix("tinker://").partition("/")
        with tarfile.open(self.checkpoints / model / "sampler_weights" / f"{name}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        return folder

    def processes(self) -> list[int]:
        """The ids of its processes, which are one process group."""
        return [pid for pid, _ in self._group()]

    def cpu_s(self) -> float:
        """CPU seconds of its processes so far, or until `close`."""
        self._cpu_s = max(self._cpu_s, sum(seconds for _, seconds in self._group()))
        return self._cpu_s

    def close(self) -> None:
        """End all its processes. A process that outlives the server would keep the memory and the CPU."""
        self.cpu_s()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            for _ in range(round(STOP_S * 5)):
                self._process.poll()
                if not self.processes():
                    return
                time.sleep(0.2)

    def _group(self) -> Iterator[tuple[int, float]]:
        """The processes of the group that still run, with their CPU seconds."""
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                state, _, group, *rest = stat.read_text().rpartition(")")[2].split()
                if int(group) == self._process.pid and state != "Z":
                    yield int(stat.parent.name), sum(map(int, rest[8:10])) / os.sysconf("SC_CLK_TCK")

    def _wait(self) -> None:
        """Until it answers."""
        until = time.monotonic() + START_S
        while time.monotonic() < until and self._process.poll() is None:
            with suppress(OSError), urllib.request.urlopen(f"{self.url}/api/v1/healthz", timeout=5):
                return
            time.sleep(0.2)
        raise RuntimeError(f"SkyRL does not answer: {(self._folder / 'log').read_text()[-3000:]}")
