"""Turns the actions that a tool environment's class writes, such as `find("bolt")` or `42`, into canonical JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.tool import Calls, Malformed, action as tool_action

CANONICAL = ('{"calls": ', '{"answer": ')  # how every text of `agentrl.tool.action` begins


def canonical(written: object, schemas: Sequence[Mapping[str, Any]], method: str) -> str:
    """The canonical JSON of an action (`agentrl.tool.action`).

    Args:
        written: a call as in Python, such as `find("bolt")`; a final answer, such as `42`; or canonical JSON.
        schemas: the schemas of the tools.
        method: the method of the user's class that wrote the action, for the error message.

    Raises:
        ValueError: `written` is no text, or a call that cannot be read.
    """
    if isinstance(written, str) and written.startswith(CANONICAL):
        return written
    if not isinstance(written, str):
        raise ValueError(f'{method} gave {written!r:.60}, which is no text: write a call, such as find("bolt")')
    turn = tool_action.read(written, schemas)
    wrong = next((item.message for item in turn.items if isinstance(item, Malformed)), "")
    if wrong:
        raise ValueError(f"{method} gave {written!r:.80}: {wrong}")
    return tool_action.write(Calls(items=turn.items, answer=turn.answer))
