"""The sessions of clients, with the models and samplers that belong to each of them."""

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from agentrl.http import Refusal
from agentrl.training_server.limits import ServiceLimits


class SamplerEntry(NamedTuple):
    """A sampler: where its weights come from.

    Attributes:
        model: the model of which it is a snapshot; empty for a path or the base model.
        path: path of the checkpoint; empty for a snapshot or the base model.
        number: for a snapshot, its number among those of the model.
    """

    model: str = ""
    path: str = ""
    number: int = 0

    @property
    def key(self) -> str:
        """Samplers with equal keys have equal weights."""
        return self.path or (f"{self.model}#{self.number}" if self.model else "")


@dataclass
class ClientSession:
    """One session: when its client was last heard of, and what belongs to it."""

    seen: float
    models: set[str] = field(default_factory=set)
    samplers: dict[str, SamplerEntry] = field(default_factory=dict)


class ClientSessions:
    """The sessions of a server; safe for threads.

    Args:
        limits: `sessions`, `session_s` and `models`.
        clock: seconds.
    """

    def __init__(self, limits: ServiceLimits, clock: Callable[[], float]) -> None:
        self._limits, self._clock = limits, clock
        self._lock = threading.RLock()
        self._sessions: dict[str, ClientSession] = {}

    def begin(self) -> str:
        """The id of a new session; Refusal if there are as many as there may be."""
        with self._lock:
            if len(self._sessions) >= self._limits.sessions:
                raise Refusal(
                    429, f"this server has {self._limits.sessions} sessions, its limit: try again later", "busy"
                )
            name = secrets.token_hex(16)
            self._sessions[name] = ClientSession(self._clock())
            return name

    def touch(self, name: str) -> ClientSession:
        """The session, which is heard of now; Refusal if it is not known."""
        with self._lock:
            found = self._sessions.get(name)
            if found is None:
                raise Refusal(
                    410,
                    f"no session {name!r:.100} here: the server was started again, or the session was silent for "
                    f"{self._limits.session_s:g} s; begin a new one and load a checkpoint",
                )
            found.seen = self._clock()
            return found

    def touch_owner(self, of: str) -> None:
        """The session of a model or sampler is heard of, if it is known."""
        with self._lock:
            found = self._sessions.get(of.partition(":")[0])
            if found is not None:
                found.seen = self._clock()

    def add_model(self, session: str, model: str) -> None:
        """Note a new model; Refusal if there are as many as there may be."""
        with self._lock:
            owner = self.touch(session)
            if model not in owner.models and self.models >= self._limits.models:
                raise Refusal(
                    400,
                    f"this server trains {self._limits.models} models, its limit: unload one, or raise --models",
                )
            owner.models.add(model)

    def drop_model(self, model: str) -> None:
        """Forget a model, and the samplers that are snapshots of it."""
        with self._lock:
            owner = self._sessions.get(model.partition(":")[0])
            if owner is not None:
                owner.models.discard(model)
                owner.samplers = {name: one for name, one in owner.samplers.items() if one.model != model}

    @property
    def models(self) -> int:
        """The number of models of all sessions."""
        return sum(len(one.models) for one in self._sessions.values())

    def add_sampler(self, session: str, name: str, entry: SamplerEntry) -> None:
        """Note a sampler of a session."""
        with self._lock:
            self.touch(session).samplers[name] = entry

    def sampler(self, name: str) -> SamplerEntry:
        """The sampler of this name; Refusal if there is none."""
        with self._lock:
            owner = self._sessions.get(name.partition(":")[0])
            found = None if owner is None else owner.samplers.get(name)
            if found is None:
                raise Refusal(404, f"no sampler {name!r:.200} here: its session has ended, or its model was unloaded")
            return found

    def end_silent(self) -> list[ClientSession]:
        """Remove the sessions that were silent for too long, and return them."""
        with self._lock:
            now = self._clock()
            over = [name for name, one in self._sessions.items() if now - one.seen > self._limits.session_s]
            return [self._sessions.pop(name) for name in over]
