"""Values of arguments that a model writes without quotes, so that the tool's schema says what they are.

vLLM's parser of Qwen3-Coder (`qwen3coder_tool_parser.py`) reads values by their type, and by the first type other than
null of `anyOf`; its parsers of other XML formats try all types that a schema names (`coerce_to_schema_type`). The rules
here follow both: `null` and `None` are null if the schema allows null, a number comes before a text. They go further in
one point: a value must fit the whole schema, with its bounds, enumerations and patterns, if any reading of it does.
"""

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentrl.tool.calls import function_of
from agentrl.tool.calls._strict_json import check, read_json
from agentrl.tool.json_schema import argument_schemas, json_checker, kind_of, kinds

WORDS = {"true": True, "false": False}  # in any case, as `True` in templates that write `str(value)`
NULLS = ("null", "none")
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
MOST_DIGITS = 300  # a number with more characters is no number but a text


class TextValues:
    """The values of one tool's arguments.

    Args:
        schema: the tool's schema, as in `Observation.tools`.

    Raises:
        ValueError: no argument can be checked by the schema.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._root: Mapping[str, Any] = function_of(schema).get("parameters") or {}
        self._arguments = argument_schemas(self._root)
        others = self._root.get("additionalProperties")
        self._others = [others] if isinstance(others, Mapping) else []
        self._others += (self._root.get("patternProperties") or {}).values()
        try:
            self._checker = json_checker(self._root)
        except ValueError as error:
            raise ValueError(
                f"the schema of the tool {function_of(schema)['name']!r} cannot be read: {error}"
            ) from None

    def known(self, key: str) -> bool:
        """Does the schema name this argument?"""
        return key in self._arguments

    def value(self, key: str, text: str) -> Any:
        """The value of an argument.

        It is the first reading of the text that fits the schema. If none fits, it is the first whose kind the schema
        allows, so that the check of the arguments says what is wrong. It is the text itself if the schema names no
        kind, or allows no kind in which the text can be read.
        """
        schemas = self._arguments.get(key, self._others)
        allowed: set[str] = set()
        for schema in schemas:
            named = kinds(schema, self._root)
            if named is None:
                return text
            allowed |= named
        first: list[Any] = []
        for reading in _readings(text, allowed):
            if kind_of(reading) in allowed:
                if any(self._checker.fits(reading, schema) for schema in schemas):
                    return reading
                first = first or [reading]
        return first[0] if first else text


def _readings(text: str, allowed: set[str]) -> Iterator[Any]:
    """What a text may mean; the readings that come first are preferred."""
    bare = text.strip()
    if "null" in allowed and bare.lower() in NULLS:
        yield None
    value = _json(bare)
    if isinstance(value, float) and value.is_integer() and "number" not in allowed:
        value = int(value)
    if value is not None and not isinstance(value, str):
        yield value
    if bare.lower() in WORDS:
        yield WORDS[bare.lower()]
    if "string" in allowed:
        yield text
    if NUMBER.fullmatch(bare[:MOST_DIGITS]) and len(bare) <= MOST_DIGITS:
        yield from _numbers(bare)
    if bare[:1] in ("[", "(", "{"):
        yield from _python(bare)
    if "string" in allowed:
        yield bare
        if isinstance(value, str):
            yield value


def _json(text: str) -> Any:
    """The JSON value that is the whole text; None if it is none."""
    try:
        value, end = read_json(text, 0)
    except ValueError:
        return None
    return None if text[end:].strip() else value


def _numbers(text: str) -> Iterator[Any]:
    """The number in the spellings that JSON lacks, such as 007, +5, .5 and 5.; none if it is too large a number."""
    try:
        yield int(text)
    except ValueError:
        if abs(number := float(text)) != float("inf"):
            yield int(number) if number.is_integer() else number


def _python(text: str) -> Iterator[Any]:
    """The list or object in Python's spelling, such as `{'a': None}`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as the warning about an unknown escape
            value = json.loads(json.dumps(ast.literal_eval(text), allow_nan=False))
        check(value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return
    yield value


def text_values(schemas: Sequence[Mapping[str, Any]]) -> dict[str, TextValues]:
    """Tool name -> the values of its arguments; ValueError if a schema cannot be read."""
    return {str(function_of(schema)["name"]): TextValues(schema) for schema in schemas}
