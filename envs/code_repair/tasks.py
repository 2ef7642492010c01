"""Tasks: programs of the corpus with mistakes, by level; or the functions of HumanEval, MBPP and files like them."""

import ast
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentrl.env import RowQuestion
from agentrl.envs._rows import MadeRows
from agentrl.envs.code_repair.functions import read_function
from agentrl.envs.code_repair.mutate import Mutation, apply, mutations
from agentrl.envs.code_repair.programs import Program, programs
from agentrl.envs.code_repair.verify import verified
from agentrl.envs.code_repair.workspace import Config, runner_of, unique_edit
from agentrl.tool import action as tool_action
from agentrl.tool_env import RowTasks, read_rows, share_of_key
from agentrl.types import Task

STATEMENT = """\
The tests of this repository fail. Find the mistake in the code and repair it; the tests themselves are right.
Other checks than these tests decide, so repair the cause. Files: {files}.
When you are done, call submit."""
WRITE = """\
{purpose}

Write this to {path}, which is there as a beginning. Checks that you do not see decide.
When you are done, call submit."""
HELD_OUT = 0.25  # share of the programs that are test programs, approximately
FILES_OF_LEVEL = {1: 1, 2: 3, 3: 3}
MISTAKES_OF_LEVEL = {1: 1, 2: 1, 3: 2}


def tasks(config: Config) -> RowTasks:
    """The tasks of a configuration.

    Raises:
        ValueError: there are no tasks, or no sandbox works; so a missing sandbox is noticed before the first episode.
    """
    runner_of(config)
    rows = _file_rows(config) if config.rows else _Generated(config)
    if not len(rows):
        raise ValueError(f"no task has level {config.level}, programs {config.programs!r} and kinds {config.kinds}")
    return RowTasks(rows, "code_repair", config.split, config.test_share)


def kind(task: Task) -> str:
    """The kind of a task in tables.

    It is level and kind of the (first) mistake of a generated task, the option `mode` for a function of HumanEval or
    MBPP, and the `kind` of any other row.
    """
    return str(task.params.get("kind", "code_repair"))


def held_out(name: str) -> bool:
    """Is a program one of the test programs?"""
    return share_of_key(f"program {name}") < HELD_OUT


@functools.cache
def _mistakes(name: str) -> list[Mutation]:
    return mutations(programs()[name].source)


class _Generated(MadeRows):
    """Rows made from the corpus; a row is made when it is read."""

    def __init__(self, config: Config) -> None:
        levels = (1, 2, 3) if config.level == 0 else (config.level,)
        wanted = {"all": (False, True), "train": (False,), "test": (True,)}[config.programs]
        self._names = [name for name in programs() if held_out(name) in wanted]
        self._index = [
            (level, name, number)
            for level in levels
            for name in self._names
            for number in verified().get(name, ())
            if not config.kinds or _mistakes(name)[number].kind in config.kinds
        ]

    def __len__(self) -> int:
        return len(self._index)

    def _make(self, i: int) -> Mapping[str, Any]:
        level, name, number = self._index[i]
        rng = np.random.default_rng([level, number, *name.encode()])
        others = [other for other in self._names if other != name]
        chosen = [name, *rng.choice(others, FILES_OF_LEVEL[level] - 1, replace=False)]
        more = chosen[1 : MISTAKES_OF_LEVEL[level]]
        wrong = [(name, number), *((other, int(rng.choice(verified()[other]))) for other in more)]
        return _row(f"{level}/{name}/{number}", level, [programs()[one] for one in chosen], wrong)


def _row(key: str, level: int, chosen: Sequence[Program], wrong: Sequence[tuple[str, int]]) -> dict[str, Any]:
    files: dict[str, str] = {}
    fixes = []
    for program in chosen:
        path = f"{program.name}.py"
        files[f"test_{path}"] = program.test_file()
        files[path] = program.source
    for name, number in wrong:
        mistake, source = _mistakes(name)[number], programs()[name].source
        files[f"{name}.py"] = broken = apply(source, mistake)
        right = source[mistake.start : mistake.end]
        old, new = unique_edit(broken, mistake.start, mistake.start + len(mistake.text), right)
        fixes.append([f"{name}.py", old, new])
    calls = [[one.name, call.expression, call.expected] for one in chosen for call in one.calls]
    return {
        "key": key,
        "kind": f"level {level}, {_mistakes(wrong[0][0])[wrong[0][1]].kind}",
        "statement": STATEMENT.format(files=", ".join(sorted(files))),
        "files": files,
        "hidden": {"calls": calls},
        "fixes": fixes,
    }


