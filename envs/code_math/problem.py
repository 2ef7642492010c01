"""A problem and a Python interpreter for it: the options, the tool, the rewards."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from agentrl.chat import without_thoughts
from agentrl.envs.code_math.answers import Units, Verdict, boxed, compare, final_answer
from agentrl.tool import (
    CodeResult,
    CodeRunner,
    CodeSession,
    Convention,
    action as tool_action,
    describe_code,
    fenced_code,
    shared_runner,
    with_print,
    without_infra_error,
)
from agentrl.tool_env import Done, ToolConfig

NUMBER = re.compile(r"-?\d+")
OPERATORS = ("+", "-", "*", "//", "%")
KNOWN = 8  # largest number of numbers, those seen last, that the actions of the compact form combine


class Config(ToolConfig, frozen=True):
    """The options.

    level: difficulty of generated problems, 1 to 4: one operation, two operations, three operations, or a loop. 0: all
        four levels.
    count: number of generated problems per level.
    seed: seed of the first generated problem of each level.
    rows: a file of problems, with the columns of GSM8K, MATH or DAPO, instead of generated problems.
    convention: how results are written: plain, torl (fenced code and output) or retool.
    reward: exact (1 for a right answer, else 0), torl (1 for a right answer, else -1, and 0.5 less if code was run and
        every run failed), or retool (1 for a right answer, else -1 plus 0.1 for each turn before the last one, at
        most -0.6; an answer without a box is wrong).
    strict: an answer without a box is wrong.
    units: agree (an answer whose unit differs from the unit of the right answer is wrong) or ignore (units are not
        compared, as in the released scorers of MATH). If one of the two has no unit, units do not matter.
    stateful: variables of one run exist in the next runs of the episode.
    print_last: put the last line of the code into print() unless it begins with print, as ReTool does.
    max_calls: largest number of runs of code per episode; a further run is an error. 0: no limit.
    prompt: chat (tool calls), compact (few words, for small models), or instruct (as compact, with a system message,
        for language models). Compact and instruct list the actions: operations on two of the 8 numbers seen
        last, and each of these numbers as the answer.
    sandbox: the tool that runs the code, a table with its name and its options.
    timeout_s: seconds that one run of code may take.
    """

    level: int = Field(1, ge=0, le=4)
    count: int = Field(2000, ge=1)
    seed: int = Field(0, ge=0)
    convention: Convention = "plain"
    reward: Literal["exact", "retool", "torl"] = "exact"
    strict: bool = False
    units: Units = "agree"
    stateful: bool = False
    print_last: bool = False
    max_calls: int = Field(0, ge=0)
    prompt: Literal["chat", "instruct", "compact"] = "chat"  # type: ignore[assignment]
    sandbox: dict[str, Any] = Field(default_factory=lambda: {"name": "python_sandbox"})
    timeout_s: float = Field(10.0, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _convention_decides(cls, values: Any) -> Any:
        """With convention = torl, calls are fenced code, unless the recipe sets another `call_format`."""
        if isinstance(values, Mapping) and values.get("convention") == "torl":
            return {"call_format": "fenced", **values}
        return values


def runner_of(config: Config) -> CodeRunner:
    """The sandbox of a configuration, opened once per process; ValueError if it does not work on this machine."""
    return shared_runner(config.sandbox, "env.sandbox")


class Problem:
    """One problem, and the interpreter to solve it with."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._session: CodeSession | None = None
        self._ran: list[str] = []  # code of this episode; a copy of a stateful interpreter runs it again
        self._target, self._question = "", ""
        self._numbers: list[str] = []
        self._well = self._badly = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> "Problem":
        """A copy has an interpreter of its own. If it is stateful, its first use runs the earlier code again."""
        copy = Problem(self._config)
        copy.__dict__.update({**self.__getstate__(), "_ran": list(self._ran), "_numbers": list(self._numbers)})
        return copy

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None}

    def reset(self, question: str, target: str) -> str:
        """Ask the problem."""
        self._question, self._target = question, target
        self._note(question)
        return question

    def code_interpreter(self, code: str) -> str:
        """Run Python code and read what it prints, or the value of its last expression.

        Args:
            code: the code.
        """
        config = self._config
        if config.max_calls and len(self._ran) >= config.max_calls:
            raise ValueError(f"no more code may be run, {config.max_calls} runs were allowed: give the final answer")
        if config.convention == "retool":
            code = fenced_code(code) or code
        result = self._run(with_print(code) if config.print_last else code)
        self._ran.append(code)
        self._well, self._badly = self._well + result.ok, self._badly + (not result.ok)
        text = describe_code(result, config.convention)
        self._note(text)
        return f"```output\n{text}\n```" if config.convention == "torl" else text

    def _run(self, code: str) -> CodeResult:
        if self._session is None:
            self._session = runner_of(self._config).session(stateful=self._config.stateful)
            for earlier in self._ran if self._config.stateful else ():
                without_infra_error(self._session.run(earlier, self._config.timeout_s))
        return without_infra_error(self._session.run(code, self._config.timeout_s))

    def _note(self, text: str) -> None:
        """Remember the numbers in a text."""
        self._numbers = list(dict.fromkeys([*self._numbers, *NUMBER.findall(text[:500])]))

    def _choices(self) -> list[str]:
        """What the compact form offers: an operation on two of the numbers seen last, or one of them as the answer."""
        known = self._numbers[-KNOWN:]
        pairs = [(a, b) for a in known for b in known if a != b]
        spent = bool(self._config.max_calls and len(self._ran) >= self._config.max_calls)
        runs = [] if spent else [f"{a} {sign} {b}" for a, b in pairs for sign in OPERATORS]
        calls = [tool_action.call("code_interpreter", code=code) for code in runs]
        return [*calls, *(tool_action.answer(value) for value in known)]

    def _verdict(self, answer: str) -> Verdict:
        """Is the answer right? `answers.compare` says what unjudged means."""
        strict = self._config.strict or self._config.reward == "retool"
        given = boxed(without_thoughts(answer)) if strict else final_answer(answer)
        return "different" if given is None else compare(given, self._target, self._config.units)

    def reward(self, answer: str, calls: Sequence[Done], turns: int) -> dict[str, float]:
        """The signals: `reward`, as the option of this name says; and with weight 0 `correct` (0 or 1), `calls` (number
        of calls), `call_errors` (number of calls and of runs of code that failed) and `unjudged` (1 if the comparison
        of the answer exceeded its limits, so that the answer counts as wrong)."""
        verdict = self._verdict(answer)
        right = verdict == "equal"
        with_calls = max(0, turns - 1)
        match self._config.reward:
            case "retool":
                paid = 1.0 if right else min(-0.6, -1.0 + 0.1 * with_calls)
            case "torl":
                paid = (1.0 if right else -1.0) - 0.5 * (self._badly > 0 and self._well == 0)
            case _:
                paid = float(right)
        errors = sum(not call.ok for call in calls) + self._badly
        unjudged = float(verdict == "unjudged")
        counts = {"calls": float(len(calls)), "call_errors": float(errors)}
        return {"reward": paid, "correct": float(right), **counts, "unjudged": unjudged}

    def success(self, answer: str) -> bool:
        """The answer is right."""
        return self._verdict(answer) == "equal"

    def state_key(self) -> str:
        """A digest of the question and of the numbers seen. With a stateful interpreter, the code that was run takes
        the place of the numbers. With `max_calls`, the digest also depends on the number of runs."""
        seen = self._ran if self._config.stateful else sorted(self._numbers)
        text = json.dumps([self._question, seen, len(self._ran) if self._config.max_calls else 0])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def close(self) -> None:
        """End the interpreter."""
        if self._session is not None:
            self._session.close()
            self._session = None
