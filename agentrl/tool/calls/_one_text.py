"""Tools that take one text: what formats without JSON can call."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.tool.calls import function_of, properties_of


def text_arguments(schemas: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Tool name -> its text argument, of every tool that can be called with one text alone."""
    found = {}
    for schema in schemas:
        properties = properties_of(schema)
        required = function_of(schema).get("parameters", {}).get("required", [])
        texts = [name for name, one in properties.items() if one.get("type", "string") == "string"]
        chosen = [name for name in required if name in texts] or texts[:1]
        if len(chosen) == 1 and set(required) <= set(chosen):
            found[str(function_of(schema)["name"])] = chosen[0]
    return found


def one_text_tool(schemas: Sequence[Mapping[str, Any]], called: str) -> tuple[str, str]:
    """(tool, argument) of the only tool, which takes one text; ValueError otherwise."""
    known = text_arguments(schemas)
    if len(schemas) != 1 or len(known) != 1:
        listed = ", ".join(str(function_of(schema)["name"]) for schema in schemas) or "none"
        raise ValueError(
            f"call format {called} needs exactly one tool that takes one text, the tools are {listed}: use hermes"
        )
    (pair,) = known.items()
    return pair
