"""The sessions of clients, with the models and samplers that belong to each of them."""

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from agentrl.http import Refusal
from agentrl.training_server.service_limits import ServiceLimits


class SamplerEntry(NamedTuple):
    """A sampler: where its weights come from.

    Attributes:
        model: the model of which it is a snapshot; empty for a path or the base model.
        path: path of the checkpoint; empty for a snapshot or the base model.
        number: for a snapshot, its number; for a path, when the checkpoint was created, in seconds since 1970.
    """

    model: str = ""
    path: str = ""
    number: float = 0

    @property
    def key(self) -> str:
        """Samplers with equal keys have equal weights."""
        return f"{self.path or self.model}#{self.number!r}" if self.path or self.model else "base"


@dataclass
class ClientSession:
    """One session: when its client was last heard of, and what belongs to it."""

    name: str
    seen: float
    models: set[str] = field(default_factory=set)
    samplers: dict[str, SamplerEntry] = field(default_factory=dict)


class ClientSessions:
    """The sessions of a server; safe for threads.

    A session ends when its client finishes it, when it was silent for `session_s`, or when it was silent for `spare_s`
    and another client needs its place. `ended` gives the ended sessions to the worker, which frees their models.

    Args:
        limits: `sessions`, `samplers`, `session_s` and `spare_s`.
        clock: seconds.
    """

    def __init__(self, limits: ServiceLimits, clock: Callable[[], float]) -> None:
        self._limits, self._clock = limits, clock
        self._lock = threading.RLock()
        self._sessions: dict[str, ClientSession] = {}
        self._ended: list[ClientSession] = []

    def begin(self) -> str:
        """The id of a new session; Refusal if there are as many as there may be."""
        with self._lock:
            if len(self._sessions) >= self._limits.sessions and not self.spare_one(lambda session: True):
                most = self._limits.sessions
                raise Refusal(429, f"this server has {most} sessions, its limit: try again later", "busy")
            name = secrets.token_hex(16)
            self._sessions[name] = ClientSession(name, self._clock())
            return name

    def touch(self, name: str) -> ClientSession:
        """The session, which is heard of now; Refusal if it is not known."""
        with self._lock:
            found = self._sessions.get(name)
            if found is None:
                raise Refusal(
                    410,
                    f"no session {name!r:.100} here: the server was started again, or the session was silent for too "
                    "long; begin a new one, and load a checkpoint",
                )
            found.seen = self._clock()
            return found

    def touch_owner(self, of: str) -> None:
        """The session of a model or sampler is heard of, if it is known."""
        with self._lock:
            found = self._sessions.get(of.partition(":")[0])
            if found is not None:
                found.seen = self._clock()

    def finish(self, name: str) -> None:
        """End a session."""
        with self._lock:
            self.touch(name)
            self._ended.append(self._sessions.pop(name))

    def spare_one(self, wanted: Callable[[ClientSession], bool]) -> bool:
        """End the one of the `wanted` sessions that was silent longest, if this is longer than `spare_s`.

        Returns:
            False if there is none.
        """
        with self._lock:
            oldest = min(filter(wanted, self._sessions.values()), key=lambda one: one.seen, default=None)
            if oldest is None or self._clock() - oldest.seen <= self._limits.spare_s:
                return False
            self._ended.append(self._sessions.pop(oldest.name))
            return True

    def ended(self) -> list[ClientSession]:
        """The sessions that have ended since the last call."""
        with self._lock:
            now = self._clock()
            for name in [name for name, one in self._sessions.items() if now - one.seen > self._limits.session_s]:
                self._ended.append(self._sessions.pop(name))
            found, self._ended = self._ended, []
            return found

    def add_model(self, session: str, model: str) -> None:
        """Note a model of a session."""
        with self._lock:
            self.touch(session).models.add(model)

    def check_model(self, session: str, model: str) -> None:
        """Refusal if a model belongs to no session, because its session has ended."""
        with self._lock:
            found = self._sessions.get(session)
            if found is None or model not in found.models:
                raise Refusal(410, f"the session of the model {model!r:.200} has ended: begin a new one")

    def drop_model(self, model: str) -> list[str]:
        """Forget a model, and the samplers that are snapshots of it; returns the names of these samplers."""
        with self._lock:
            owner = self._owner(model)
            if owner is not None:
                owner.models.discard(model)
            return self.drop_samplers(model, lambda entry: entry.model == model)

    def drop_samplers(self, of: str, wanted: Callable[[SamplerEntry], bool]) -> list[str]:
        """Forget samplers of the session to which the model or sampler `of` belongs; returns their names."""
        with self._lock:
            owner = self._owner(of)
            names = [] if owner is None else [name for name, one in owner.samplers.items() if wanted(one)]
            for name in names:
                assert owner is not None
                del owner.samplers[name]
            return names

    def add_sampler(self, session: str, name: str, entry: SamplerEntry) -> list[str]:
        """Note a sampler of a session; returns the names of the oldest samplers, if there were too many."""
        with self._lock:
            samplers = self.touch(session).samplers
            samplers[name] = entry
            dropped = list(samplers)[: max(len(samplers) - self._limits.samplers, 0)]
            for old in dropped:
                del samplers[old]
            return dropped

    def sampler(self, name: str) -> SamplerEntry:
        """The sampler of this name; Refusal if there is none."""
        with self._lock:
            owner = self._owner(name)
            found = None if owner is None else owner.samplers.get(name)
            if found is None:
                raise Refusal(
                    404,
                    f"no sampler {name!r:.200} here: its session or its model has ended, or newer samplers have taken "
                    f"its place (the newest {self._limits.snapshots} of a model are kept; save_weights_for_sampler "
                    "keeps weights under a name)",
                )
            return found

    def _owner(self, of: str) -> ClientSession | None:
        return self._sessions.get(of.partition(":")[0])
