"""Strict checks of arguments for the tools of an MCP server, by the server's own JSON schemas and in bounded time."""

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from pydantic_core import SchemaError, SchemaValidator, core_schema

# Largest number of references followed in one check. A schema that refers to itself in two places has 2^depth of them.
MOST_REFERENCES = 5_000
_references: ContextVar[list[int]] = ContextVar("references followed in this check")


class _TooMany(Exception):
    """A check followed more than MOST_REFERENCES references."""


class WrongArguments(ValueError):
    """Arguments that do not fit a tool's schema."""


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object that refuses unknown arguments, unless the schema sets `additionalProperties` itself."""
    return {
        "type": "object",
        "properties": {},
        **schema,
        "additionalProperties": schema.get("additionalProperties", False),
    }


def checker(tool: str, schema: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A strict check of arguments against a JSON schema; it raises WrongArguments with a sentence for the model.

    Python's regular expressions can take exponential time, so `pattern` is matched by an engine of linear time. Two
    things are not checked here, only by the server: patterns that this engine does not support (look-around), and
    arguments that `patternProperties` describes.
    """
    validator = _validator(json.dumps(schema, sort_keys=True))

    def check(arguments: Mapping[str, Any]) -> dict[str, Any]:
        _references.set([0])
        wrong = []
        try:
            errors = sorted(validator.iter_errors(dict(arguments)), key=lambda e: list(map(str, e.absolute_path)))
        except (_TooMany, RecursionError):
            raise WrongArguments(f"{tool}: the arguments are nested too deeply to be checked") from None
        for error in errors[:5]:
            argument = ".".join(str(part) for part in error.absolute_path)
            wrong.append(f"argument {argument!r}: {error.message}" if argument else error.message)
        if wrong:
            raise WrongArguments(f"{tool}: {'; '.join(wrong)}")
        return dict(arguments)

    return check


def _validator(schema: str) -> Any:
    """jsonschema's validator of a schema in JSON, without Python's regular expressions."""
    import jsonschema  # type: ignore[import-untyped]  # comes with mcp

    whole = jsonschema.Draft202012Validator.VALIDATORS

    def pattern(validator: Any, expression: str, value: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
        if isinstance(value, str) and not _matches(expression, value):
            yield jsonschema.ValidationError(f"{value!r} does not match {expression!r}")

    def unchecked(validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
        return iter(())

    def additional(validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
        if "patternProperties" not in schema:
            yield from whole["additionalProperties"](validator, value, instance, schema) or ()

    def counted(keyword: str) -> Any:
        def follow(validator: Any, reference: str, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
            followed = _references.get()
            followed[0] += 1
            if followed[0] > MOST_REFERENCES:
                raise _TooMany
            yield from whole[keyword](validator, reference, instance, schema) or ()

        return follow

    own = {
        "$ref": counted("$ref"),
        "$dynamicRef": counted("$dynamicRef"),
        "pattern": pattern,
        "patternProperties": unchecked,
        "additionalProperties": additional,
    }
    if '"patternProperties"' in schema:
        own["unevaluatedProperties"] = unchecked
    return jsonschema.validators.extend(jsonschema.Draft202012Validator, own)(json.loads(schema))


def _matches(expression: str, text: str) -> bool:
    """Does a regular expression match somewhere in a text? True if the linear engine does not support it."""
    known = _linear(expression)
    return known is None or known.isinstance_python(text)


@functools.lru_cache(maxsize=256)
def _linear(expression: str) -> SchemaValidator | None:
    """The regular expression compiled by the linear engine; None if that engine cannot read it.

    Raises:
        re.error: the text is no regular expression.
    """
    re.compile(expression)
    try:
        return SchemaValidator(core_schema.str_schema(pattern=expression))
    except SchemaError:
        return None