def _file_rows(config: Config) -> list[dict[str, Any]]:
    """The rows of a file that has the columns of HumanEval, of MBPP, or of this environment."""
    rows = []
    for number, row in enumerate(read_rows(config.rows)):
        name = f"{Path(config.rows).stem}-{number}"
        rows.append(_checked(dict(row), name, config.mode, f"row {number} of {config.rows}"))
    return rows


def read_row(config: Config, row: Mapping[str, Any], where: str) -> RowQuestion:
    """The question of a row of a file (its statement and its files) and its solution.

    Raises:
        ValueError: the row lacks columns, or they cannot be used.
    """
    made = _checked(dict(row), "", config.mode, where)
    return RowQuestion(f"{made['statement']}\n{sorted(dict(made['files']).items())}", tuple(map(str, made["fixes"])))


def _checked(row: dict[str, Any], name: str, mode: str, where: str) -> dict[str, Any]:
    try:
        return _read(row, name, mode)
    except (KeyError, SyntaxError, TypeError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(
            f"{where} is no task ({type(error).__name__}: {error}); it needs the columns of HumanEval (prompt, test,"
            " entry_point), MBPP (text, code, test_list), or statement, files and hidden"
        ) from None


def _read(row: dict[str, Any], name: str, mode: str) -> dict[str, Any]:
    if "hidden" in row:
        return {"key": row.get("key", name), "fixes": [], **row}
    function = read_function(row)
    files = {"solution.py": function.beginning}
    if function.visible:
        files["test_solution.py"] = function.visible
    made = {
        "key": str(row.get("task_id", name)).replace("/", "-"),
        "kind": mode,
        "statement": WRITE.format(purpose=function.purpose, path="solution.py"),
        "files": files,
        "hidden": function.hidden,
        "fixes": [["solution.py", function.beginning, function.source]],
    }
    return _broken(made, function.source) if mode == "repair" else made


def _broken(row: dict[str, Any], source: str) -> dict[str, Any]:
    """The task of repairing the row's own solution after a mistake was put in. The row's key decides which mistake.

    Limit: nothing makes sure that a check finds the mistake.

    Raises:
        ValueError: no mistake can be made in the solution.
    """
    found = mutations(source)
    if not found:
        raise ValueError("its solution has nothing to get wrong: take mode = write")
    mistake = found[int(share_of_key(f"mistake {row['key']}") * len(found))]
    broken = apply(source, mistake)
    right = source[mistake.start : mistake.end]
    old, new = unique_edit(broken, mistake.start, mistake.start + len(mistake.text), right)
    files = {**row["files"], "solution.py": broken}
    statement = STATEMENT.format(files=", ".join(sorted(files)))
    return {**row, "statement": statement, "files": files, "fixes": [["solution.py", old, new]]}


def edits(path: str, source: str) -> Iterator[tuple[str, str]]:
    """Every change of a file that might undo a mistake, as the arguments (old, new) of `replace`."""
    for mistake in mutations(source):
        yield unique_edit(source, mistake.start, mistake.end, mistake.text)


def changes(files: Mapping[str, str]) -> list[str]:
    """The calls of `replace` for all `edits` of the Python files that are no tests."""
    found: list[str] = []
    for path in sorted(path for path in files if path.endswith(".py") and not path.startswith("test_")):
        found += [tool_action.call("replace", path=path, old=old, new=new) for old, new in edits(path, files[path])]
    return found


def solvable(task: Task) -> bool:
    """Can every mistake of the task be undone by a change that the compact form offers?"""
    files = task.params["files"]
    return all(offered_edit(path, files[path], old, new) is not None for path, old, new in task.params["fixes"])


def offered_edit(path: str, source: str, old: str, new: str) -> tuple[str, str] | None:
    """The change among the `edits` of a file after which the file means the same as with `old` replaced by `new`.

    None if no change does, or if `old` does not occur exactly once.
    """
    offered = list(edits(path, source))
    if (old, new) in offered or source.count(old) != 1:
        return (old, new) if (old, new) in offered else None
    wanted = _meaning(source.replace(old, new))
    return next((pair for pair in offered if _meaning(source.replace(*pair)) == wanted), None)


def _meaning(source: str) -> str:
    try:
        return ast.dump(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
