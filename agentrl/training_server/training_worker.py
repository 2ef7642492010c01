"""The one thread of a training service that uses the network: it trains the models and draws the answers."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping

from agentrl.http import Refusal
from agentrl.training_server.checkpoints import Checkpoints
from agentrl.training_server.promises import Promise, PromiseFailure, PromiseTable
from agentrl.training_server.service_limits import ServiceLimits
from agentrl.training_server.sessions import ClientSessions
from agentrl.training_server.shared_base import SharedBase
from agentrl.training_server.snapshot_engine import Snapshot, SnapshotEngine
from agentrl.training_server.trained_model import ModelState, TrainedModel
from agentrl.training_server.verbs import AdapterPlan, Result

log = logging.getLogger(__name__)
SWEEP_S = 1.0  # seconds between two looks for silent sessions and lost requests
PER_TURN = 32  # requests per slot that are drawn before the next look


class TrainingWorker:
    """Works on the promises of a table, one after another; answers under one snapshot are drawn together.

    The methods that begin with a verb are called by the work of promises, in this thread.

    Args:
        base: the shared base model.
        engine: draws the answers.
        checkpoints: the checkpoints.
        sessions: the sessions; the worker ends the silent ones.
        promises: the work.
        limits: see `ServiceLimits`.
        model_class: makes models.
    """

    def __init__(
        self,
        base: SharedBase,
        engine: SnapshotEngine,
        checkpoints: Checkpoints,
        sessions: ClientSessions,
        promises: PromiseTable,
        limits: ServiceLimits,
        model_class: type[TrainedModel],
    ) -> None:
        self._base, self._engine, self._checkpoints = base, engine, checkpoints
        self._sessions, self._promises, self._limits = sessions, promises, limits
        self._model_class = model_class
        self._models: dict[str, TrainedModel] = {}
        self._snapshots: dict[str, dict[int, Snapshot]] = {}  # model -> number -> adapters
        self._count = 0  # snapshots so far
        self._thread = threading.Thread(target=self._work, name="agentrl trainer", daemon=True)
        self._closing = False

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def stop(self) -> None:
        """End after the current request."""
        self._closing = True
        self._promises.close()
        if self._thread.is_alive():
            self._thread.join()

    def plan_of(self, model: str) -> AdapterPlan:
        """The adapters of a model; Refusal if there is none of this id. Any thread may call this."""
        return self.model(model).plan

    def model(self, name: str) -> TrainedModel:
        """The model of this id; Refusal if there is none."""
        found = self._models.get(name)
        if found is None:
            raise Refusal(
                404,
                f"no model {name!r:.200} here: it was unloaded, or its session was silent for too long; make it again, "
                "from a checkpoint if there is one",
            )
        return found

    def create(self, name: str, plan: AdapterPlan, state: ModelState | None = None) -> None:
        """Make a model.

        Raises:
            Refusal: there are as many models as there may be.
            ValueError: the adapters do not fit the base model.
        """
        while len(self._models) >= self._limits.models:
            if not self._sessions.spare_one(lambda session: not self._models.keys().isdisjoint(session.models)):
                most = self._limits.models
                raise Refusal(400, f"this server trains {most} models, its limit: unload one, or raise --models")
            self._end_sessions()
        self._models[name] = self._model_class(self._base, plan, self._limits.batch_tokens, state)

    def save(
        self, name: str, path: str, keep_s: float | None, metadata: Mapping[str, str] | None, *, optimiser: bool
    ) -> None:
        """Store a model as a checkpoint, with or without its optimiser."""
        one = self.model(name)
        state = one.state() if optimiser else one.state()._replace(optimiser=None)
        self._checkpoints.save(path, state, self._base.settings(one.name), keep_s, metadata)

    def load(self, name: str, state: ModelState) -> None:
        """Let a model take a state. It gets new adapters if those of the state have another rank or other layers."""
        one = self.model(name)
        if state.plan._replace(seed=0) == one.plan._replace(seed=0):
            one.load(state)
            return
        self._models[name] = self._model_class(self._base, state.plan, self._limits.batch_tokens, state)
        one.close()

    def snapshot(self, name: str) -> int:
        """Keep a copy of a model's adapters for samplers; returns its number. The oldest copy may be dropped."""
        one = self.model(name)
        self._count += 1
        kept = self._snapshots.setdefault(name, {})
        kept[self._count] = Snapshot(one.plan, one.state().adapters)
        while len(kept) > self._limits.snapshots:
            del kept[min(kept)]
        first = min(kept)
        self._close_lanes(self._sessions.drop_samplers(name, lambda one: one.model == name and one.number < first))
        return self._count

    def forget(self, name: str) -> None:
        """Give up a model, its snapshots and their memory."""
        one = self._models.pop(name, None)
        if one is not None:
            one.close()
        self._snapshots.pop(name, None)
        self._close_lanes([*self._sessions.drop_model(name), name, f"{name}/create"])

    def _close_lanes(self, names: Iterable[str]) -> None:
        for name in names:
            self._promises.close_lane(name)

    def _work(self) -> None:
        loop = asyncio.new_event_loop()
        try:
            while not self._closing:
                promise = self._promises.take(SWEEP_S)
                if promise is not None and promise.sample is not None:
                    loop.run_until_complete(self._sample(promise))
                elif promise is not None:
                    assert promise.work is not None
                    self._promises.finish(promise, _outcome(promise.work))
                self._sweep()
        finally:
            loop.close()

    def _sweep(self) -> None:
        """End silent sessions, and fail requests whose predecessor was lost."""
        self._end_sessions()
        for promise in self._promises.give_up_gaps():
            sentence = (
                f"a request with a smaller seq_id has not come within {self._limits.patience_s:g} s: send the requests "
                "of a model with seq_id 1, 2, 3, ..."
            )
            self._promises.finish(promise, PromiseFailure(sentence, user=True))

    def _end_sessions(self) -> None:
        """Free the models and samplers of the sessions that have ended."""
        for session in self._sessions.ended():
            self._close_lanes(session.samplers)
            for name in sorted(session.models):
                self.forget(name)

    async def _sample(self, first: Promise) -> None:
        """Draw the answers of a promise, and of other promises under the same snapshot that come meanwhile."""
        try:
            key = self._use(first.sampler)
        except Exception as error:  # noqa: BLE001  the client gets the error; the worker must not end
            self._promises.finish(first, _failure(error))
            return
        running = {asyncio.ensure_future(self._answer(first))}
        past_others = True  # at first only: samples that come later do not overtake other work
        left = PER_TURN * self._limits.slots  # so that sessions can end under a steady stream of samples
        while running and not self._closing:
            room = min(self._limits.slots - len(running), left)
            for promise in self._promises.more_samples(lambda name: self._has_key(name, key), room, past_others):
                running.add(asyncio.ensure_future(self._answer(promise)))
                left -= 1
            past_others = False
            await asyncio.sleep(0)
            running = {task for task in running if not task.done()}
        for task in running:  # the server stops
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _use(self, sampler: str) -> str:
        """Let the engine answer for a sampler; returns the key of its weights."""
        entry = self._sessions.sampler(sampler)
        if entry.key == self._engine.current:
            self._engine.resume()
        elif entry.path:
            if self._checkpoints.about(entry.path).created != entry.number:
                raise Refusal(404, f"{entry.path} was saved again after the sampler was made: make a new sampler")
            state = self._checkpoints.load(entry.path, optimiser=False)
            self._engine.use(entry.key, Snapshot(state.plan, state.adapters))
        elif entry.model:
            self._engine.use(entry.key, self._snapshots[entry.model][int(entry.number)])
        else:
            self._engine.use(entry.key, None)
        return entry.key

    def _has_key(self, sampler: str, key: str) -> bool:
        try:
            return self._sessions.sampler(sampler).key == key
        except Refusal:
            return False

    async def _answer(self, promise: Promise) -> None:
        assert promise.sample is not None
        outcome: Result | PromiseFailure
        try:
            outcome = await self._engine.answer(promise.sample)
        except Exception as error:  # noqa: BLE001  the client gets the error; the worker must not end
            outcome = _failure(error)
        self._promises.finish(promise, outcome)


def _outcome(work: Callable[[], Result]) -> Result | PromiseFailure:
    """What work returns, or why it failed."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001  the client gets the error; the worker must not end
        return _failure(error)


def _failure(error: Exception) -> PromiseFailure:
    """The failure of an exception. A Refusal and a ValueError are mistakes of the client."""
    user = isinstance(error, ValueError) or (isinstance(error, Refusal) and error.status < 500)
    if user:
        return PromiseFailure(" ".join(str(error).split())[:1000], user=True)
    log.error("a request failed", exc_info=error)
    return PromiseFailure(" ".join(f"{type(error).__name__}: {error}".split())[:1000], user=False)
