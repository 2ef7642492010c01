"""The tester's tools on a repository of code that others wrote."""

from typing import Any

from agentrl.envs import code_repair
from agentrl.envs.code_repair.workspace import View, code_files
from agentrl.tool import action as tool_action
from agentrl.tool_env import environment

SYSTEM = "You test Python code that others write. Read it, write tests, run them, and report."


class Config(code_repair.Config, frozen=True):
    """The options of `code_repair`; those listed here have another meaning than in `code_repair`.

    level: level of the generated repositories, each of which is tested once with its mistakes and once without: 1 (one
        program with one mistake), 2 (three programs, one of them with one mistake), 3 (three programs, two of them with
        one mistake each) or 0 (all three levels).
    prompt: chat (tool calls), or compact (few words, for small models). Under compact the first observation shows the
        code, and the tester writes no tests; the listed actions are to run the given tests and to report.
    reward: has no effect. A right report gets the reward 1; a wrong or missing report gets 0.
    timeout_s: largest number of seconds of one run of the tests. It is also the limit of all hidden calls of a verdict
        together, and of each run of a hidden test program.
    mode: which code is tested with a file (`rows`) of HumanEval or MBPP: `write` makes two tasks of
        each solution, one with the whole file and one with the file without the solution; `repair` makes one with the
        solution and one with a mistake in it.
    """


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
        """A digest of the files, the output of the last run of the tests, and whether there was a report."""
        return f"{self._work.state_key()} {'|'.join(self._seen)} {self.done}"

    def reward(self) -> dict[str, float]:
        """right: 1 if the report is right. format: 1 if there was a report. The reward is `right`."""
        return {"right": self._right, "format": float(self.done)}

    def _choices(self) -> list[str]:
        """The actions of the compact form: run the tests (once), and reports with and without a printed failure."""
        call = tool_action.call
        told = [call("report", passes=False, finding=line) for line in self._failures()]
        run = [] if self._seen else [call("run_tests")]
        return [*run, call("report", passes=True), call("report", passes=False), *told]

    def _failures(self) -> list[str]:
        """The failures that the last run of the tests printed: all lines but the last, which is their count.

        If the run was stopped, the last line says so. It is a failure itself if it is the only line.
        """
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
