"""A problem and the calculator: a class of a few lines as a tool environment."""

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from pydantic import Field

from agentrl.config import resolve
from agentrl.tool import ToolError
from agentrl.tool import action as tool_action
from agentrl.tool_env import Done, ToolConfig

# A number with everything that is attached to it, so that 1e42, 42/7, 40+2, 42² and "1,2" do not count as the answers
# 42, 7, 2, 42 and 12.
NUMBER = re.compile(r"(?<!\w)-?\w*\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?[⁰¹²³⁴-⁹]*(?:[-+*/^×÷]+\d[\d,.]*)*")
GROUPED = re.compile(r"-?[0-9]{1,3}(?:,[0-9]{3})+")
ASK = " Answer with the number alone."


class Config(ToolConfig, frozen=True):
    """events: most events of a story; more events are harder. min_events: fewest events of a story; 0: every story has
    `events`. noise: sentences whose numbers do not matter. largest: largest number in a story. count: stories of each
    number of events in each part. seed: seed of the first story. split: train, valid, test (which share no story's
    numbers and, from two events on, no order of events) or all. brief: stories in few words, with one wording per
    event. show: the whole story at once, or line by line, with a second tool that reads the next line. prompt: chat
    (tool calls), compact (few words; the listed actions are the operations on two numbers seen so far whose result the
    display can show, and each number as the answer), or instruct (compact with a system message, for language models).
    display: digits the calculator shows, larger results are an error; 0: any number. rows: a file of problems instead,
    with columns story and target, split by their keys.
    """

    events: int = Field(2, ge=1, le=8)
    min_events: int = Field(0, ge=0, le=8)
    noise: int = Field(0, ge=0, le=4)
    largest: int = Field(50, ge=20, le=1_000_000)
    count: int = Field(1000, ge=1)
    seed: int = Field(0, ge=0)
    split: Literal["all", "train", "valid", "test"] = "all"  # type: ignore[assignment]
    prompt: Literal["chat", "instruct", "compact"] = "chat"  # type: ignore[assignment]
    display: int = Field(0, ge=0, le=12)
    brief: bool = False
    show: Literal["whole", "lines"] = "whole"


@functools.cache
def _tool(options: str) -> Callable[[str], str]:
    """The catalogue's calculator, one per process: it keeps no state."""
    entry = resolve("tools", {"name": "calculator", **json.loads(options)}, "env.tools.calculator")
    made: Callable[[str], str] = entry.hooks.make(entry.config)
    return made


class Calculator:
    """One problem, the catalogue's calculator as its tool."""

    weights = {"called": 0.0}  # noqa: RUF012  a metric

    def __init__(self, config: Config) -> None:
        self._config = config
        self._tool = _tool(json.dumps(config.tools.get("calculator", {}), sort_keys=True))
        self._story, self._target = "", ""
        self._known: list[int] = []  # whole numbers in the order they were first seen
        self._made: list[str] = []
        self._lines: list[str] = []  # the lines that were not told yet
        self._line = 0  # number of the line that was told last

    def reset(self, story: str, target: str | int) -> str:
        """Tell the story."""
        self._story, self._target = story, str(target)
        self._known, self._made, self._lines = [], [], self._cut(story)
        told, self._line = self._lines.pop(0), 0
        self._note(told)
        return f"{told}{ASK}" if self._config.prompt == "chat" else told

    def _cut(self, story: str) -> list[str]:
        """The parts in which the story is told, of which the first observation shows the first; here one part."""
        return [story]

    def calculator(self, expression: str) -> str:
        """Work out an arithmetic expression.

        Args:
            expression: numbers, + - * / // % **, brackets, and abs, min, max, round, sqrt
        """
        self._made.append(expression)
        result = self._tool(expression)
        if self._config.display and sum(map(str.isdigit, result)) > self._config.display:
            raise ToolError(f"the display has {self._config.display} digits")
        self._note(result)
        return result

    def reward(self, answer: str) -> float:
        """1 if the last number of the answer is the right one."""
        found = NUMBER.findall(answer)
        last = found[-1] if found else ""
        return float(bool(last) and (last.replace(",", "") if GROUPED.fullmatch(last) else last) == self._target)

    def reward_called(self, calls: Sequence[Done]) -> float:
        """1 if a call went well."""
        return float(any(call.ok for call in calls))

    def state_key(self) -> str:
        """Equal stories with equal numbers seen and equal calls made are one state, in any order."""
        return "\n".join([self._story, str(len(self._lines)), *map(str, sorted(self._known)), *sorted(self._made)])

    def _note(self, text: str) -> None:
        self._known = list(dict.fromkeys([*self._known, *map(int, re.findall(r"\d+", text))]))

    def _choices(self) -> list[str]:
        """Actions of the compact form: operations on two numbers that were not asked for yet, and answers."""
        seen = self._known
        pairs = [(seen[j], seen[i]) for j in range(len(seen)) for i in range(j)]
        room = 10**self._config.display - 1 if self._config.display else None
        signs = [[s for s in "+-*" if room is None or _value(new, s, old) <= room] for new, old in pairs]
        texts = [ordered(new, s, old, seen) for (new, old), some in zip(pairs, signs, strict=True) for s in some]
        return [*(CALLS[text] for text in texts if text not in self._made), *(ANSWERS[str(number)] for number in seen)]


class Notebook(Calculator):
    """The story is read line by line, by a second tool."""

    def next_line(self) -> str:
        """Read the next line of the story; the last one is the question."""
        if not self._lines:
            raise ToolError("that was the last line")
        line, self._line = self._lines.pop(0), self._line + 1
        self._note(line)
        return line

    def _cut(self, story: str) -> list[str]:
        end = max(story.rfind("."), story.rfind("?")) + 1  # no sentence ends after it, so no search goes on in vain
        return re.findall(r"\S[^.?]*[.?]", story[:end])

    def _choices(self) -> list[str]:
        return [*([NEXT] if self._lines else []), *super()._choices()]


def _value(a: int, sign: str, b: int) -> int:
    return a + b if sign == "+" else a * b if sign == "*" else abs(a - b)


def ordered(a: int, sign: str, b: int, seen: Sequence[int]) -> str:
    """The one way in which the compact form writes an operation: the number seen last first, but large minus small."""
    first = max(a, b) if sign == "-" else max(a, b, key=seen.index)
    return f"{first} {sign} {b if first == a else a}"


class _Written(dict[str, str]):
    """Canonical actions by their text. Each is written once, because every list of actions has about a hundred."""

    def __init__(self, verb: str, most: int = 200_000) -> None:
        self._verb, self._most = verb, most

    def __missing__(self, text: str) -> str:
        if len(self) >= self._most:
            self.clear()
        call = self._verb == "call"
        self[text] = tool_action.call("calculator", expression=text) if call else tool_action.answer(text)
        return self[text]


NEXT = tool_action.call("next_line")
CALLS: Mapping[str, str] = _Written("call")
ANSWERS: Mapping[str, str] = _Written("answer")
