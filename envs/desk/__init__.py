"""A service desk: tools over a database, a customer with requests, rules to obey; the final database decides.

The form is that of tau-bench (arXiv:2406.12045), which calls the rules a policy. A task is solved if the conversation
has ended, the database equals the database after the right calls, and the agent told the customer the facts that the
task names. Tasks of two domains are generated; train, valid and test have no customer in common. tau-bench's own tasks,
retail and airline, are read from its files.

| piece | module |
| --- | --- |
| conversation, score, state | `counter` |
| domains: tables, tools, rules | `retail`, `bookings`, `airline` |
| generated tasks | `people`, `retail_cases`, `booking_cases` |
| the simulated customer | `customer`; as an agent, the environment `desk_user` |
| files of tau-bench | `taubench` |
| tasks, prompts | `environment`, `prompts` |
| players | `players` |
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from agentrl.env import Env
from agentrl.envs.desk.counter import Config
from agentrl.envs.desk.environment import Desk, agents, benchmark, find, kind, prompt, tasks
from agentrl.envs.desk.people import words
from agentrl.envs.desk.players import EXPERTS, Player, make_expert
from agentrl.envs.desk.situation import situation

__all__ = [
    "ERRING", "EXPERTS", "GYMNASIUM_IDS", "HELD_OUT_OPTIONS", "SMALL_MODEL", "WAITS", "Config", "agents", "benchmark",
    "entities", "expert", "find", "kind", "make", "prompt", "situation", "tasks",
]  # fmt: skip

SMALL_MODEL: Mapping[str, Any] = {"prompt": "compact"}
ERRING = {"careless": 1}
GYMNASIUM_IDS: Mapping[str, Mapping[str, Any]] = MappingProxyType({"agentrl/Desk-v0": {}})
HELD_OUT_OPTIONS: Mapping[str, Any] = MappingProxyType({"split": "test"})
WAITS = False


def make(config: Config) -> Desk:
    """An instance."""
    return Desk(config)


def expert(env: Env, name: str, seed: int) -> Player:
    """The player called `name` for this instance; see `agentrl.envs.desk.players`."""
    return make_expert(env, name, seed)


def entities(config: Config) -> Sequence[str]:
    """Names and numbers of generated tasks under the compact prompt; else empty."""
    if config.data or config.prompt != "compact":
        return ()
    return [*words(), *(str(number) for number in range(1, 161))]
