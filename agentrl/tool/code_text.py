"""Writes the result of code for a model, by a named convention, and finds the code in a model's answer.

| name | source | text |
| --- | --- | --- |
| `plain` | | output, value of the last expression, the traceback's last lines; a sentence if all are empty |
| `torl` | ToRL, arXiv:2503.23383 | output, or an error's last line; of over 256 characters, the first and last 128 |
| `retool` | ReTool, arXiv:2504.11536, verl's recipe | stdout, stderr, last value; "no stdout here" after a time-out |
"""

import re
from typing import Literal

from agentrl.chat import shorten
from agentrl.tool.code import CodeResult

Convention = Literal["plain", "torl", "retool"]
FENCE = re.compile(r"```(?:py|python|python3)?[ \t]*\n(.*?)```", re.DOTALL)
LINES_OF_TRACEBACK = 8
SIDE = 128  # characters that ToRL keeps at each end of a long output


def describe_code(result: CodeResult, convention: Convention = "plain", limit: int = 2000) -> str:
    """The text in which a model reads a result.

    Args:
        result: a result without `infra_error`.
        convention: see the table in the module's docstring.
        limit: largest number of characters of a `plain` text; a longer text keeps its head and tail.
    """
    if convention == "torl":
        return _torl(result)
    if convention == "retool":
        return "no stdout here" if result.timed_out else result.stdout + _errors(result) + _value(result)
    return shorten(_plain(result), limit, "cell")


def _plain(result: CodeResult) -> str:
    parts = [result.stdout, result.stderr, result.result_text]
    if result.traceback:
        parts.append("\n".join(result.traceback.rstrip("\n").splitlines()[-LINES_OF_TRACEBACK:]))
    elif result.error_name:
        parts.append(f"{result.error_name}: {result.error_value}")
    if result.timed_out:
        parts.append(f"TimeoutError: {result.error_value or 'the code was stopped, its time was up'}")
    text = "\n".join(part.rstrip("\n") for part in parts if part.strip())
    return text or (f"Finished with exit code {result.exit_code}." if result.exit_code else "Finished, no output.")


def _errors(result: CodeResult) -> str:
    """stderr as a shell would show it, that is with the traceback of an uncaught exception."""
    trace = result.traceback or (f"{result.error_name}: {result.error_value}\n" if result.error_name else "")
    return result.stderr + trace


def _value(result: CodeResult) -> str:
    return f"{result.result_text}\n" if result.result_text else ""


def _torl(result: CodeResult) -> str:
    text = (_errors(result).strip().splitlines() or [""])[-1] if result.error_name else result.stdout.strip()
    text = text or result.result_text
    if result.timed_out or not text:
        return "TimeoutError: the code printed nothing in its time"  # as in ToRL, also for an empty output
    return text if len(text) <= 2 * SIDE else f"{text[:SIDE]}...{text[-SIDE:]}"


def fenced_code(text: str) -> str | None:
    """The code of the first complete fenced block that is marked as Python or has no mark; None if there is none."""
    block = FENCE.search(text)
    return block[1] if block else None


def with_print(code: str) -> str:
    """ReTool's rewrite of code: the last line is put into print() unless it starts with print.

    As in the recipe's own code, the new code is broken if the last line is indented, a comment or an assignment.
    Sessions that echo the last expression do not need this rewrite.
    """
    lines = code.rstrip("\n").split("\n")
    if lines and lines[-1].strip() and not lines[-1].lstrip().startswith("print"):
        lines[-1] = f"print({lines[-1]})"
    return "\n".join(lines)
