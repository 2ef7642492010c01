"""A training service in this process, with a tiny random Qwen3, for tests of what speaks to one.

The server is that of `agentrl serve trainer`. What only tests have is here: other sums and other log-probs of prompts,
as services of others have them, and faults of the network.
"""

import socket
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from agentrl.model import ModelConfig, load_model
from agentrl.training_server import (
    ServiceLimits,
    SnapshotEngine,
    TrainedModel,
    TrainingHandler,
    TrainingService,
    serve_trainer,
)
from tests.chat.chats import TEMPLATES, tokenizer
from tests.toys.tiny_qwen3 import model_folder

Sums = Literal["tokens", "sequences"]
PromptLogprobs = Literal["full", "short", "none"]


def tiny_qwen(folder: Path, seed: int = 0) -> Path:
    """The tiny model as a folder, with a tokenizer that encodes every text."""
    small = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_key_value_heads": 1}
    words = tokenizer(TEMPLATES["default_system"])
    ids = {"pad_token_id": words.eos_token_id, "bos_token_id": None}
    return model_folder(folder, seed, words, **small, **ids, max_position_embeddings=1024, initializer_range=0.1)


class Fault(NamedTuple):
    """What happens to a request: "drop" it unread, "lose" its answer, "cut" its answer, or answer with a status."""

    route: str
    what: str | int


@dataclass
class Faults:
    """The faults that wait for their requests, and what the server has seen.

    Attributes:
        seen: number of requests by route, refused ones included.
        statuses: number of answers by (route, status).
    """

    waiting: deque[Fault] = field(default_factory=deque)
    seen: Counter[str] = field(default_factory=Counter)
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, route: str, what: str | int, times: int = 1) -> None:
        """Let the next `times` requests of a route fail, as in `add("asample", 429, 2)`, `add("asample", "lose")`."""
        self.waiting.extend([Fault(route, what)] * times)

    def take(self, route: str) -> str | int | None:
        """The fault of a request that has come; None if it is answered."""
        with self.lock:
            self.seen[route] += 1
            found = next((one for one in self.waiting if one.route == route), None)
            if found is None:
                return None
            self.waiting.remove(found)
            return found.what


class FaultyHandler(TrainingHandler):
    """A handler with faults; a subclass has the class attribute."""

    faults: Faults
    fault: str | int | None = None

    def post(self) -> None:
        self.fault = self.faults.take(self._route())
        if self.fault == "drop":
            self._hang_up()
        elif isinstance(self.fault, int):
            self.body()
            self.send(self.fault, {"detail": f"a fault of the test: {self.fault}"})
        else:
            super().post()

    def send(self, status: int, content: Any, kind: str = "application/json", headers: Any = None) -> None:
        with self.faults.lock:
            self.faults.statuses[self._route(), status] += 1
        if self.fault not in ("lose", "cut") or self.command != "POST":
            super().send(status, content, kind, headers)
            return
        if self.fault == "cut":
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", "100000")
            self.end_headers()
            self.wfile.write(b'{"request_id": ')
            self.wfile.flush()
        self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


class MeanModel(TrainedModel):
    """Sums as SkyRL's JAX back end has them: the mean over datums of (sum of token losses / sum of weights)."""

    datums = 0

    def factors(self, work):
        if work.backward:
            self.datums += len(work.data)
        return np.array([1 / max(float(datum.columns["weights"].sum()), 1e-9) for datum in work.data])

    def step(self, adam):
        for parameter in self.learner.trained:
            if parameter.grad is not None:
                parameter.grad /= max(self.datums, 1)
        self.datums = 0
        return super().step(adam)


class ShortEngine(SnapshotEngine):
    """Log-probs of prompts one short, as SkyRL's JAX back end has them."""

    def prompt_logprobs(self, work):
        return super().prompt_logprobs(work)[1:]


class SilentEngine(SnapshotEngine):
    """No log-probs of prompts, as SkyRL's torch back ends have it."""

    def prompt_logprobs(self, work):
        return None


@dataclass
class RunningService:
    """A running server.

    Attributes:
        url: its address.
        model: the base model's name, which is the folder of the model.
        service: the service itself.
        faults: faults, and what the server has seen.
    """

    url: str
    model: str
    service: TrainingService
    faults: Faults


@contextmanager
def training_service(
    folder: Path,
    *,
    sums: Sums = "tokens",
    prompt_logprobs: PromptLogprobs = "full",
    grad_norms: bool = True,
    token: str = "",
    limits: ServiceLimits | None = None,
    model: Path | None = None,
    **clocks: Any,
) -> Iterator[RunningService]:
    """A server in threads of this process, on a free port.

    Args:
        folder: for the model and the checkpoints; a server that is started again with the same folder has the same
            checkpoints.
        sums: how gradients are added up.
        prompt_logprobs: complete, one short, or none.
        grad_norms: does `optim_step` report the norm of the gradient?
        token: see `serve_trainer`.
        limits: see `ServiceLimits`.
        model: folder of a model; None for `tiny_qwen`.
        clocks: `clock` and `wall_clock` of the service.
    """
    path = model or folder / "model"
    if not path.exists():
        tiny_qwen(path)

    class Model(MeanModel if sums == "sequences" else TrainedModel):
        def step(self, adam):
            found = super().step(adam)
            return found if grad_norms else {}

    class Service(TrainingService):
        model_class = Model
        engine_class = {"full": SnapshotEngine, "short": ShortEngine, "none": SilentEngine}[prompt_logprobs]

    loaded = load_model(ModelConfig(path=str(path), dtype="float32", device="cpu"), 0)
    service, faults = Service(loaded, str(path), folder / "checkpoints", limits, **clocks), Faults()
    handler = type("Handler", (FaultyHandler,), {"faults": faults})
    server = serve_trainer(service, "127.0.0.1", 0, token=token, handler=handler)
    service.start()
    server.start("training service of a test")
    try:
        yield RunningService(server.url, str(path), service, faults)
    finally:
        server.stop()
        service.stop()
        for connection in list(server._places):  # clients keep connections open, and each has a thread
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
