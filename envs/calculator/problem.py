"""A problem and the calculator: options, the tools, the reward."""

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from pydantic import Field

from agentrl.config import resolve
from agentrl.tool import ToolError, action as tool_action
from agentrl.tool_env import Done, ToolConfig

# A number with everything that is attached to it, so that 1e42, 42/7, 40+2, 42² and "1,2" do not count as the answers
# 42, 7, 2, 42 and 12.
NUMBER = re.compile(r"(?<!\w)-?\w*\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?[⁰¹²³⁴-⁹]*(?:[-+*/^×÷]+\d[\d,.]*)*")
GROUPED = re.compile(r"-?[0-9]{1,3}(?:,[0-9]{3})+")
ASK = " Answer with the number alone."


class Config(ToolConfig, frozen=True):
    """The options.

    events: largest number of events of a story; a story with more events is harder.
    min_events: smallest number of events of a story; 0: every story has exactly `events` events.
    noise: number of sentences of a story whose numbers do not matter.
    largest: largest number in the text of a story.
    count: number of generated stories for each part and each number of events.
    seed: seed of the first story.
    split: the part of the stories: train, valid, test, or all three. No set of numbers occurs in two parts. No order of
        events occurs in two parts either, except in stories of one event. A file (`rows`) has the parts train and test.
    test_share: share of the rows of a file (`rows`) that are test rows, between 0 and 1; generated stories ignore it.
    brief: stories in few words, with one wording per kind of event.
    show: whole (the first observation is the whole story) or lines (it is the first line, and a second tool reads the
        next line).
    prompt: chat (tool calls), compact (few words, for small models), or instruct (as compact, with a system message,
        for language models). Compact and instruct list the actions: additions, subtractions and multiplications of two
        numbers that were seen so far; each of these numbers as the answer; with show = lines also `next`, while lines
        are left. Operations that were called already, or whose result is too long for `display`, are not listed.
    display: largest number of digits that the calculator can show; a result with more digits is an error. 0: no limit.
    rows: a file of problems, with the columns story and target, instead of generated stories. The key of a row decides
        whether it is a training or a test row.
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
    """The tool `calculator` with these options. It has no state, so that all episodes of a process share it."""
    entry = resolve("tools", {"name": "calculator", **json.loads(options)}, "env.tools.calculator")
    made: Callable[[str], str] = entry.hooks.make(entry.config)
    return made


class Calculator:
    """One problem, the catalogue's calculator as its tool."""

    weights = {"called": 0.0}  # noqa: RUF012  `called` is a metric, no part of the reward

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
        """The parts in which the story is told; the first observation is the first part. Here the story is one part."""
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
        """1 if at least one call succeeded."""
        return float(any(call.ok for call in calls))

    def state_key(self) -> str:
        """The story, the number of lines not told yet, and, both sorted, the numbers seen and the calls made."""
        return "\n".join([self._story, str(len(self._lines)), *map(str, sorted(self._known)), *sorted(self._made)])

    def _note(self, text: str) -> None:
        self._known = list(dict.fromkeys([*self._known, *map(int, re.findall(r"\d+", text))]))

    def _choices(self) -> list[str]:
        """The listed actions: operations on two numbers that were not called yet, and answers."""
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
        end = max(story.rfind("."), story.rfind("?")) + 1  # the pattern finds nothing behind it
        return re.findall(r"\S[^.?]*[.?]", story[:end])

    def _choices(self) -> list[str]:
        return [*([NEXT] if self._lines else []), *super()._choices()]


def _value(a: int, sign: str, b: int) -> int:
    return a + b if sign == "+" else a * b if sign == "*" else abs(a - b)


def ordered(a: int, sign: str, b: int, seen: Sequence[int]) -> str:
    """The one way in which the compact form writes an operation on two numbers.

    The number that was seen later comes first; in a subtraction, the larger number comes first.
    """
    first = max(a, b) if sign == "-" else max(a, b, key=seen.index)
    return f"{first} {sign} {b if first == a else a}"


class _Written(dict[str, str]):
    """Text -> canonical action. An action is written once and kept, because every list has about a hundred actions."""

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
