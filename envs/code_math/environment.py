"""The environment, with tool calls (`agentrl.tool_env`) or with listed actions, its prompts, tasks and players."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from agentrl.env import Bare, Env, Move, Parsed, PastTurn, Prompt, RowQuestion, action_line, spoken
from agentrl.envs._rows import MadeRows
from agentrl.envs.code_math.answers import require
from agentrl.envs.code_math.problem import Config, Problem, runner_of
from agentrl.envs.code_math.problems import generate, read
from agentrl.envs.code_math.rewritten import unwinnable
from agentrl.tool import action as tool_action
from agentrl.tool_env import Listed, RowTasks, environment, naming_column, read_rows
from agentrl.types import Observation, Status, Task

SYSTEM = "Solve the problem. You may run Python code. Give the final answer in \\boxed{}."
EXPERTS = ("expert", "random")
NAMING = ("key", "id", "unique_id")  # columns of a file that may name a problem; the first one with a value does
SIGNS: Mapping[type, str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}

hooks = environment(
    Problem,
    rows=[],
    config=Config,
    system=SYSTEM,
    weights={"correct": 0.0, "calls": 0.0, "call_errors": 0.0, "unjudged": 0.0},
    snapshots=True,
    module=__name__,
)
make = hooks.make  # bound in this module, where unpickling looks for it


class CodeMath(Listed):
    """The environment. With the prompts compact and instruct, every observation but the last one lists the actions."""

    def __init__(self, config: Config) -> None:
        """Raises ValueError if math-verify is not installed, or no sandbox works on this machine."""
        require()
        told = {"sandbox": runner_of(config).backend}
        super().__init__(hooks.make(config), lists=config.prompt != "chat", info=told)  # type: ignore[arg-type]
        self.config = config


class Compact(Bare):
    """Few words: `run 12 * 7` and `answer 84`."""

    def window(self, first: Observation, past: Sequence[PastTurn], done: int, observation: Observation) -> str:
        """The question, and the last runs with their results."""
        seen = [*(p.observation.text for p in past[1:]), observation.text][: len(past)]
        lines = [f"{self.answer(p.action)} = {text}" for p, text in zip(past, seen, strict=True)]
        return "\n".join([first.text, *lines])

    def answer(self, action: str) -> str:
        """The action in words."""
        turn = tool_action.read(action)
        if turn.answer is not None:
            return f"answer {turn.answer}"
        return f"run {getattr(turn.items[0], 'arguments', {}).get('code', '')}"

    def parse(self, text: str, observation: Observation) -> Parsed:
        """The answer after `answer`, or the code after `run`; neither has to be listed."""
        text = spoken(text)
        verb, _, rest = text.partition(" ")
        if verb == "answer" and rest:
            return Parsed(tool_action.answer(rest), True, Status.OK)
        if verb == "run" and rest:
            return Parsed(tool_action.call("code_interpreter", code=rest), True, Status.OK, 1)
        return Parsed(text, False, Status.PARSE_ERROR)


class Instruct(Compact):
    """`Compact` for language models: a system message says what may be written."""

    system = (
        "You solve a problem with Python. Reply with one line only: `run CODE` to run one line of Python, for example "
        "`run 12 * 7`, or `answer N` when you know the final number."
    )

    def parse(self, text: str, observation: Observation) -> Parsed:
        """The first line."""
        return super().parse(action_line(text), observation)


def prompt(config: Config) -> Prompt:
    """The prompt: how the environment speaks to a model."""
    short = {"compact": Compact, "instruct": Instruct}
    return short[config.prompt]() if config.prompt in short else hooks.prompt(config)


def tasks(config: Config) -> RowTasks:
    """Generated problems, or those of a file.

    Raises:
        ValueError: a row is no problem, math-verify is not installed, or no sandbox works. All are found here, before
            the first episode.
    """
    require()
    runner_of(config)
    if not config.rows:
        return RowTasks(_Generated(config), "code_math", config.split, config.test_share)
    rows = _FileRows(config.rows)
    return RowTasks(rows, "code_math", config.split, config.test_share, rows.column)


def read_row(config: Config, row: Mapping[str, Any], where: str) -> RowQuestion:
    """Question and answer of a row of a file; ValueError says what the row lacks."""
    found = read(row, where)
    return RowQuestion(found["question"], (found["target"],))


def unanswerable(config: Config, tasks: Sequence[Task]) -> Mapping[int, str]:
    """Index of each task of a file whose right answer no plain answer equals -> the reason."""
    if not config.rows:
        return {}
    why = {i: unwinnable(str(task.params["target"]), config.units) for i, task in enumerate(tasks)}
    return {i: reason for i, reason in why.items() if reason}


class _FileRows(Sequence[Mapping[str, Any]]):
    """Problems of a file in one form. Keys begin with the file's name. The first row is read at once, as a check."""

    def __init__(self, path: str) -> None:
        self._path, self._rows = path, read_rows(path)
        self._row(0)
        self.column = naming_column(self._rows[0], NAMING)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, i: Any) -> Any:
        return [self._row(j) for j in range(*i.indices(len(self)))] if isinstance(i, slice) else self._row(i)

    def _row(self, i: int) -> Mapping[str, Any]:
        row = self._rows[i]
        column = naming_column(row, NAMING)
        name = row[column] if column else i
        return {"key": f"{Path(self._path).stem}/{name}", **read(row, f"row {i} of {self._path}")}


