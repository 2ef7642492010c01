"""The workspace of an episode and the tools on it. Files live here as text, so no path can lead out of them; code runs
in a sandbox that gets a copy."""

import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Literal

from pydantic import Field

from agentrl.envs.code_repair import judge
from agentrl.tool import CodeRunner, describe_code, shared_runner
from agentrl.tool_env import ToolConfig

FILE_LIMIT = 100_000  # characters
FILES_LIMIT = 100
TOTAL_LIMIT = 2_000_000  # characters of all files, 8 MB at most
PATH_LIMIT, DEPTH_LIMIT = 200, 10  # bytes, folders and file
OUTPUT_LIMIT = 2000  # characters of run_tests


class Config(ToolConfig, frozen=True):
    """level: 1 one file; 2 three files, one with the mistake; 3 three files with two mistakes; 0 all levels. programs:
    all, or the training or held-out share of the programs (mistakes of one program are never in both). kinds: kinds of
    mistakes, empty for all. prompt: chat, or compact (everything at once, and a choice among single edits). reward:
    solved pays 1 when every hidden check passes; share pays the share of passed checks among those that no visible test
    shows (so that code with the visible values written into it earns nothing). sandbox: the tool that runs code.
    timeout_s: seconds per run of tests. rows: HumanEval or MBPP as JSONL or Parquet, or rows with files of their own.
    mode: what the agent does with the functions of `rows`: write them, or repair them after a mistake was put in.
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
    """The sandbox of a configuration, one per process; ValueError if it has none."""
    return shared_runner(config.sandbox, "env.sandbox")


def checked_file(files: Mapping[str, str], path: str, content: str, most: int = FILES_LIMIT) -> str:
    """The path of a file that is to be written among these, in plain form.

    Args:
        files: the files by path.
        path, content: of the file, new or not.
        most: how many files there may be.

    Raises:
        ValueError: no path inside the repository, or a limit is passed.
    """
    clean = str(PurePosixPath(path))
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)*", clean) or ".." in clean.split("/"):
        raise ValueError(f"{path!r:.80} is no path inside the repository")
    # If the sandbox failed on such a path, the failure would count as the sandbox's and the episode would be lost.
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
        clean = checked_file(self._files, path, content)
        self._files[clean] = content
        return f"wrote {clean}, {len(content.splitlines())} lines"

    def replace(self, path: str, old: str, new: str) -> str:
        """Replace a piece of a file by another.

        Args:
            path: the file.
            old: text that stands in the file exactly once; give whole lines if in doubt.
            new: what to put in its place.
        """
        path = self._known(path)
        count = self._files[path].count(old) if old else 0
        if count != 1:
            where = "is not in" if count == 0 else f"stands {count} times in"
            raise ValueError(f"the old text {where} {path}: give text that stands in it exactly once")
        return self.write_file(path, self._files[path].replace(old, new))

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
        return judge.check_program(
            runner, files, hidden["module"], hidden["names"], hidden["tests"], self._config.timeout_s
        )

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
    """The pieces (old, new) of `Workspace.replace` that put `text` at source[start:end]: whole lines, as many before
    them as make the old piece stand once."""
    last = source.find("\n", end)
    last = len(source) if last < 0 else last
    begins = [0, *(found.end() for found in re.finditer("\n", source[:start]))]
    # The longer the old piece, the rarer: the latest beginning that makes it unique.
    first = begins[max(bisect_right(begins, 1, key=lambda at: source.count(source[at:last])) - 1, 0)]
    return source[first:last], source[first:start] + text + source[end:last]
