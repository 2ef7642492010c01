"""The training service: the verbs of the protocol, which the threads of the HTTP server call.

A verb answers at once, or gives work to the worker's thread and returns the name of a promise.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agentrl.engines import base_config
from agentrl.http import Refusal
from agentrl.model import Loaded
from agentrl.training_server.checkpoints import Checkpoints
from agentrl.training_server.json_form import finite
from agentrl.training_server.promises import Promise, PromiseTable
from agentrl.training_server.service_limits import ServiceLimits
from agentrl.training_server.sessions import ClientSessions, SamplerEntry
from agentrl.training_server.shared_base import SharedBase
from agentrl.training_server.snapshot_engine import SnapshotEngine
from agentrl.training_server.trained_model import TrainedModel
from agentrl.training_server.training_worker import TrainingWorker
from agentrl.training_server.verbs import AdamSettings, AdapterPlan, PassWork, PlainResult, Result, SampleWork

LARGEST_CONTEXT = 32768  # tokens, where the model allows more and no limit is given


class TrainingService:
    """See the module. `start` begins the worker's thread, `stop` ends it.

    Args:
        loaded: the base model and its tokenizer.
        name: name of the base model for clients.
        folder: of the checkpoints.
        limits: see `ServiceLimits`.
        tokenizer: folder or hub name from which clients load the tokenizer; empty for `name`.
        clock: seconds, for silent sessions and lost requests.
        wall_clock: seconds since 1970, for checkpoints.

    Attributes:
        model_class, engine_class: make the models and the engine.

    Raises:
        ValueError: peft is missing, or the model cannot be trained or sampled.
    """

    model_class: type[TrainedModel] = TrainedModel
    engine_class: type[SnapshotEngine] = SnapshotEngine

    def __init__(
        self,
        loaded: Loaded,
        name: str,
        folder: Path,
        limits: ServiceLimits | None = None,
        *,
        tokenizer: str = "",
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        given = limits or ServiceLimits()
        self.name, self.limits = name, given._replace(context=context_of(loaded.model, given.context))
        self.tokenizer = tokenizer or name
        config = base_config(loaded.model)
        self.vocabulary, self.architecture = int(config.vocab_size), str(config.model_type)
        base = SharedBase(loaded)
        engine = self.engine_class(
            base, max_slots=given.slots, max_context=self.limits.context, max_tokens=given.batch_tokens
        )
        self.checkpoints = Checkpoints(folder, name, wall_clock)
        self.sessions = ClientSessions(self.limits, clock)
        self.promises = PromiseTable(given.waiting, given.waiting_tokens, given.result_bytes, given.patience_s, clock)
        self.worker = TrainingWorker(
            base, engine, self.checkpoints, self.sessions, self.promises, self.limits, self.model_class
        )

    def start(self) -> None:
        """Begin to work on requests.

        Raises:
            OSError: the folder of the checkpoints cannot be made or read.
        """
        self.checkpoints.open()
        self.worker.start()

    def stop(self) -> None:
        """End the worker after its current request; clients that wait get no result."""
        self.worker.stop()
        self.checkpoints.close()

    def create_model(self, session: str, number: int, base_model: str, plan: AdapterPlan) -> str:
        """The promise of a new model, whose id is SESSION:train:NUMBER: newer SDKs make this id themselves."""
        self._check_base(base_model)
        if not 1 <= plan.rank <= self.limits.rank:
            raise Refusal(400, f"rank {plan.rank} is not offered here: take one from 1 to {self.limits.rank}")
        model = f"{session}:train:{number}"

        def work() -> Result:
            self.worker.create(model, plan)
            return PlainResult({"type": "create_model", "model_id": model})

        return self._create(session, model, work)

    def create_from(self, session: str, number: int, path: str, optimiser: bool) -> str:
        """The promise of a new model with the state of a checkpoint."""
        plan = self.checkpoints.about(path).plan
        model = f"{session}:train:{number}"

        def work() -> Result:
            self.worker.create(model, plan, self.checkpoints.load(path, optimiser))
            return PlainResult({"type": "load_weights", "path": path, "model_id": model})

        return self._create(session, model, work)

    def _create(self, session: str, model: str, work: Callable[[], Result]) -> str:
        self.sessions.add_model(session, model)
        self.promises.open_lane(model, ordered=True)
        self.promises.open_lane(f"{model}/create", ordered=False)

        def created() -> Result:
            try:
                result = work()
                self.sessions.check_model(
                    session, model
                )  # it may have ended meanwhile, and nothing would free the model
            except BaseException:
                self.worker.forget(model)
                raise
            return result

        return self.promises.submit(f"{model}/create", 0, Promise(work=created))

    def passes(self, model: str, seq: int | None, work: PassWork) -> str:
        """The promise of a `forward` or `forward_backward`."""
        return self._train(model, seq, lambda: self.worker.model(model).passes(work), work.tokens)

    def optim_step(self, model: str, seq: int | None, adam: AdamSettings) -> str:
        """The promise of an optimiser step."""

        def work() -> Result:
            return PlainResult({"type": "optim_step", "metrics": finite(self.worker.model(model).step(adam))})

        return self._train(model, seq, work)

    def fail(self, model: str, seq: int | None, refusal: Refusal) -> str:
        """The promise of a request that cannot be read: it fails in its turn, so that later requests go on."""

        def work() -> Result:
            raise refusal

        return self._train(model, seq, work)

    def save(
        self,
        model: str,
        seq: int | None,
        name: str,
        *,
        sampler: bool,
        keep_s: float | None,
        overwrite: bool,
        metadata: Mapping[str, str] | None,
    ) -> str:
        """The promise of a checkpoint, from which training can go on or, with `sampler`, samplers answer."""
        path = self.checkpoints.path(model, "sampler_weights" if sampler else "weights", name)

        def work() -> Result:
            self.checkpoints.check_new(path, overwrite or sampler)
            self.worker.save(model, path, keep_s, metadata, optimiser=not sampler)
            return PlainResult({"type": "save_weights_for_sampler" if sampler else "save_weights", "path": path})

        return self._train(model, seq, work)

    def snapshot(self, model: str, seq: int | None, number: int) -> str:
        """The promise of a sampler of the current weights, which are kept in memory."""
        session = model.partition(":")[0]
        name = f"{session}:sample:{number}"

        def work() -> Result:
            self._open_sampler(session, name, SamplerEntry(model=model, number=self.worker.snapshot(model)))
            return PlainResult({"type": "save_weights_for_sampler", "path": None, "sampling_session_id": name})

        return self._train(model, seq, work)

    def load(self, model: str, seq: int | None, path: str, optimiser: bool) -> str:
        """The promise that a model takes the state of a checkpoint."""

        def work() -> Result:
            self.worker.load(model, self.checkpoints.load(path, optimiser))
            return PlainResult({"type": "load_weights", "path": path, "model_id": model})

        return self._train(model, seq, work)

    def unload(self, model: str) -> str:
        """The promise that a model and its memory are given up."""

        def work() -> Result:
            self.worker.model(model)
            self.worker.forget(model)
            return PlainResult({"type": "unload_model", "model_id": model})

        return self._train(model, None, work)

    def _train(self, model: str, seq: int | None, work: Callable[[], Result], tokens: int = 0) -> str:
        self.sessions.touch_owner(model)
        return self.promises.submit(model, seq or None, Promise(work=work, tokens=tokens))  # protobuf's 0 is no number

    def create_sampler(self, session: str, number: int, path: str, base_model: str) -> str:
        """The id of a new sampler of a checkpoint or, without a path, of the base model."""
        if not path:
            self._check_base(base_model)
        entry = SamplerEntry(path=path, number=self.checkpoints.about(path).created) if path else SamplerEntry()
        name = f"{session}:sample:{number}"
        self._open_sampler(session, name, entry)
        return name

    def sample(self, sampler: str, seq: int | None, work: SampleWork) -> str:
        """The promise of answers."""
        self.sessions.touch_owner(sampler)
        self.sessions.sampler(sampler)
        tokens = len(work.prompt) * work.count
        return self.promises.submit(sampler, seq, Promise(sampler=sampler, sample=work, tokens=tokens))

    def about_model(self, model: str) -> Mapping[str, Any]:
        """The description of a model, as `get_info` returns it."""
        plan = self.worker.plan_of(model)
        self.sessions.touch_owner(model)
        data = {"arch": self.architecture, "model_name": self.name, "tokenizer_id": self.tokenizer}
        return {
            "type": "get_info",
            "model_id": model,
            "model_data": data,
            "model_name": self.name,
            "is_lora": True,
            "lora_rank": plan.rank,
        }

    def _open_sampler(self, session: str, name: str, entry: SamplerEntry) -> None:
        for dropped in self.sessions.add_sampler(session, name, entry):
            self.promises.close_lane(dropped)
        self.promises.open_lane(name, ordered=False)

    def _check_base(self, name: str) -> None:
        if name != self.name:
            raise Refusal(400, f"no base model {name!r:.200} here: this server has {self.name!r}")


def context_of(model: Any, asked: int) -> int:
    """The largest number of tokens per sequence.

    Raises:
        ValueError: more are asked for than the model has positions.
    """
    positions = int(getattr(base_config(model), "max_position_embeddings", None) or LARGEST_CONTEXT)
    if asked > positions:
        raise ValueError(f"--max-context {asked}: the model has {positions} positions; give at most {positions}")
    return asked or min(positions, LARGEST_CONTEXT)
