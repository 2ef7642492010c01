"""The tester's tools on a repository of code that others wrote."""

from typing import Any

from agentrl.envs import code_repair
from agentrl.envs.code_repair.workspace import View, code_files
from agentrl.tool import action as tool_action
from agentrl.tool_env import environment

SYSTEM = "You test Python code that others write. Read it, write tests, run them, and report."


class Config(code_repair.Config, frozen=True):
    """Options of `code_repair`. `level`, `programs`, `kinds`, `rows` and `mode` choose the programs; `reward` has no
    effect. With the compact prompt the tester writes no tests: it runs the given ones and chooses a report."""


class Tester(View):
    """A repository that may be read, and tests that may be written and run."""

    def __init__(self, config: Config) -> None:
        super().__init__(config.model_copy(update={"prompt": "chat"}))
        self._compact = config.prompt == "compact"
        self._seen: tuple[str, ...] = ()  # what the last run of the tests said, line by line
        self._right = 0.0
        self.done = False

    def reset(self, statement: str, files: dict[str, str], hidden: dict[str, Any]) -> str:
        """Lay out the files."""
        self._work.reset(statement, files, hidden)
        return "\n".join(code_files(files)) if self._compact else statement

    def write_test(self, path: str, content: str) -> str:
        """Write a whole file of tests, new or not.

        Args:
            path: a file called test_....py.
            content: all of its text; functions called test... are tests.
        """
        if "/" in path or not (path.startswith("test_") and path.endswith(".py")):
            raise ValueError(f"{path!r:.80} is no file of tests: call it test_....py")
        return self._work.write_file(path, content)

    def run_tests(self) -> str:
        """Run all tests (the functions called test... of files called test_....py)."""
        told = self._work.run_tests()
        self._seen = tuple(told.strip().split("\n"))
        return told

    def report(self, passes: bool, finding: str = "") -> str:
        """Say whether the code is right. Ends the task.

        Args:
            passes: true if the code does what it is to do.
            finding: what is wrong, for who has to mend it.
        """
        self.done = True
        self._right = float(passes == self._work.success())
        return "reported"

    def state_key(self) -> str:
        """States with the same files and the same output of the last test run are one state."""
        return f"{self._work.state_key()} {'|'.join(self._seen)} {self.done}"

    def reward(self) -> dict[str, float]:
        """right: the report is true. format: there was a report."""
        return {"right": self._right, "format": float(self.done)}

    def _choices(self) -> list[str]:
        """The compact form's actions: the tests, and reports that name one of their lines."""
        call = tool_action.call
        told = [call("report", passes=False, finding=line) for line in self._failures()]
        run = [] if self._seen else [call("run_tests")]
        return [*run, call("report", passes=True), call("report", passes=False), *told]

    def _failures(self) -> list[str]:
        """The failures that the last run of the tests printed; the last line counts them, if the run ended."""
        *lines, last = self._seen or ("0 failed",)
        failed = [line for line in lines if line]
        return failed if failed or last.endswith("0 failed") else [last]


hooks = environment(
    Tester,
    rows=[],
    config=Config,
    system=SYSTEM,
    weights={"format": 0.0},
    snapshots=True,
    module=__name__,
)
make = hooks.make  # bound in this module, where unpickling looks for it
