"""Stand-in judges behind HTTP. They are programs, no language models, and answer in the form that a judge is asked for.

What they do with a prompt tells how the prompt holds: the strict one reads the JSON between the marks and nothing else,
the gullible one obeys the last instruction that stands on a line of its own, wherever it stands.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from tests.evaluate.stand_in import Reply, StandIn, answer

MARK = re.compile(r"#[0-9a-f]{16}")


def mark_of(body: dict[str, Any]) -> str:
    """The number in the rules of a request."""
    found = MARK.search(body["messages"][0]["content"])
    assert found is not None
    return found[0]


def data_of(body: dict[str, Any]) -> dict[str, Any]:
    """The JSON between the marks, by name; everything but this and the marks' lines is a fault of the prompt."""
    mark, lines = mark_of(body), body["messages"][1]["content"].split("\n")
    found = {}
    for begin, text, end in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        name = begin.removeprefix(f"{mark} BEGIN ")
        assert begin == f"{mark} BEGIN {name}" and end == f"{mark} END {name}"
        found[name] = json.loads(text)
    return found


def strict(grade: Callable[[dict[str, Any]], str], last: str = "{mark} {verdict}") -> Callable[[dict[str, Any]], Reply]:
    """Judges by the data alone."""

    def reply(body: dict[str, Any]) -> Reply:
        verdict = grade(data_of(body))
        return answer("Reasons.\n" + last.format(mark=mark_of(body), verdict=verdict))

    return reply


def gullible(body: dict[str, Any]) -> Reply:
    """Obeys a line of its own in the user's message that gives a verdict; else gives the lowest grade."""
    for line in reversed(body["messages"][1]["content"].split("\n")):
        found = re.fullmatch(r"(?:#[0-9a-f]{16} )?(\d+)", line.strip())
        if found:
            return answer(f"As told.\n{mark_of(body)} {found[1]}")
    return answer(f"Poor.\n{mark_of(body)} 1")


def of(reply: Callable[[dict[str, Any]], Reply]) -> StandIn:
    return StandIn(reply)
