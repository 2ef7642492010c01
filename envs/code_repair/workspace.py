"""The workspace of an episode, and the tools on it. The files are texts in memory, so that no path leads to a file of
this machine. Code runs in a sandbox, on a copy of the files."""

import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Literal

from pydantic import Field

from agentrl.envs.code_repair import judge
from agentrl.envs.code_repair.two_sandboxes import Program, check_program
from agentrl.tool import CodeRunner, describe_code, shared_runner
from agentrl.tool_env import ToolConfig

FILE_LIMIT = 100_000  # characters of one file
FILES_LIMIT = 100  # number of files
TOTAL_LIMIT = 2_000_000  # characters of all files together, at most 8 MB
PATH_LIMIT, DEPTH_LIMIT = 200, 10  # bytes of a path; its parts, which are the folders and the name of the file
OUTPUT_LIMIT = 2000  # characters of the result of run_tests


class Config(ToolConfig, frozen=True):
    """The options.

    level: level of the generated tasks: 1 (one program with one mistake), 2 (three programs, one of them with one
        mistake), 3 (three programs, two of them with one mistake each) or 0 (all three levels).
    programs: generated tasks use all programs (`all`), only the training programs (`train`) or only the held-out
        programs (`test`). No program is in both parts.
    split: all tasks, or their training or test part; the key of a task decides its part. Generated tasks of both parts
        use the same programs; `programs` separates programs.
    kinds: kinds of the generated mistakes: relation, arithmetic, logic, constant, name, negation; empty: all kinds. The
        second mistake of level 3 can be of any kind.
    prompt: chat (tool calls), or compact (few words, for small models). Under compact the first observation shows the
        code and the result of the tests, and the listed actions are to hand in, to run the tests, and single changes of
        the code.
    reward: solved (1 if all hidden checks pass, else 0) or share (the share of the hidden checks that pass, not
        counting hidden checks that a visible test shows).
    sandbox: the tool that runs the code, a table with its name and its options.
    timeout_s: largest number of seconds of one run of the tests. It is also the limit of all hidden calls of the
        verdict together, and of each run of a hidden test program.
    rows: a file of tasks instead of generated tasks, with the columns of HumanEval, of MBPP, or statement, files and
        hidden.
    mode: task of the agent with the functions of a file (`rows`) of HumanEval or MBPP. `write`: it writes them;
        `repair`: it gets each function with a mistake and repairs it.
    """

    level: Literal[0, 1, 2, 3] = 1
    programs: Literal["all", "train", "test"] = "all"
    kinds: tuple[str, ...] = ()
    prompt: Literal["chat", "compact"] = "chat"
    reward: Literal["solved", "share"] = "solved"
    sandbox: dict[str, Any] = Field(default_factory=lambda: {"name": "python_sandbox", "echo": False})
    timeout_s: float = Field(5.0, gt=0)
    mode: Literal["write", "repair"] = "write"


def runner_of(config: Config) -> CodeRunner:
    """The sandbox of a configuration, opened once per process. Raises ValueError if it does not work."""
    return shared_runner(config.sandbox, "env.sandbox")


def checked_file(files: Mapping[str, str], path: str, content: str, most: int = FILES_LIMIT) -> str:
    """Check that a file may be written, and return its path in plain form.

    Args:
        files: the texts of the present files by path.
        path, content: path and text of the file to write; a file of this path may exist.
        most: largest number of files.

    Raises:
        ValueError: the path does not lie inside the repository, is the path of a folder, or needs a folder where a file
            is; or a limit would be exceeded.
    """
    clean = str(PurePosixPath(path))
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)*", clean) or ".." in clean.split("/"):
        raise ValueError(f"{path!r:.80} is no path inside the repository")
    # Refused here: if the sandbox could not write such a path, this would be a fault, and the episode would be lost.
    if len(clean.encode()) > PATH_LIMIT or clean.count("/") >= DEPTH_LIMIT:
        raise ValueError(f"{path!r:.80} is too long: a path has at most {PATH_LIMIT} bytes and {DEPTH_LIMIT} parts")
    if len(content) > FILE_LIMIT:
        raise ValueError(f"the text has {len(content)} characters, a file may have {FILE_LIMIT}")
    if clean not in files and len(files) >= most:
        raise ValueError(f"the repository has {most} files, which is all it may have")
    others = sum(len(text) for other, text in files.items() if other != clean)
    if others + len(content) > TOTAL_LIMIT:
        raise ValueError(f"all files together may have {TOTAL_LIMIT} characters, they would have more")
    if any(clean.startswith(f"{other}/") or other.startswith(f"{clean}/") for other in files):
        raise ValueError(f"{clean} cannot be both a file and a folder")
    return clean


def replaced(text: str, path: str, old: str, new: str) -> str:
    """The text of a file with `new` in the place of `old`; ValueError if `old` does not stand in it exactly once."""
    count = text.count(old) if old else 0
    if count != 1:
        where = "is not in" if count == 0 else f"stands {count} times in"
        raise ValueError(f"the old text {where} {path}: give text that stands in it exactly once")
    return text.replace(old, new)


