"""Rollouts ahead of the updates: the main thread plays a batch while a second thread trains on earlier batches.

The engines generate with a copy of the weights. The batch of iteration i is played with the weights of version
max(i - ahead, p). Here `ahead` is `run.ahead` (if it is not set, `run.staleness`), and p is the number of iterations
before the last pause. The pauses are the checkpoints, the evaluations and the beginning of the run. No rollout is in
flight at a pause, so a checkpoint holds no unfinished rollouts.

With `run.deterministic` this schedule is followed exactly: the same seed gives the same bytes, and a resumed run plays
the same rollouts as an uninterrupted run. Without `run.deterministic`, the engines get newer weights as soon as an
update is done, also in the middle of an answer. The columns `version_oldest` and `version_newest` then hold the oldest
and the newest version of the weights that generated the answer of each step.

The weights that play a batch are at most `run.staleness` updates old when the batch is trained on, because `run.ahead`
is at most `run.staleness`. A group that continues from one batch to the next is cancelled when the weights with
which the group began are more than `run.staleness` updates old (`agentrl.rollout.Provision`).
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, NamedTuple

from agentrl.run import Bar, Learned, Played, Run, Stopwatch, learn, settle

State = Mapping[str, Mapping[str, Any]]  # policy -> tensors, from `agentrl.model.Weights.state`


def reinforce_ahead(run: Run, after_first: Callable[[Run], None] | None = None) -> None:
    """One update per batch. While a batch is played, up to `run.lead` updates on earlier batches are not done yet.

    `after_first` is called when iteration 0 is stored.
    """
    bar = run.progress.bar("training", run.settings.tables.run.iterations, run.state.step)
    lead, pause = run.settings.tables.run.lead, run.state.step
    with Updates(run, bar, after_first) as updates:
        for iteration in run.iterations():
            watch, spent = Stopwatch(clock=time.thread_time), run.spent
            # now.json tells what this thread does; the other thread updates on an earlier batch meanwhile.
            run.now.begin("training", iteration, run.settings.tables.run.iterations, run.settings.episodes)
            run.now.phase("wait")
            with watch.phase("wait"):
                updates.reach(max(iteration - lead, pause))
            run.now.phase("rollout")
            with watch.phase("rollout"):
                batch = run.rollouts.batch(iteration, pauses=run.pauses_after(iteration))
            run.state.count(batch.metrics)
            updates.begin(Played(iteration, batch, spent, watch))
            pause = iteration + 1 if run.pauses_after(iteration) else pause
        run.rollouts.stop_playing()
        updates.reach(None)
    run.sync(run.state.step)
    bar.close()


class Trained(NamedTuple):
    """A batch after its update, and a copy of the weights after this update."""

    learned: Learned
    state: State


class Updates:
    """Carries out the updates of a run in a second thread, and holds the copy of the weights that rollouts use.

    Args:
        run: the run whose policies learn.
        bar: shows how many iterations are done.
        after_first: called when iteration 0 is stored.
    """

    def __init__(self, run: Run, bar: Bar, after_first: Callable[[Run], None] | None = None) -> None:
        self._run, self._bar, self._after_first = run, bar, after_first
        self._exactly = run.settings.tables.run.deterministic
        self._jobs: deque[Future[Trained]] = deque()
        self._states: dict[int, State] = {}  # version -> its weights, for versions that rollouts have not used yet
        self._weights, self._version = run.policies.weights().copy(), run.state.step
        self._idle_since = time.perf_counter()
        self._thread = ThreadPoolExecutor(1, "agentrl update")
        run.rollouts.load(self._weights, self._version)

    def __enter__(self) -> "Updates":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)  # waits for the running update

    def begin(self, played: Played) -> None:
        """Queue the update on a batch. The second thread carries out the updates in the order of these calls."""
        job = self._thread.submit(self._train, played)
        if not self._exactly:
            job.add_done_callback(lambda _: self._run.rollouts.loop.soon(self._load_newest))
        self._jobs.append(job)

    def reach(self, version: int | None) -> None:
        """Wait for the updates up to this version, and let rollouts use the weights of this version.

        This method also calls `settle` for each update that is done: it stores and logs the iteration and, if they are
        due, runs an evaluation and writes a checkpoint. Without `run.deterministic`, rollouts get the newest weights
        that are there. If `version` is None, this method waits for all updates and loads no weights for a next batch.

        Raises:
            Exception: the exception of an update that failed.
        """
        while self._jobs and (version is None or self._run.state.step < version or self._jobs[0].done()):
            trained = self._jobs.popleft().result()
            made = trained.learned.played.iteration + 1
            self._states[made] = trained.state
            if self._run.pauses_after(made - 1):
                self._load(made)  # an evaluation of these weights may follow
            settle(self._run, trained.learned, self._bar)
            if made == 1 and self._after_first is not None:
                self._after_first(self._run)
        if version is not None:
            self._load(version if self._exactly else max([version, *self._states]))

    def _train(self, played: Played) -> Trained:
        idle = time.perf_counter() - self._idle_since
        learned = learn(self._run, played)
        played.watch.seconds["idle_s"] = idle
        state = self._run.policies.weights().state()
        self._idle_since = time.perf_counter()
        return Trained(learned, state)

    def _load_newest(self) -> None:
        """Give the rollouts in flight the weights of the newest update that is done."""
        done = [job.result() for job in self._jobs if job.done() and job.exception() is None]
        for trained in done:
            self._states[trained.learned.played.iteration + 1] = trained.state
        self._load(max([self._version, *self._states]))

    def _load(self, version: int) -> None:
        if version in self._states and version != self._version:
            self._weights.take(self._states[version])
            self._run.rollouts.load(self._weights, version)
            self._version = version
        self._states = {made: state for made, state in self._states.items() if made > version}
