"""Engines as actors of a Ray cluster: they generate for the run and for its workers, on any machine of the cluster.

A client (the run or a worker) collects the requests of one round of its event loop, and sends them in one call per
actor. The actor returns each answer as soon as the answer is finished. A session stays with one actor, which keeps the
session's keys and values.

When an actor dies, Ray restarts it with the weights with which the actors were first started. The new actor refuses
requests for later weights; the client then gives it the current weights and sends the unanswered requests again. The
random numbers of sampling depend only on seed, iteration, group, copy and turn, so the answers are those of an
undisturbed run. Only rounding may
differ, because it depends on which requests an actor computes together.
"""

import asyncio
import itertools
import os
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from agentrl.chat import Chat
from agentrl.engines import Policy, Sampling, Serving, Sessions
from agentrl.model import Mark, Weights
from agentrl.settings import Settings
from agentrl.types import Generation, Observation, Request

PATIENCE_S, BACK_OFF_S = 600.0, 0.5  # seconds that a lost actor may take to come back; seconds between two tries
START_S = 900.0  # seconds that the actors may take to start


class StaleActor(Exception):
    """An actor has older weights than the request asks for."""


class EngineSetup(NamedTuple):
    """Identifies one engine of an actor: its policy, and the arguments of `Serving` that this engine gets.

    Each policy has one engine for training, and one for each kind of evaluation.
    """

    policy: str
    sampling: Sampling
    entropies: bool
    nats: bool


class Letter(NamedTuple):
    """What a client sends to an actor in one call.

    Attributes:
        client: name of the client.
        setup: the key of the actor's engine that is to answer.
        mark: mark of the oldest weights with which the actor may answer.
        events: `(session, of, tokens)` if the new session continues the first `tokens` tokens of the session `of`;
            `(session,)` if the session has ended.
        requests: number of a request -> the request; the answers come with these numbers.
        dropped: numbers of earlier requests whose answers are no longer needed.
    """

    client: str
    setup: EngineSetup
    mark: Mark
    events: Sequence[tuple[int, ...]]
    requests: Mapping[int, Request]
    dropped: Sequence[int]


Answers = Sequence[tuple[int, Generation | Exception]]


class EngineActor:
    """The engines of all policies, in one separate process; the methods run on one event loop.

    Args:
        tables: the resolved recipe, as `Settings.dump` gives it.
        tokenizers: tokenizer of each policy.
        weights: models on the CPU.
        mark: mark of the weights.
        device: the device on which the actor computes.
    """

    def __init__(
        self, tables: Mapping[str, Any], tokenizers: Mapping[str, Any], weights: Weights, mark: Mark, device: str
    ) -> None:
        import torch

        self._settings = Settings({**tables, "cluster": {}}, stored=True)
        torch.set_num_threads(max(1, self._settings.tables.run.threads))
        # Copied: the rounding of CPU kernels depends on a tensor's alignment, which is arbitrary in received tensors.
        models = weights.copy().models
        self._weights = Weights({name: model.to(device) for name, model in models.items()})
        self._tokenizers, self._mark = tokenizers, mark
        self._engines: dict[EngineSetup, Any] = {}
        self._sessions: dict[tuple[str, EngineSetup, int], int] = {}
        self._numbers = itertools.count()
        self._running: dict[tuple[str, int], asyncio.Future[Generation]] = {}

    async def pid(self) -> int:
        """The id of the actor's process. The call returns as soon as the actor can generate."""
        return os.getpid()

    async def describe(self, setup: EngineSetup) -> dict[str, object]:
        """The description of the engine of `setup`, for reports."""
        return self._engine(setup).describe()

    async def load(self, state: Mapping[str, Mapping[str, Any]], mark: Mark) -> None:
        """Generate with these weights from now on; unfinished answers continue with the new weights."""
        if mark.load > self._mark.load:
            self._weights.take(state)
            self._mark = mark
            for setup, engine in self._engines.items():
                engine.load(self._weights.models[setup.policy], mark.version)

    async def answer(self, letter: Letter) -> AsyncIterator[Answers]:
        """Yields answers as soon as they are finished, in lists of the answers that finished at the same time.

        Raises:
            OtherWeights: the actor has older weights than the letter asks for.
        """
        if letter.mark.load > self._mark.load:
            raise StaleActor(f"the engine has load {self._mark.load}, the letter is for {letter.mark.load}")
        engine = self._engine(letter.setup)
        for event in letter.events:
            self._happen(engine, letter, event)
        for number in letter.dropped:
            if (one := self._running.pop((letter.client, number), None)) is not None:
                one.cancel()
        waiting = {
            asyncio.ensure_future(
                engine.generate(replace(request, session=self._session(engine, letter, request.session)))
            ): number
            for number, request in letter.requests.items()
        }
        self._running |= {(letter.client, number): one for one, number in waiting.items()}
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                numbers = {waiting.pop(one): one for one in done}
                for number in numbers:
                    self._running.pop((letter.client, number), None)
                if found := [(number, _outcome(one)) for number, one in numbers.items() if not one.cancelled()]:
                    yield found
        finally:
            for one in waiting:
                one.cancel()

    def _engine(self, setup: EngineSetup) -> Policy:
        if setup not in self._engines:
            self._forget_idle(setup.policy)
            serving = Serving(
                model=self._weights.models[setup.policy],
                tokenizer=self._tokenizers[setup.policy],
                sampling=setup.sampling,
                entropies=setup.entropies,
                nats=setup.nats,
                version=self._mark.version,
                end_ids=Chat(self._tokenizers[setup.policy]).end_ids,
            )
            self._engines[setup] = self._settings.engine.hooks.make(self._settings.engine.config, serving)
        engine: Policy = self._engines[setup]
        return engine

    def _forget_idle(self, policy: str) -> None:
        """Forget engines of a policy that have no session, such as those of a finished evaluation.

        Each engine has a cache of its own, which takes memory.
        """
        used = {setup for _, setup, _ in self._sessions}
        self._engines = {key: one for key, one in self._engines.items() if key.policy != policy or key in used}

    def _session(self, engine: Policy, letter: Letter, session: int) -> int:
        """The engine's own number for a client's session, because two clients may use the same number."""
        key = (letter.client, letter.setup, session)
        if key not in self._sessions:
            self._sessions[key] = next(self._numbers)
            engine.open(self._sessions[key])
        return self._sessions[key]

    def _happen(self, engine: Policy, letter: Letter, event: tuple[int, ...]) -> None:
        session, *branch = event
        if branch:
            of, tokens = branch
            known = self._sessions.get((letter.client, letter.setup, of))
            if known is not None:  # a restarted actor does not know `of`, and computes the shared tokens again
                engine.fork(self._session(engine, letter, session), known, tokens)
        elif (own := self._sessions.pop((letter.client, letter.setup, session), None)) is not None:
            engine.release(own)


