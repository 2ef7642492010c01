"""The writer's tools on a repository whose tests only the tester runs."""

import hashlib
import json
from typing import Any

from pydantic import Field

from agentrl.envs import code_repair
from agentrl.envs.code_repair.tasks import changes
from agentrl.envs.code_repair.workspace import View, code_files
from agentrl.envs.code_test.environment import ask
from agentrl.tool import action as tool_action
from agentrl.tool_env import environment

SYSTEM = "You repair Python code. Look at the files, change them, have them tested, and submit."
ROLE = (
    "You cannot run code. A tester can: call ask_tester, and it tells you whether the code is right and what it found."
)
PENDING = "The tester is at work."


class Config(code_repair.Config, frozen=True):
    """The options of `code_repair`, and the following.

    asks: largest number of times that the writer may ask the tester in an episode; a further call is an error.
    prompt: chat (tool calls), or compact (few words, for small models); the tester has the same prompt. Under compact
        the writer's first observation shows the code, and the listed actions are to ask the tester, to hand in, and
        single changes of the code; tasks that such changes cannot solve are left out.
    reward: reward of the writer: solved (1 if all hidden checks pass, else 0) or share (the share of the hidden checks
        that pass, not counting hidden checks that a visible test shows).
    timeout_s: largest number of seconds of one run of the tests by the tester. It is also the limit of all hidden calls
        of a verdict together, and of each run of a hidden test program.
    """

    asks: int = Field(3, ge=0)


class Writer(View):
    """A repository whose tests fail. Repair it with the help of a tester; hidden checks decide."""

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__(code_repair.Config(**{**config.model_dump(exclude={"asks"}), "prompt": "chat"}))
        self._files: dict[str, str] = {}
        self._hidden: dict[str, Any] = {}
        self._asking, self._heard = False, tuple[str, ...]()
        self.done = False

    def reset(self, statement: str, files: dict[str, str], hidden: dict[str, Any]) -> str:
        """Lay out the files."""
        self._work.reset(statement, files, hidden)
        self._files, self._hidden = dict(files), hidden
        return "\n".join(code_files(files)) if self._config.prompt == "compact" else f"{statement}\n{ROLE}"

    def write_file(self, path: str, content: str) -> str:
        """Write a whole file, new or not.

        Args:
            path: the file, relative to the repository.
            content: all of its text.
        """
        return self._work.write_file(path, content)

    def replace(self, path: str, old: str, new: str) -> str:
        """Replace a piece of a file by another.

        Args:
            path: the file.
            old: text that stands in the file exactly once; give whole lines if in doubt.
            new: what to put in its place.
        """
        return self._work.replace(path, old, new)

    def ask_tester(self) -> str:
        """Have the repository tested as it is at the end of this turn."""
        if self._asking:
            raise ValueError("the tester is at work already")
        if len(self._heard) >= self._config.asks:
            raise ValueError(f"the tester was asked {self._config.asks} times, which is all")
        self._asking = True
        return PENDING

    def submit(self) -> str:
        """Hand in the repository as it is. Ends the task."""
        self.done = True
        return "submitted"

    def state_key(self) -> str:
        """A digest of the files, of the tester's reports, and of whether the repository was handed in."""
        text = json.dumps([sorted(self._now().items()), self._heard, self.done])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def reward(self) -> dict[str, float]:
        """The reward and the signals of `code_repair`, and `format`: 1 if the repository was handed in, else 0."""
        return {**self._work.reward(), "format": float(self.done)}

    def success(self) -> bool:
        """Every hidden check passes."""
        return self._work.success()

    def _now(self) -> dict[str, str]:
        return {path: self._work.read_file(path) for path in self._work.list_files().split("\n")}

    def _question(self) -> dict[str, Any]:
        """The parameters of the tester's task: the code as it is now, and the tests as the writer's task gave them."""
        own = {path: text for path, text in self._now().items() if not path.startswith("test_")}
        given = {path: text for path, text in self._files.items() if path.startswith("test_")}
        return ask({**own, **given}, self._hidden)

    def _hear(self, finding: str) -> None:
        self._asking, self._heard = False, (*self._heard, finding)

    def _choices(self) -> list[str]:
        """The actions of the compact form: ask the tester (if allowed), hand in, or make one of the `changes`."""
        found = [tool_action.call("ask_tester")] if len(self._heard) < self._config.asks else []
        found.append(tool_action.call("submit"))
        return found + changes(self._now())


hooks = environment(
    Writer,
    rows=[],
    config=Config,
    system=SYSTEM,
    weights={"solved": 0.0, "share": 0.0, "format": 0.0},
    snapshots=True,
    module=__name__,
)
make = hooks.make  # bound in this module, where unpickling looks for it