_problem = lru_cache(maxsize=10_000)(generate)  # tasks are named by their rows, so that each list makes all its rows


class _Generated(MadeRows):
    """Rows of generated problems; a row is made when it is read."""

    def __init__(self, config: Config) -> None:
        levels = (1, 2, 3, 4) if config.level == 0 else (config.level,)
        self._index = [(level, seed) for level in levels for seed in range(config.seed, config.seed + config.count)]

    def __len__(self) -> int:
        return len(self._index)

    def _make(self, i: int) -> Mapping[str, Any]:
        level, seed = self._index[i]
        made = _problem(level, seed)
        return {
            "key": f"{level}/{seed}",
            "seed": seed,
            "kind": f"level {level}, {made.kind}",
            "question": made.question,
            "target": made.answer,
            "expression": made.expression,
        }


def kind(task: Task) -> str:
    """Level and kind of the problem, for tables."""
    return str(task.params.get("kind", "math"))


def operations(expression: str) -> Iterator[str]:
    """An expression as operations on two numbers each, in order; the expression itself if that cannot be done."""

    def visit(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if not isinstance(node, ast.BinOp) or type(node.op) not in SIGNS:
            raise ValueError(expression)
        left, right, sign = visit(node.left), visit(node.right), SIGNS[type(node.op)]
        steps.append(f"{left} {sign} {right}")
        values: Mapping[str, int] = {"+": left + right, "-": left - right, "*": left * right}
        return values[sign] if sign in values else left // right if sign == "//" else left % right

    steps: list[str] = []
    try:
        visit(ast.parse(expression, mode="eval").body)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return iter((expression,))
    return iter(steps)


class Solver:
    """Knows the expression from which the problem was made: it computes the expression, then answers. Of a problem from
    a file it knows the answer only, and gives it at once."""

    def __init__(self, config: Config) -> None:
        self._config, self._left, self._task = config, list[str](), Task(key="", env="code_math")

    def reset(self, task: Task) -> None:
        """Plan the calls."""
        expression = str(task.params.get("expression", ""))
        whole = [f"print({expression})"] if self._config.convention != "plain" else [expression]
        self._left = list(operations(expression)) if self._config.prompt != "chat" else whole
        self._left, self._task = self._left if expression else [], task

    def act(self, observation: Observation) -> Move:
        """The next operation, or the answer."""
        if self._left:
            return Move(tool_action.call("code_interpreter", code=self._left.pop(0)))
        target = str(self._task.params["target"])
        return Move(tool_action.answer(target if self._config.prompt != "chat" else f"\\boxed{{{target}}}"))


class Chance:
    """Draws one of the compact form's actions: an operation on two known numbers, or a known number as the answer."""

    def __init__(self, env: CodeMath, seed: int) -> None:
        self._env, self._seed, self._rng = env, seed, np.random.default_rng(seed)

    def reset(self, task: Task) -> None:
        """Seed by the task."""
        self._rng = np.random.default_rng([self._seed, *task.key.encode()])

    def act(self, observation: Observation) -> Move:
        """One of the compact form's actions."""
        instance = self._env.inner.instance
        offered = instance._choices() if instance is not None else []
        return Move(offered[int(self._rng.integers(len(offered)))] if offered else tool_action.answer("0"))


def expert(env: Env, name: str, seed: int) -> Any:
    """A player of this instance: expert or random."""
    assert isinstance(env, CodeMath)
    if name not in EXPERTS:
        raise ValueError(f"code_math has no expert {name!r}: known are {', '.join(EXPERTS)}")
    return Solver(env.config) if name == "expert" else Chance(env, seed)
