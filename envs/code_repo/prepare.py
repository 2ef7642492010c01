"""Makes tasks from a user's git repositories: rows with a mistake that makes a test command fail in the sandbox."""

import ast
import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agentrl.cli import Parser, seed
from agentrl.envs.code_repair.mutate import Mutation, apply
from agentrl.envs.code_repair.workspace import checked_file, unique_edit
from agentrl.envs.code_repo import shell
from agentrl.envs.code_repo.files import protected
from agentrl.envs.code_repo.judging import forms, trapped
from agentrl.envs.code_repo.mistakes import mistakes
from agentrl.envs.code_repo.tasks import STATEMENT
from agentrl.files import write_atomically
from agentrl.tool import CodeRunner, open_runner

HIDDEN_SHARE = 0.5  # share of the test functions of a file that the agent does not see, rounded down
TRIES = 8  # largest number of mistakes that are tried, per task that is asked for
LONGEST_FILE = 200_000  # bytes; longer files are left out of the repository


class Given(NamedTuple):
    """A repository: its name, the texts of its files by path, and the paths of the files that hold tests."""

    name: str
    files: dict[str, str]
    tests: list[str]


def prepare(words: Sequence[str]) -> int:
    """Make tasks of git repositories: mistakes in their code that their tests find."""
    parser = Parser("agentrl envs code_repo prepare", prepare.__doc__)
    parser.add_argument("folder", type=Path, help="a git repository, or a folder of git repositories")
    parser.add_argument("--command", default="python -m unittest -q", help="runs the tests; exit code 0 if all pass")
    parser.add_argument("--out", type=Path, required=True, help="FILE.jsonl, for env.rows")
    parser.add_argument("--count", type=int, default=20, help="largest number of tasks per repository")
    parser.add_argument("--seed", type=seed, default=0, help="chooses the mistakes and the hidden tests")
    parser.add_argument("--packages", default="", help="installed packages that the tests need, such as pytest,numpy")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds of one run of the tests")
    given = parser.parse_args(list(words))
    if given.out.suffix != ".jsonl" or given.count < 1 or not given.timeout > 0:
        raise ValueError("give --out FILE.jsonl, a --count of 1 or more, and a --timeout above 0")
    packages = [name for name in given.packages.split(",") if name]
    runner = open_runner({"name": "python_sandbox", "echo": False, "packages": packages})
    rows: list[dict[str, Any]] = []
    for folder in repositories(given.folder):
        repository = read(folder)
        found = list(rows_of(repository, runner, given.command, given.count, given.seed, given.timeout))
        print(f"{repository.name}: {len(repository.tests)} files of tests, {len(found)} tasks", flush=True)
        rows += found
    if not rows:
        raise ValueError(f"no mistake in the code of {given.folder} makes its tests fail: add tests")
    write_atomically(given.out, "".join(json.dumps(row) + "\n" for row in rows).encode())
    let_in = f" 'env.sandbox.packages={json.dumps(packages)}'" if packages else ""
    print(f"{len(rows)} tasks: agentrl eval code_repo --policy expert rows={given.out}{let_in}")
    return 0


def repositories(folder: Path) -> list[Path]:
    """The git repositories at a folder, or in it; ValueError if there are none."""
    if not folder.is_dir():
        raise ValueError(f"no such folder: {folder}; give a git repository, or a folder of git repositories")
    found = [one for one in (folder, *sorted(folder.iterdir())) if (one / ".git").exists()]
    if not found:
        raise ValueError(f"{folder} is no git repository and holds none: run git init and commit in it")
    return found[:1] if found[0] == folder else found


def read(folder: Path) -> Given:
    """The text files of a repository's last commit.

    Raises:
        ValueError: git is missing, there is no commit, or the commit has too many files or no tests.
    """
    command = ["git", "-C", str(folder), "archive", "--format=tar", "HEAD"]
    try:
        told = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        raise ValueError(f"{folder} is read by git, and there is no program git: install git") from None
    if told.returncode:
        raise ValueError(f"{folder}: git has no commit to read ({told.stderr.decode('utf-8', 'replace').strip():.200})")
    files: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(told.stdout)) as archive:
        for member in archive:
            data = archive.extractfile(member) if member.isreg() and member.size <= LONGEST_FILE else None
            text = _text(data.read()) if data is not None else None
            if text is not None:
                try:
                    files[checked_file(files, member.name, text, shell.FILES_LIMIT)] = text
                except ValueError as error:
                    raise ValueError(f"{folder}: {error}") from None
    tests = [path for path in sorted(files) if protected(path) and path.endswith(".py") and _tests(files[path])]
    if not tests:
        raise ValueError(f"{folder} has no tests: functions called test_... in files called test_....py")
    return Given(folder.resolve().name, files, tests)


