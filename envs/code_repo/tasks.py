"""Tasks: mistakes in modules of the standard library, by level; and rows of a user's repositories."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentrl.env import RowQuestion
from agentrl.envs._rows import MadeRows
from agentrl.envs.code_repair.mutate import apply
from agentrl.envs.code_repair.workspace import unique_edit
from agentrl.envs.code_repo.mistakes import Mistake, listed
from agentrl.envs.code_repo.modules import PACKAGE, RUNNER, Module, modules
from agentrl.envs.code_repo.repository import Config, runner_of
from agentrl.tool_env import RowTasks, read_rows, share_of_key
from agentrl.types import Task

STATEMENT = """\
The tests of this repository fail. Find the cause in the code and repair it; the tests themselves are right, and changes
of tests do not count. Tests that you do not see decide. Files: {files}. Tests run by: {command}"""
README = "# {package}\n\nPure-Python modules.\n\n{purposes}\n\nTests: `{command}`\n"
COMMAND = "python -m tests"
HELD_OUT = 0.25  # share of the modules that are test modules, approximately
WANTED = {"all": (False, True), "train": (False,), "test": (True,)}
MODULES_OF_LEVEL = {1: 1, 2: 4, 3: 4}
MISTAKES_OF_LEVEL = {1: 1, 2: 1, 3: 2}
# Module -> another module, whose original in the standard library it imports. The two are never in one repository,
# because the sandbox hides the originals of all modules of a repository.
NEEDS = {"parseaddr": "calendar", "quoprimime": "string"}
COLUMNS = ("statement", "files", "command", "hidden")


def tasks(config: Config) -> RowTasks:
    """The tasks of a configuration.

    Raises:
        ValueError: there are no tasks, or no sandbox works; so a missing sandbox is noticed before the first episode.
    """
    runner_of(config)
    rows = _of_split(_own_rows(config.rows), config) if config.rows else _Generated(config)
    if not len(rows):
        raise ValueError(
            f"no task of code_repo has level {config.level}, split {config.split!r} and kinds {config.kinds}: give "
            "other kinds, or leave them out"
        )
    return RowTasks(rows, "code_repo", "all", config.test_share)


def kind(task: Task) -> str:
    """The kind of a task in tables: its column `kind`, which names the (first) mistake; `repository` if it has none."""
    return str(task.params.get("kind") or "repository")


def held_out(name: str) -> bool:
    """Is a module one of the test modules?"""
    return share_of_key(f"module {name}") < HELD_OUT


def _of_split(rows: list[dict[str, Any]], config: Config) -> list[dict[str, Any]]:
    """The rows of a split. All rows of one repository are in one part."""
    sides = [share_of_key(f"repository {row.get('repository') or row['key']}") < config.test_share for row in rows]
    return [row for row, test in zip(rows, sides, strict=True) if test in WANTED[config.split]]


class _Generated(MadeRows):
    """Rows made from the modules; a row is made when it is read."""

    def __init__(self, config: Config) -> None:
        levels = (1, 2, 3) if config.level == 0 else (config.level,)
        self._names = [name for name in listed() if held_out(name) in WANTED[config.split]]
        self._usable = {name: _usable(name, config.prompt == "compact") for name in self._names}
        self._index = [
            (level, name, number)
            for level in levels
            for name in self._names
            for number in self._usable[name]
            if not config.kinds or listed()[name][number].mutation.kind in config.kinds
        ]

    def __len__(self) -> int:
        return len(self._index)

    def _make(self, i: int) -> Mapping[str, Any]:
        level, name, number = self._index[i]
        rng = np.random.default_rng([level, number, *name.encode()])
        chosen = [name]
        for other in map(str, rng.permutation([one for one in self._names if one != name])):
            pairs = [(other, one) for one in chosen] + [(one, other) for one in chosen]
            if len(chosen) < MODULES_OF_LEVEL[level] and all(NEEDS.get(a) != b for a, b in pairs):
                chosen.append(other)
        wrong = [(name, listed()[name][number])]
        more = chosen[1 : MISTAKES_OF_LEVEL[level]]
        wrong += [(other, listed()[other][int(rng.choice(self._usable[other]))]) for other in more]
        return _row(f"{level}/{name}/{number}", level, [modules()[one] for one in chosen], wrong)


@functools.cache
def _usable(name: str, listed_edits: bool) -> tuple[int, ...]:
    """The numbers of a module's mistakes; with `listed_edits`, only of those that one listed change undoes."""
    return tuple(number for number, one in enumerate(listed()[name]) if one.undo or not listed_edits)