def write_checked(files: dict[str, str], path: str, content: str, most: int = FILES_LIMIT) -> str:
    """Put a text into `files`, and say so; see `checked_file`."""
    clean = checked_file(files, path, content, most)
    files[clean] = content
    return f"wrote {clean}, {len(content.splitlines())} lines"


def code_files(files: Mapping[str, str]) -> list[str]:
    """Each file that is no test: its path, then its text."""
    return [f"{path}\n{files[path]}" for path in sorted(files) if not path.startswith("test_")]


class Workspace:
    """A small repository whose tests fail. Repair it; hidden checks decide, in a sandbox of their own."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._files: dict[str, str] = {}
        self._hidden: Mapping[str, Any] = {}
        self._visible: tuple[str, ...] = ()
        self._verdict: judge.Verdict | None = None
        self.done = False

    def __deepcopy__(self, memo: dict[int, Any]) -> "Workspace":
        """Texts need no deep copy."""
        copy = Workspace(self._config)
        copy.__dict__.update({**self.__dict__, "_files": dict(self._files)})
        return copy

    def reset(self, statement: str, files: dict[str, str], hidden: dict[str, Any]) -> str:
        """Lay out the files."""
        runner_of(self._config)
        self._files, self._hidden, self._verdict, self.done = dict(files), hidden, None, False
        self._visible = tuple(text for path, text in files.items() if path.startswith("test_"))
        if self._config.prompt == "chat":
            return statement
        return "\n".join([*code_files(self._files), self.run_tests()])

    def list_files(self) -> str:
        """List the files of the repository."""
        return "\n".join(sorted(self._files))

    def read_file(self, path: str) -> str:
        """Read a file.

        Args:
            path: the file, as list_files names it.
        """
        return self._files[self._known(path)]

    def write_file(self, path: str, content: str) -> str:
        """Write a whole file, new or not.

        Args:
            path: the file, relative to the repository.
            content: all of its text.
        """
        return write_checked(self._files, path, content)

    def replace(self, path: str, old: str, new: str) -> str:
        """Replace a piece of a file by another.

        Args:
            path: the file.
            old: text that stands in the file exactly once; give whole lines if in doubt.
            new: what to put in its place.
        """
        path = self._known(path)
        return self.write_file(path, replaced(self._files[path], path, old, new))

    def run_tests(self) -> str:
        """Run the tests of the repository (the functions called test... of files called test_....py)."""
        return describe_code(
            judge.run_tests(runner_of(self._config), self._files, self._config.timeout_s), "plain", OUTPUT_LIMIT
        )

    def submit(self) -> str:
        """Hand in the repository as it is. Ends the task."""
        self.done = True
        return "submitted"

    def state_key(self) -> str:
        """A digest of the files and of whether they were handed in."""
        text = json.dumps([sorted(self._files.items()), self.done])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def reward(self) -> dict[str, float]:
        """The reward that the configuration asks for; `solved` and `share` (of the hidden checks) have weight 0."""
        solved, share = float(self._judged().solved), self._judged().share
        return {"reward": share if self._config.reward == "share" else solved, "solved": solved, "share": share}

    def success(self) -> bool:
        """Every hidden check passes."""
        return self._judged().solved

    def _judged(self) -> judge.Verdict:
        if self._verdict is None:
            self._verdict = self._judge()
        return self._verdict

    def _judge(self) -> judge.Verdict:
        runner, hidden = runner_of(self._config), self._hidden
        files = {path: text for path, text in self._files.items() if not path.startswith("test_")}
        if "calls" in hidden:
            calls = [tuple(call) for call in hidden["calls"]]
            return judge.check_calls(runner, files, calls, self._config.timeout_s, self._visible)
        program = Program(**{name: hidden[name] for name in Program._fields if name in hidden})
        return check_program(runner, files, program, hidden["tests"], self._config.timeout_s, hidden.get("shown", 0))

    def _known(self, path: str) -> str:
        clean = str(PurePosixPath(path))
        if clean not in self._files:
            raise ValueError(f"there is no file {path!r:.80}: the files are {', '.join(sorted(self._files))}")
        return clean


class View:
    """A workspace of which an agent may list and read the files; a subclass adds what else the agent may do."""

    def __init__(self, config: Config) -> None:
        self._work = Workspace(config)

    def list_files(self) -> str:
        """List the files of the repository."""
        return self._work.list_files()

    def read_file(self, path: str) -> str:
        """Read a file.

        Args:
            path: the file, as list_files names it.
        """
        return self._work.read_file(path)


def unique_edit(source: str, start: int, end: int, text: str) -> tuple[str, str]:
    """Arguments (old, new) of `Workspace.replace` that put `text` in the place of source[start:end].

    `old` is the lines of source[start:end] and as many lines before them as are needed to make it occur only once.
    """
    last = source.find("\n", end)
    last = len(source) if last < 0 else last
    begins = [0, *(found.end() for found in re.finditer("\n", source[:start]))]
    # A longer `old` never occurs more often, so a binary search finds the latest line with which it occurs once.
    first = begins[max(bisect_right(begins, 1, key=lambda at: source.count(source[at:last])) - 1, 0)]
    return source[first:last], source[first:start] + text + source[end:last]