def _text(data: bytes) -> str | None:
    try:
        text = data.decode("utf-8")
    except ValueError:
        return None
    return None if "\0" in text else text


def rows_of(
    given: Given, runner: CodeRunner, command: str, count: int, number: int, timeout_s: float
) -> Iterator[dict[str, Any]]:
    """At most `count` tasks of a repository, in an order that follows from the seed and the texts alone.

    Raises:
        ValueError: the tests of the unchanged repository fail, or they pass even with a test that must fail.
    """
    outcome = shell.run(runner, given.files, command, timeout_s, keep=False)
    if outcome.code != 0:
        raise ValueError(f"{given.name}: the tests do not pass in the sandbox by {command!r}: {outcome.output[-500:]}")
    tests = {path: given.files[path] for path in given.tests}
    run = [form for form in forms(tests) if trapped(runner, given.files, tests, form, command, timeout_s)]
    if not run:
        raise ValueError(
            f"{given.name}: {command!r} passes with a failing test in {given.tests[-1]}: it does not run it; give "
            "another --command"
        )
    visible = {**given.files, **{path: shown(given.files[path], path, number) for path in given.tests}}
    hidden = {"files": tests, "command": command, "forms": run}
    tried = made = 0
    for path, mutation in _order(given, number):
        if made == count or tried == TRIES * count:
            return
        tried += 1
        broken = apply(given.files[path], mutation)
        ended = shell.run(runner, {**given.files, path: broken}, command, timeout_s, keep=False).code
        if ended in (0, None, 124):  # no test notices the mistake, or the mutant hangs
            continue
        right = given.files[path][mutation.start : mutation.end]
        fix = unique_edit(broken, mutation.start, mutation.start + len(mutation.text), right)
        made += 1
        yield {
            "key": f"{given.name}/{made}",
            "repository": given.name,
            "kind": f"{given.name}, {mutation.kind}",
            "statement": STATEMENT.format(files=_few(sorted(visible)), command=command),
            "files": {**visible, path: broken},
            "command": command,
            "hidden": hidden,
            "fixes": [[path, *fix]],
        }


def _few(paths: list[str]) -> str:
    return ", ".join(paths[:30]) + (f" and {len(paths) - 30} more" if len(paths) > 30 else "")


def _order(given: Given, number: int) -> list[tuple[str, Mutation]]:
    """Every mistake in the code, shuffled by the seed."""
    found = [
        (path, mutation)
        for path in sorted(given.files)
        if path.endswith(".py") and not protected(path)
        for mutation in mistakes(given.files[path])
    ]
    return sorted(found, key=lambda one: hashlib.sha256(repr((number, *one)).encode()).digest())


def _tests(source: str) -> list[ast.FunctionDef]:
    """Test functions and methods of a file; [] if it does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    scopes = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    return [
        one for scope in scopes for one in scope if isinstance(one, ast.FunctionDef) and one.name.startswith("test")
    ]


def shown(source: str, path: str, number: int) -> str:
    """A test file without the hidden half of its tests. The seed and the path choose this half; a single test stays."""
    tests = _tests(source)
    rng = np.random.default_rng([number, *path.encode()])
    out = set(rng.permutation(len(tests))[: int(len(tests) * HIDDEN_SHARE)].tolist())
    lines = source.split("\n")
    for index in sorted(out, reverse=True):
        test = tests[index]
        first = min([test.lineno, *(one.lineno for one in test.decorator_list)])
        indent = " " * test.col_offset
        # A class whose tests are all hidden needs `pass` as its body.
        lines[first - 1 : test.end_lineno] = [f"{indent}pass"] if indent else []
    return "\n".join(lines)