@functools.lru_cache(maxsize=1024)
def _broken(name: str, mistake: Mistake) -> tuple[str, str, str]:
    """A module with a mistake, and the arguments (old, new) of `str_replace` that mend it."""
    source, mutation = modules()[name].source, mistake.mutation
    broken = apply(source, mutation)
    right = source[mutation.start : mutation.end]
    return broken, *unique_edit(broken, mutation.start, mutation.start + len(mutation.text), right)


def _row(key: str, level: int, chosen: Sequence[Module], wrong: Sequence[tuple[str, Mistake]]) -> dict[str, Any]:
    ordered = sorted(chosen, key=lambda one: one.name)
    purposes = "\n".join(f"- `{one.path}`: {one.purpose}" for one in ordered)
    files = {
        "README.md": README.format(package=PACKAGE, purposes=purposes, command=COMMAND),
        f"{PACKAGE}/__init__.py": "",
        "tests/__init__.py": "",
        "tests/__main__.py": RUNNER,
    }
    for one in ordered:
        files[one.path], files[f"tests/test_{one.name}.py"] = one.source, one.test_file
    fixes = []
    for name, mistake in wrong:
        path = modules()[name].path
        files[path], *fix = _broken(name, mistake)
        fixes.append([path, *fix])
    return {
        "key": key,
        "kind": f"level {level}, {wrong[0][1].mutation.kind}",
        "statement": STATEMENT.format(files=", ".join(sorted(files)), command=COMMAND),
        "files": files,
        "command": COMMAND,
        "hide": [one.origin for one in ordered],
        "hidden": {"calls": [[f"{PACKAGE}.{one.name}", *call] for one in ordered for call in one.calls]},
        "fixes": fixes,
    }


def _own_rows(path: str) -> list[dict[str, Any]]:
    """The rows of a file, with the columns that `prepare` writes. Raises ValueError for the first wrong row."""
    return [
        {"key": f"{number}", **_read(row, f"{path}: row {number}")} for number, row in enumerate(read_rows(path), 1)
    ]


def read_row(config: Config, row: Mapping[str, Any], where: str) -> RowQuestion:
    """The question of a row of a file (its statement and its files) and its fixes.

    Raises:
        ValueError: the row lacks columns, or they cannot be used.
    """
    made = _read(row, where)
    return RowQuestion(f"{made['statement']}\n{sorted(made['files'].items())}", tuple(map(str, made["fixes"])))


def _read(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    lacking = next((name for name in COLUMNS if not row.get(name)), None)
    if lacking:
        raise ValueError(f"{where} lacks {lacking!r}: a task needs {', '.join(COLUMNS)}")
    try:
        files = {str(name): str(text) for name, text in dict(row["files"]).items() if text is not None}
        hidden = {name: value for name, value in dict(row["hidden"]).items() if value is not None}
        tests = {str(name): str(text) for name, text in dict(hidden.get("files") or {}).items() if text is not None}
        calls = [[str(part) for part in call] for call in hidden.get("calls") or ()]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where} is no task: {error}") from None
    if not calls and not any(name.endswith(".py") for name in tests):
        raise ValueError(f"{where} has nothing that decides: hidden needs calls, or files of tests")
    own = {"files": tests, "command": hidden.get("command") or row["command"], "forms": hidden.get("forms")}
    decides = {"calls": calls} if calls else own
    return {"fixes": [], "hide": [], **row, "files": files, "hidden": decides}
