"""Text to SQL with tools: a question, a SQLite database to look at, a query as the answer, execution accuracy.

Databases and questions are generated; train, valid and test have no table in common. Questions of BIRD
(arXiv:2305.03111) and Spider (arXiv:1809.08887) are read from their files. An answer is also tried on other databases
with the same tables, as in test-suite accuracy (arXiv:2010.02840), so that a wrong query does not pass by chance. A
question of a file has such databases if there are further .sqlite files in the folder of its database.

| piece | module |
| --- | --- |
| tools, state, score | `database`, `compare` |
| queries in a process of their own, which can only read | `guarded`, `runner` |
| generated questions | `questions`, `queries`, `schema`, `themes` |
| files of BIRD and Spider | `published` |
| tasks, prompts | `environment`, `prompts` |
| players | `players` |
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from agentrl.env import Env
from agentrl.envs.sql.database import Config
from agentrl.envs.sql.environment import Questions, benchmark, find, gold, kind, prompt, tasks
from agentrl.envs.sql.players import EXPERTS, Player, make_expert
from agentrl.envs.sql.published import read_row
from agentrl.envs.sql.situation import situation
from agentrl.envs.sql.themes import words

__all__ = [
    "ERRING",
    "EXPERTS", "GYMNASIUM_IDS", "HELD_OUT_OPTIONS", "REFERENCE", "ROWS_OPTION", "SMALL_MODEL", "WAITS", "Config",
    "benchmark", "entities", "expert", "find", "gold", "kind", "make", "prompt", "read_row", "situation", "tasks",
]  # fmt: skip

ROWS_OPTION = "data"
REFERENCE = "oracle"
SMALL_MODEL: Mapping[str, Any] = {"prompt": "compact"}
ERRING = {"careless": 1}
GYMNASIUM_IDS: Mapping[str, Mapping[str, Any]] = MappingProxyType({"agentrl/SQL-v0": {}})
HELD_OUT_OPTIONS: Mapping[str, Any] = MappingProxyType({"split": "test"})


def WAITS(config: Config) -> bool:
    """Do its steps wait? Only with questions of files: queries of generated databases take less than a millisecond."""
    return bool(config.data)


def make(config: Config) -> Questions:
    """An instance."""
    return Questions(config)


def expert(env: Env, name: str, seed: int) -> Player:
    """The player called `name` for this instance; see `agentrl.envs.sql.players`."""
    return make_expert(env, name, seed)


def entities(config: Config) -> Sequence[str]:
    """The names, values and numbers of generated questions and databases, under the compact prompt; else empty."""
    return () if config.data or config.prompt != "compact" else words()
