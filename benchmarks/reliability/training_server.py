"""The training server of the configuration `service`: a process of its own that the campaign kills and starts again.

The process runs `agentrl serve trainer` on a fixed port with a folder of checkpoints that survives it. It writes the
number of its models and sessions into a file every second, so that the campaign sees whether they are freed.
"""

import json
import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reliability.child import left_in_session, take_over
from benchmarks.reliability.folders import differences

PRELOADED = [
    "tinker",
    "agentrl.cli._serve_trainer",
    "agentrl.tinker",
    "agentrl.training_server",
    "peft",
    "transformers.models.llama.modeling_llama",
]
MODELS = 64  # more than the clients that are killed within SESSION_S
SESSION_S = 45  # after which the models of a killed client are freed; the SDK gives a sign of life every 10 seconds
START_S = 120.0  # longest time until a server listens
STOP_S = 60.0  # longest time for a server to stop in order
WIDTH = 32  # bytes of the file with the counts
READY = "trainer of "  # begins the line that says that the server listens
TEXT = np.arange(1, 40)  # token ids whose log-probs are compared
CLOSE = 1e-4  # nats; largest difference of their log-probs


def serve(words: Sequence[str], work: Path) -> None:
    """Run `agentrl serve trainer WORDS` as a process of its own session; its output goes to `work/server-log`.

    Args:
        words: the command line's words after `serve trainer`.
        work: holds the folder `server-temporary` and the file `counts`.
    """
    take_over(work / "server-log", work / "server-temporary")
    with (work / "counts").open("r+b") as file:
        counts = mmap.mmap(file.fileno(), WIDTH)
    from agentrl.cli import main
    from agentrl.training_server.training_worker import TrainingWorker

    own = TrainingWorker._sweep

    def sweep(worker: TrainingWorker) -> None:
        own(worker)
        counts[:] = f"{len(worker._models)} {len(worker._sessions._sessions)}".encode().ljust(WIDTH)

    TrainingWorker._sweep = sweep  # type: ignore[method-assign, assignment]
    sys.argv = ["agentrl", "serve", "trainer", *words]
    sys.exit(main())