def _outcome(one: "asyncio.Future[Generation]") -> Generation | Exception:
    fault = one.exception()
    return one.result() if fault is None else fault if isinstance(fault, Exception) else RuntimeError(str(fault))


@dataclass(eq=False)
class Team:
    """The engine actors, as a client knows them. A `Team` may be sent to other processes.

    Attributes:
        ray: the module `ray`; None in a process to which the team was sent, until `_ray_of` imports the module there.
        actors: handles of the actors.
        mark: mark of the oldest weights with which the actors may answer.
        state: a list of one item, a reference to these weights in Ray's object store. If this list is an argument of a
            call, Ray sends the reference and no tensors.
        retried: number of requests that were sent again because an actor was lost.
    """

    ray: Any
    actors: Sequence[Any]
    mark: Mark
    state: Sequence[Any]
    retried: int = field(default=0)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "ray": None, "retried": 0}

    def take(self, state: Sequence[Any], mark: Mark) -> None:
        """From now on, accept only answers that were generated with these weights or later ones."""
        self.state, self.mark = state, mark

    def push(self) -> None:
        """Give every actor the current weights."""
        for actor in self.actors:
            actor.load.remote(self.state[0], self.mark)


class TeamEngine(Sessions):
    """A policy whose answers come from the engine actors of a team.

    Args:
        name: name of the engine.
        team: the actors.
        setup: identifies, in each actor, the engine that answers the requests.
    """

    def __init__(self, name: str, team: Team, setup: EngineSetup) -> None:
        self.name, self._team, self._setup = name, team, setup
        self._client = secrets.token_hex(4)  # a unique name of this client; no answer depends on it
        self._offset = int(self._client, 16)
        self._numbers = itertools.count()
        self._homes: dict[int, int] = {}  # session of a branch -> the actor of the session that it continues
        self._events: dict[int, list[tuple[int, ...]]] = {}
        self._requests: dict[int, dict[int, Request]] = {}
        self._dropped: dict[int, list[int]] = {}
        self._futures: dict[int, asyncio.Future[Generation]] = {}
        self._talks: set[asyncio.Task[None]] = set()
        self._posting: asyncio.AbstractEventLoop | None = None  # the loop in which `_post` is scheduled

    def describe(self) -> dict[str, object]:
        """Description of the policy for reports."""
        found: dict[str, object] = self._team.ray.get(self._team.actors[0].describe.remote(self._setup))
        return {**found, "engines": len(self._team.actors)}

    def load(self, weights: Any, version: int) -> None:
        """Nothing to do: the team gives the actors their weights."""

    def fork(self, session: int, of: int, tokens: int) -> None:
        """See Policy. The actor that has computed the shared beginning answers the branch."""
        home = self._homes[session] = self._home(of)
        self._events.setdefault(home, []).append((session, of, tokens))

    def release(self, session: int) -> None:
        """See Policy."""
        self._events.setdefault(self._home(session), []).append((session,))
        self._homes.pop(session, None)
        self._soon()

    async def generate(self, request: Request) -> Generation:
        """See Policy.

        Raises:
            ValueError: the actor of the session was lost and did not come back, or its engine refuses the request.
        """
        number, home = next(self._numbers), self._home(request.session)
        future = self._futures[number] = asyncio.get_running_loop().create_future()
        # Engines read only the tokens, so the texts are not sent.
        sent = replace(request, messages=(), observation=Observation(text=""), tools=())
        self._requests.setdefault(home, {})[number] = sent
        self._soon()
        try:
            answer: Generation = await future
            return answer
        finally:
            if self._futures.pop(number, None) is not None and future.cancelled():
                if self._requests.get(home, {}).pop(number, None) is None:  # the request was sent
                    self._dropped.setdefault(home, []).append(number)
                self._soon()

    def _home(self, session: int) -> int:
        return self._homes.get(session, (self._offset + session) % len(self._team.actors))

    def _soon(self) -> None:
        """Send the collected requests and events at the end of this round of the event loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # the loop has ended, so no request waits
        if self._posting is not loop:
            self._posting = loop
            loop.call_soon(self._post)

    def _post(self) -> None:
        self._posting = None
        for home in sorted({*self._events, *self._requests, *self._dropped}):
            events, requests = self._events.pop(home, []), self._requests.pop(home, {})
            dropped = self._dropped.pop(home, [])
            talk = asyncio.get_running_loop().create_task(self._talk(home, events, requests, dropped))
            self._talks.add(talk)
            talk.add_done_callback(self._talks.discard)

    async def _talk(
        self, home: int, events: list[tuple[int, ...]], requests: dict[int, Request], dropped: list[int]
    ) -> None:
        """Send a letter to an actor and pass each answer to its caller. If `_send` fails, the callers get its error."""
        try:
            await self._send(home, events, requests, dropped)
        except Exception as error:  # noqa: BLE001  every caller that still waits raises the error
            for number in requests:
                if (future := self._futures.get(number)) is not None and not future.done():
                    future.set_exception(error)

    async def _send(
        self, home: int, events: list[tuple[int, ...]], requests: dict[int, Request], dropped: list[int]
    ) -> None:
        """Send a letter, and pass on its answers. If the actor is lost, send the unanswered requests again."""
        actor, until, ray = self._team.actors[home], time.monotonic() + PATIENCE_S, _ray_of(self._team)
        while True:
            letter = Letter(self._client, self._setup, self._team.mark, events, requests, dropped)
            try:
                async for part in actor.answer.remote(letter):
                    for number, found in await part:
                        requests.pop(number, None)
                        self._give(number, found)
                return
            except ray.exceptions.RayTaskError as error:
                if not isinstance(error.cause, StaleActor):
                    raise error.cause from None
                await self._bring_up(actor)
                continue
            except ray.exceptions.ActorDiedError as error:
                raise ValueError(_gone(home, error)) from None
            except ray.exceptions.RayActorError as error:  # the actor is being restarted
                if time.monotonic() > until:
                    raise ValueError(_gone(home, error)) from None
            # The new process knows no session and no request; requests whose answers nothing awaits are not sent again.
            requests = {number: one for number, one in requests.items() if number in self._futures}
            events, dropped = [], []
            self._team.retried += len(requests)
            if not requests:
                return
            await asyncio.sleep(BACK_OFF_S)

    async def _bring_up(self, actor: Any) -> None:
        """Give an actor the current weights. If the actor is lost meanwhile, the next call notices it."""
        ray = _ray_of(self._team)
        try:
            await actor.load.remote(self._team.state[0], self._team.mark)
        except ray.exceptions.RayActorError:
            await asyncio.sleep(BACK_OFF_S)

    def _give(self, number: int, found: Generation | Exception) -> None:
        future = self._futures.get(number)
        if future is None or future.done():
            return
        if isinstance(found, Exception):
            future.set_exception(found)
        else:
            future.set_result(found)


def _ray_of(team: Team) -> Any:
    """The module `ray`, in the run's own process or in one of its actors."""
    if team.ray is None:
        from agentrl.cluster.ray_cluster import library

        team.ray = library()
    return team.ray


def _gone(number: int, error: Exception) -> str:
    first = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
    return (
        f"engine {number} of the Ray cluster was lost and did not come back ({first}): look at the cluster (ray "
        "status), then continue with --resume"
    )
