"""The environment: a tool environment over `Database`, with tool calls or with listed actions, and its tasks."""

from functools import partial
from pathlib import Path
from typing import Any

from agentrl.env import Prompt
from agentrl.envs._rows import PARTS, Part
from agentrl.envs._worded import Worded
from agentrl.envs.sql.database import ANSWER, Config, Database, problem_of
from agentrl.envs.sql.prompts import Compact, Instruct
from agentrl.envs.sql.published import read_questions
from agentrl.tool import action as tool_action
from agentrl.tool_env import PartRows, RowTasks, environment
from agentrl.types import Observation, StepResult, Task

SYSTEM = (
    "You answer questions about a SQLite database. Look at its tables, try queries, and then call answer with the "
    "query whose result answers the question."
)
hooks = environment(
    Database, rows=[], config=Config, system=SYSTEM, snapshots=True, waits=False, module=__name__, name="sql"
)
make = hooks.make  # bound in this module, where unpickling looks for it


class Questions(Worded):
    """The environment; under the prompts `instruct` and `compact`, generated questions list their actions."""

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(hooks.make(config), lists=config.prompt != "chat" and not config.data)  # type: ignore[arg-type]

    def reset(self, task: Task) -> Observation:
        """Ask the question."""
        return self._worded(super().reset(task))

    def step(self, action: str) -> StepResult:
        """Carry out calls, or take the answer."""
        result = super().step(action)
        return result._replace(observation=self._worded(result.observation))


def prompt(config: Config) -> Prompt:
    """The prompt: how the environment speaks to a model."""
    if config.prompt == "compact":
        return Compact()
    return Instruct() if config.prompt == "instruct" else hooks.prompt(config)


def tasks(config: Config) -> RowTasks:
    """Generated questions, or those of files.

    Raises:
        ValueError: files that are missing or broken; options that do not go together.
    """
    if config.rows:
        raise ValueError(
            f"env.rows = {config.rows!r}: questions of files are read by env.data, in BIRD's or Spider's form"
        )
    if config.data and config.prompt == "compact":
        raise ValueError("env.prompt = 'compact' lists actions of generated questions: take instruct or chat with data")
    if config.databases and not config.data:
        raise ValueError("env.databases is the folder of databases for the questions of env.data: give env.data too")
    if config.level == "hard" and config.tables == 1:
        raise ValueError("env.level = 'hard' asks for joins of tables, and env.tables = 1: set env.tables to 2 or 3")
    if not config.data:
        parts = PARTS if config.split == "all" else (config.split,)
        made = PartRows(partial(row, config.level, config.tables), parts, config.seed, config.count)
        return RowTasks(made, "sql", "all", config.test_share)
    rows = read_questions(config.data, config.databases, config.split, config.test_share, config.evidence)
    return RowTasks(rows, "sql", "all", config.test_share)


def row(level: str, tables: int, part: Part, number: int) -> dict[str, Any]:
    """The columns of one generated question, which is written when the task is opened."""
    made = {"level": level, "tables": tables, "part": part, "number": number}
    return {"key": f"gen/{level}-{tables}/{part}/{number}", "seed": number, "made": made}


def find(config: Config, key: str) -> Task:
    """The task of a key; ValueError if there is none."""
    if config.data:
        found = next((task for task in tasks(config) if task.key == key), None)
        if found is None:
            raise ValueError(f"the task {key!r} is unknown to sql: no question of {config.data} has this key")
        return found
    env, _, rest = key.partition("/gen/")
    parts = rest.split("/")
    numbers = parts[0].partition("-") if len(parts) == 3 else ("", "", "")
    good = env == "sql" and len(parts) == 3 and numbers[2].isdigit() and parts[1] in PARTS and parts[2].isdigit()
    if not good or numbers[0] not in ("easy", "medium", "hard", "all") or not 1 <= int(numbers[2]) <= 3:
        raise ValueError(f"{key!r} names no question: a key is sql/gen/LEVEL-TABLES/PART/NUMBER")
    one = row(numbers[0], int(numbers[2]), parts[1], int(parts[2]))  # type: ignore[arg-type]
    task: Task = RowTasks([one], "sql", "all", config.test_share)[0]
    return task


def kind(task: Task) -> str:
    """The kind of the right query; of a question of a file, its difficulty (BIRD), else the name of the file."""
    made = task.params.get("made")
    return problem_of(made).query.kind if made else str(task.params["kind"])


def right_query(task: Task) -> str:
    """The SQL that answers the question."""
    made = task.params.get("made")
    return problem_of(made).query.sql if made else str(task.params["gold"])


def gold(task: Task) -> str:
    """The action that gives the right answer."""
    return tool_action.call(ANSWER, sql=right_query(task))


def benchmark(config: Config) -> str:
    """The name of the benchmark: the settings of generated questions, or the name of the file or folder."""
    if config.data:
        return f"sql {Path(config.data).name}, {config.split}, compare {config.compare}"
    return f"sql-gen {config.level}, {config.tables} tables, {config.split}"
