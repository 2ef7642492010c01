"""vLLM servers on the machines of a Ray cluster.

For each server there is an actor on the same machine, which starts, watches and ends the server. The run sends requests
to these servers over HTTP, as it does to servers that it starts itself. If an actor is lost, the guard process of its
server ends the server. A new actor in the same bundle then starts a server with the current weights.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

from agentrl.cluster import ServerActor, StartedServer
from agentrl.cluster.ray_cluster import Room, address, first_line
from agentrl.engines.vllm import WatchedServer

LOST = 255  # exit code of a server whose actor is lost
ANSWER_S = 30.0  # seconds that a running actor may take to answer
START_S = 300.0  # seconds that an actor may take to start


class ClusterServer(WatchedServer):
    """A server that an actor has started; see `WatchedServer`."""

    def __init__(self, ray: Any, actor: Any, started: StartedServer, start_s: float) -> None:
        self._ray, self.actor = ray, actor
        self.url, self.log, self.start_s = started.url, started.log, start_s

    @property
    def exit_code(self) -> int | None:
        """See `WatchedServer`; LOST if the actor is lost."""
        try:
            found: int | None = self._ray.get(self.actor.exit_code.remote(), timeout=ANSWER_S)
        except self._ray.exceptions.RayError:
            return LOST
        return found

    def last_words(self) -> str:
        """See `WatchedServer`."""
        try:
            said: str = self._ray.get(self.actor.last_words.remote(), timeout=ANSWER_S)
        except self._ray.exceptions.RayError as error:
            return f"its actor on the Ray cluster was lost ({first_line(error)})"
        return said

    def hang_up(self) -> None:
        """See `WatchedServer`."""
        with suppress(Exception):  # if the cluster is gone, the guard process has ended the server
            self.actor.hang_up.remote()

    def end(self, keep_log: bool = False) -> None:
        """See `WatchedServer`. The actor ends as well."""
        with suppress(Exception):
            self._ray.get(self.actor.end.remote(keep_log), timeout=ANSWER_S)
        with suppress(Exception):
            self._ray.kill(self.actor)


class ClusterLauncher:
    """Starts servers in a placement group of a cluster; see `agentrl.engines.entry.Launcher`.

    Args:
        ray: the module that `agentrl.cluster.ray_cluster.connect` returned.
        room: the placement group; the bundles after the learner's bundles are for servers.
        count: number of servers.
        local: whether the cluster consists of this machine alone.
    """

    def __init__(self, ray: Any, room: Room, count: int, *, local: bool) -> None:
        self._ray, self._room, self.count = ray, room, count
        self.near = local or all(self._host(number) == self._here for number in range(count))

    def start(self, number: int, command: Any, model: Path) -> ClusterServer:
        """See `Launcher`.

        Raises:
            ValueError: the cluster does not start an actor in the bundle of this server.
        """
        actor = self._actor(ServerActor, number)
        host = "127.0.0.1" if self.near else self._host(number)
        try:
            began = self._ray.get(actor.start.remote(command, model, host), timeout=START_S)
        except self._ray.exceptions.RayError as error:
            with suppress(Exception):
                self._ray.kill(actor)
            raise ValueError(
                f"engine {number} of the Ray cluster cannot be started ({first_line(error)}): look at the cluster (ray "
                "status)"
            ) from None
        return ClusterServer(self._ray, actor, began, command.start_s)

    @property
    def _here(self) -> str:
        return address()

    def _host(self, number: int) -> str:
        """The address of the machine on which the bundle of a server is."""
        probe = self._ray.remote(num_cpus=1, scheduling_strategy=self._room.at(self._ray, self._room.ranks + number))
        where: str = self._ray.get(probe(address).remote(), timeout=START_S)
        return where

    def _actor(self, kind: type, number: int) -> Any:
        place = self._room.at(self._ray, self._room.ranks + number)
        options = {"num_cpus": 1, "num_gpus": self._room.cards, "scheduling_strategy": place, "max_restarts": 0}
        return self._ray.remote(**options)(kind).remote()
