"""Turns the actions that a tool environment's class writes, such as `find("bolt")` or `42`, into canonical JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.catalogue import nearest
from agentrl.tool import Call, Calls, Malformed, ToolSpec, action as tool_action

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


def check_fits(action: str, specs: Mapping[str, ToolSpec], method: str) -> None:
    """Raises ValueError if an action in canonical JSON calls a tool that does not exist or refuses the arguments.

    Args:
        action: canonical JSON.
        specs: the tools by name.
        method: see `canonical`.
    """
    for call in tool_action.read(action).items:
        if not isinstance(call, Call):
            continue
        if call.name not in specs:
            raise ValueError(f"{method} gave a call of {call.name!r}, which is no tool{nearest(call.name, specs)}")
        try:
            specs[call.name].check(call.arguments)
        except ValueError as error:
            raise ValueError(f"{method} gave a call that its tool refuses: {error}") from None