class ServerProcess:
    """One training server, which is started again on the same port with the same checkpoints.

    Args:
        work: an empty folder, in which the model, the checkpoints and the output lie.
        forks: the context of `multiprocessing` that starts the processes.

    Attributes:
        most: largest number of models that were seen at the server.
    """

    def __init__(self, work: Path, forks: Any) -> None:
        from agentrl.model import write_toy_model

        self.work, self._forks = work, forks
        self._process: Any = None
        self.most = 0
        self._port = free_port()
        for place in ("stored", "server-temporary"):
            (work / place).mkdir(parents=True)
        (work / "server-log").write_bytes(b"")
        write_toy_model(work / "model")

    @property
    def sections(self) -> Mapping[str, Mapping[str, Any]]:
        """Options of a recipe whose weights this server holds."""
        url = f"http://127.0.0.1:{self._port}"
        return {"model": {"path": str(self.work / "model")}, "learner": {"url": url}}

    def start(self) -> None:
        """Start it, and wait until it listens.

        Raises:
            RuntimeError: it does not.
        """
        (self.work / "counts").write_bytes(b"0 0".ljust(WIDTH))
        before = (self.work / "server-log").stat().st_size
        words = [str(self.work / "model"), "--port", str(self._port), "--checkpoints", str(self.work / "stored")]
        words += ["--models", str(MODELS), "--session-s", str(SESSION_S)]
        self._process = self._forks.Process(target=serve, args=(words, self.work))
        self._process.start()
        ends = time.monotonic() + START_S
        while READY not in (said := self._said(before)):
            if not self._process.is_alive() or time.monotonic() > ends:
                raise RuntimeError(f"the training server does not listen: {said.strip()[-300:]}")
            time.sleep(0.02)

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    def kill(self) -> None:
        """Kill it at once."""
        self.counts()
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
        self._process = None

    def counts(self) -> tuple[int, int]:
        """The numbers of models and sessions that it has."""
        models, sessions = map(int, (self.work / "counts").read_bytes().split())
        self.most = max(self.most, models)
        return models, sessions

    def end(self) -> Iterator[str]:
        """Wait until silent clients are forgotten, and stop it; one sentence for each thing that is left over."""
        ends = time.monotonic() + SESSION_S + STOP_S
        while any(self.counts()) and time.monotonic() < ends:
            time.sleep(0.5)
        models, sessions = self.counts()
        if models or sessions:
            yield f"{models} models and {sessions} sessions are left at the training server"
        process, before = self._process, (self.work / "server-log").stat().st_size
        os.kill(process.pid, signal.SIGTERM)
        process.join(STOP_S)
        said = self._said(before)
        if process.exitcode != 128 + signal.SIGTERM or "agentrl: stopped" not in said:
            yield f"the training server ended with code {process.exitcode} after SIGTERM: {said.strip()[-300:]}"
        pid = process.pid
        self.kill()
        for member in left_in_session(pid):
            yield f"process {member} of the training server is left"
            os.kill(member, signal.SIGKILL)
        yield from (f"{name} is left by the training server" for name in os.listdir(self.work / "server-temporary"))
        yield from (f"{path} is left in the server's checkpoints" for path in hidden(self.work / "stored"))

    def differences(self, whole: Path, cut: Path) -> list[str]:
        """See `folders.differences`; the checkpoints at the server are compared too, and sampled."""
        found = differences(whole, cut, served=True)
        places = sorted(path.relative_to(whole) for path in whole.glob("checkpoints/*/*/tinker.json"))
        if not places:
            found.append("there is no checkpoint whose weights the training server holds")
        for place in places:
            if (cut / place).is_file():
                pair = [json.loads((folder / place).read_text()) for folder in (whole, cut)]
                found += [f"{place}: {why}" for why in self._apart(*pair)]
        return found

    def _apart(self, one: Mapping[str, str], two: Mapping[str, str]) -> Iterator[str]:
        """How the weights and the optimiser of two checkpoints differ; `one` and `two` are contents of tinker.json."""
        for kind in ("state", "sampler"):
            ours, theirs = (self._stored(table[kind]) for table in (one, two))
            for name in ("adapter_model.safetensors", *["optimizer.safetensors"] * (kind == "state")):
                data = [
                    (folder / name).read_bytes() if (folder / name).is_file() else None for folder in (ours, theirs)
                ]
                if None in data:
                    yield f"{name} of {kind} is missing at the training server"
                elif data[0] != data[1]:
                    yield f"{name} of {kind} has other bytes"
        from agentrl.engines.tinker import Service, ServiceError, ServiceLost

        try:
            service = Service(self.sections["learner"]["url"], timeout_s=STOP_S)
            first, second = (service.sampler(path=table["sampler"]).logprobs([TEXT])[0][1:] for table in (one, two))
            service.close()
        except (ServiceError, ServiceLost) as error:
            yield f"its sampler does not answer: {error}"
            return
        if not np.abs(first - second).max() <= CLOSE:
            yield f"the log-probs of a text differ by {np.abs(first - second).max():.2g} nats"

    def _stored(self, path: str) -> Path:
        """The folder of a checkpoint that the server has stored."""
        return self.work / "stored" / path.removeprefix("tinker://").replace(":", ".")

    def _said(self, since: int) -> str:
        """What it has printed since its output had this number of bytes."""
        return (self.work / "server-log").read_bytes()[since:].decode("utf-8", "replace")


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        number: int = taken.getsockname()[1]
        return number


def hidden(folder: Path) -> list[str]:
    """The names below a folder that begin with a dot, as those of partial checkpoints do."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob(".*"))
