"""The named players of the environment: demonstrators to clone, baselines to compare with.

expert: lists the tables, reads the schemas of the tables that the question names, runs the query that the question asks
    for and answers with this query. It understands generated questions and knows only what it has read. For questions
    of files it knows the right query.
careless:0.3: the imperfect demonstrator: as `expert`, but at each step, with this probability, it takes a random listed
    action instead. If none is listed, it answers with the number of rows of a random table. All its episodes are
    cloned, failures included.
oracle: as `expert`, but it knows the right query of generated questions too.
random: takes a random listed action at each step. If none is listed, it answers as `careless` does.
"""

import re

from agentrl.env import Env, Move, random_share
from agentrl.envs._worded import Careless
from agentrl.envs.sql.database import ANSWER, LIST, QUERY, SCHEMA, Database, problem_of
from agentrl.envs.sql.environment import Questions, right_query
from agentrl.envs.sql.queries import candidates, kinds_of
from agentrl.envs.sql.questions import values_in
from agentrl.tool import action as tool_action
from agentrl.types import Observation, Task

EXPERTS = ("expert", "careless", "oracle", "random")


def make_expert(env: Env, name: str, seed: int) -> "Player":
    """The player of that name.

    Raises:
        ValueError: no such player, or a number that is no probability.
    """
    share = random_share(name, "sql", EXPERTS)
    assert isinstance(env, Questions)
    return Player(env, seed, share, knows=name == "oracle")


class Player(Careless):
    """Reads the schemas, runs a query and answers with it; takes a random action with probability `slips`."""

    _env: Questions
    _gold = ""

    def reset(self, task: Task) -> None:
        """Seed by the task."""
        super().reset(task)
        self._gold = right_query(task) if self._knows or not task.params.get("made") else ""

    def act(self, observation: Observation) -> Move:
        """The next call."""
        database: Database = self._env.inner.instance
        if self._slipped():
            return Move(self._slip(observation, database))
        if not database._listed:
            return Move(tool_action.call(LIST))
        unread = [name for name in self._wanted(database) if name not in database._read]
        if unread:
            return Move(tool_action.call(SCHEMA, table=unread[0]))
        sql = self._gold or self._understood(database)
        return Move(tool_action.call(ANSWER if sql in database._run else QUERY, sql=sql))

    def _slip(self, observation: Observation, database: Database) -> str:
        if observation.actions:
            return self._rng.choice(observation.actions)
        tables = list(database._created())
        return tool_action.call(ANSWER, sql=f"SELECT count(*) FROM {self._rng.choice(tables)}")

    def _wanted(self, database: Database) -> list[str]:
        """The tables that the question, or the right query, names."""
        tables = list(database._created())
        if self._gold:
            return [name for name in tables if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", self._gold, re.I)]
        return [name for name in tables if re.search(rf"\b{name.replace('_', ' ')}s?\b", database._question)]

    def _understood(self, database: Database) -> str:
        """The query over the tables that were read which answers exactly this question."""
        known = tuple(table for table in problem_of(database._made).schema if table.name in database._read)
        kinds = kinds_of(str(database._made["level"]))
        found = candidates(known, values_in(database._question), kinds)
        return next(query.sql for query in found if query.question == database._question)
