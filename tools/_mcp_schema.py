"""Strict checks of arguments for the tools of an MCP server, by the server's own JSON schemas and in bounded time."""

from collections.abc import Callable, Mapping
from typing import Any

from agentrl.tool import TooDeep, json_checker

# With one of these keywords, the names of arguments may stand in another part of the schema than `properties`.
COMPOSING = ("$dynamicRef", "$ref", "allOf", "anyOf", "dependentSchemas", "if", "oneOf")


class WrongArguments(ValueError):
    """Arguments that do not fit a tool's schema."""


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object that refuses unknown arguments, unless the schema itself says whether it does.

    Where parts of the schema are composed, `unevaluatedProperties` refuses the arguments that no part names;
    `additionalProperties` would refuse those that only a part names. A schema with draft 7's `dependencies` on schemas
    stays open, because no keyword knows the arguments that these name.
    """
    whole = {"type": "object", "properties": {}, **schema}
    dependencies = whole.get("dependencies")
    if isinstance(dependencies, Mapping) and any(isinstance(one, Mapping) for one in dependencies.values()):
        return whole
    if "additionalProperties" in whole or "unevaluatedProperties" in whole:
        return whole
    if not any(key in whole for key in COMPOSING):
        return {**whole, "additionalProperties": False}
    if "$ref" in whole:  # drafts before 2019-09 do not read keywords beside a reference
        whole["allOf"] = [*whole.get("allOf", ()), {"$ref": whole.pop("$ref")}]
    return {**whole, "unevaluatedProperties": False}


def checker(tool: str, schema: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A strict check of arguments against a JSON schema; it raises WrongArguments with a sentence for the model.

    Raises:
        ValueError: nothing can be checked by this schema.
    """
    checks = json_checker(schema)

    def check(arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            wrong = checks.complaints(dict(arguments))
        except TooDeep:
            raise WrongArguments(f"{tool}: the arguments are nested too deeply to be checked") from None
        if wrong:
            raise WrongArguments(f"{tool}: {'; '.join(wrong[:5])}")
        return dict(arguments)

    return check
