"""Tools that take one text. The formats `fenced` and `search_r1` can call only such tools."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.tool.calls import function_of, properties_of


def text_arguments(schemas: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Tool name -> name of its text argument, for every tool that can be called with one text alone."""
    arguments = {}
    for schema in schemas:
        properties = properties_of(schema)
        required = function_of(schema).get("parameters", {}).get("required", [])
        texts = [name for name, one in properties.items() if one.get("type", "string") == "string"]
        candidates = [name for name in required if name in texts] or texts[:1]
        if len(candidates) == 1 and set(required) <= set(candidates):
            arguments[str(function_of(schema)["name"])] = candidates[0]
    return arguments


def one_text_tool(schemas: Sequence[Mapping[str, Any]], format_name: str) -> tuple[str, str]:
    """(name of the only tool, name of its text argument); ValueError if there is no such single tool."""
    known = text_arguments(schemas)
    if len(schemas) != 1 or len(known) != 1:
        listed = ", ".join(str(function_of(schema)["name"]) for schema in schemas) or "none"
        raise ValueError(
            f"call format {format_name} needs exactly one tool that takes one text, the tools are {listed}: use hermes"
        )
    (pair,) = known.items()
    return pair
