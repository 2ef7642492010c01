"""Checks of values by the JSON schemas of other people: in the schema's draft, in bounded time, without a network.

`jsonschema` judges, with these departures. `pattern` is matched by an engine of linear time, because Python's regular
expressions can take exponential time. A check follows at most MOST_REFERENCES references, and no reference is looked up
on another machine. OpenAPI's `nullable: true` allows null, draft 4's `exclusiveMinimum: true` and
`unevaluatedProperties` are read in all drafts. `multipleOf` counts in decimals, so 0.07 is a multiple of 0.01.

Limits: patterns that the linear engine does not support (look-around) are not checked; nor is `unevaluatedProperties`
in a schema with `patternProperties`. `format` is a remark, as in drafts 2019-09 and 2020-12.
"""

import functools
import json
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import jsonschema
import referencing
from jsonschema.exceptions import ValidationError, best_match
from pydantic_core import SchemaError, SchemaValidator, core_schema

from agentrl.chat import shorten
from agentrl.tool.json_schema import TooDeep, parts, with_numeric_bounds

# Largest number of references followed in one check. A schema that refers to itself in two places has 2^depth of them.
MOST_REFERENCES = 5_000
# Largest number of references followed inside each other. With about 15 frames of Python for each, more would come near
# the recursion limit, at which the library under jsonschema (rpds) panics.
MOST_INSIDE = 40
SHOWN_CHARS = 400  # longer messages, which hold a long value, are shown without their middle
DRAFTS = {
    "3": jsonschema.Draft3Validator,
    "4": jsonschema.Draft4Validator,
    "6": jsonschema.Draft6Validator,
    "7": jsonschema.Draft7Validator,
    "2019-09": jsonschema.Draft201909Validator,
    "2020-12": jsonschema.Draft202012Validator,
}
NAMED_DRAFT = re.compile(r"json-schema\.org/draft[-/]0?(3|4|6|7|2019-09|2020-12)/")
Keyword = Callable[[Any, Any, Any, Mapping[str, Any]], Iterator[Any]]
_references: ContextVar["Followed"] = ContextVar("references followed in this check")


@dataclass
class Followed:
    """The references followed in one check: their number, and how many of them are inside each other now."""

    count: int = 0
    inside: int = 0


class _TooMany(Exception):
    """A check followed more than MOST_REFERENCES references, or more than MOST_INSIDE inside each other."""


class Checker:
    """Checks values by one schema.

    Args:
        schema: the schema, in the draft that its `$schema` names, else in 2020-12. A schema that is not valid in this
            draft, but in draft 7 or 4, is read in the latter.

    Raises:
        ValueError: nothing can be checked by this schema; the message says why.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        try:
            text = json.dumps(schema, sort_keys=True)
            self._validator, self._refers = _validator(text), '"$ref"' in text or '"$dynamicRef"' in text
        except RecursionError:
            raise ValueError("the schema is nested too deeply") from None

    def errors(self, value: Any, part: Mapping[str, Any] | None = None) -> list[Any]:
        """What is wrong with a value, as errors of `jsonschema` in the order of their places in the value.

        Args:
            value: a JSON value.
            part: check by this part of the schema; its references are those of the whole schema.

        Raises:
            TooDeep: see the class.
        """
        validator = self._validator if part is None else self._validator.evolve(schema=part)
        check = _on_its_own_stack if self._refers else _errors
        return check(validator, value)

    def complaints(self, value: Any) -> list[str]:
        """What is wrong with a value, in words that name the place in it; TooDeep: see the class."""
        found = self.errors(value)
        # A branch that fails names no property, so the properties of this branch count as unknown: no second mistake.
        found = [one for one in found if one.validator != "unevaluatedProperties"] or found
        return [_words(one) for one in found]

    def fits(self, value: Any, part: Mapping[str, Any] | None = None) -> bool:
        """Does a value fit the schema, or this part of it?"""
        try:
            return not self.errors(value, part)
        except TooDeep:
            return False


def _errors(validator: Any, value: Any) -> list[Any]:
    _references.set(Followed())
    try:
        return sorted(validator.iter_errors(value), key=lambda error: list(map(str, error.absolute_path)))
    except (_TooMany, RecursionError):
        raise TooDeep("it is nested too deeply to be checked") from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise TooDeep("it is nested too deeply to be checked") from None


def _on_its_own_stack(validator: Any, value: Any) -> list[Any]:
    """`_errors` in a thread, so that how deep a value may be does not depend on the caller's stack."""
    outcome: list[Any] = []

    def check() -> None:
        try:
            outcome.append(_errors(validator, value))
        except Exception as error:  # noqa: BLE001  raised below
            outcome.append(error)

    thread = threading.Thread(target=check, daemon=True)
    thread.start()
    thread.join()
    (result,) = outcome
    if isinstance(result, Exception):
        raise result
    return list(result)


def _words(error: Any) -> str:
    place = ".".join(map(str, error.absolute_path))
    message = shorten(error.message, SHOWN_CHARS, "ends")  # it begins with the value, and its end says what is wrong
    nearest = best_match([error])  # of the alternatives of anyOf or oneOf, the one that nearly fits
    if nearest is not error and error.validator in ("anyOf", "oneOf"):
        message += f" ({shorten(nearest.message, SHOWN_CHARS, 'ends')})"
    return f"argument {place!r:.{SHOWN_CHARS}}: {message}" if place else message


@functools.lru_cache(maxsize=256)
def _validator(text: str) -> Any:
    """The validator of a schema in JSON.

    Raises:
        ValueError: the schema is not valid, or holds a reference or pattern that cannot be read.
    """
    schema = json.loads(text)
    named = NAMED_DRAFT.search(f"{schema.get('$schema', '')}/")
    wrong = {draft: _wrong(schema, draft) for draft in dict.fromkeys((named[1] if named else "2020-12", "7", "4"))}
    valid = [draft for draft, why in wrong.items() if not why]
    if not valid:
        raise ValueError(next(iter(wrong.values())))
    validator = _class_of(valid[0], '"patternProperties"' in text)(schema, registry=referencing.Registry())
    _check_parts(schema, validator)
    return validator


def _wrong(schema: Mapping[str, Any], draft: str) -> str:
    """Why a schema is not valid in a draft; empty if it is valid."""
    kind = DRAFTS[draft]
    written = schema if draft in ("3", "4") else with_numeric_bounds(schema)
    error = best_match(kind(kind.META_SCHEMA).iter_errors(written))
    if error is None:
        return ""
    *inside, last = map(str, error.absolute_path or [""])
    if last == "type" and isinstance(error.instance, str):
        return f"Unknown type {error.instance!r} at {'.'.join(inside) or 'its root'}"
    return f"{error.message:.200} at {'.'.join((*inside, last)) or 'its root'}"


def _check_parts(schema: Any, validator: Any) -> None:
    """Raises ValueError for a reference or a pattern that cannot be read, anywhere in the schema."""
    todo = [(schema, validator._resolver)]
    while todo:
        node, there = todo.pop()
        if isinstance(node.get("$id"), str):
            there = there.in_subresource(referencing.jsonschema.DRAFT202012.create_resource(node))
        for key in ("$ref", "$dynamicRef"):
            if key in node:
                _check_reference(node, key, there, validator)
        for expression in [*node.get("patternProperties", ()), *([node["pattern"]] if "pattern" in node else ())]:
            try:
                _linear(expression)
            except re.error as error:
                raise ValueError(f"{error} in the pattern {expression!r:.100}") from None
        todo += [(part, there) for part in parts(node)]


def _check_reference(node: Any, key: str, there: Any, validator: Any) -> None:
    try:
        there.lookup(node[key])
        _on_its_own_stack(validator.evolve(schema=node, _resolver=there), None)  # no value is nested less deeply
    except TooDeep:
        raise ValueError(f"the reference {node[key]} leads back to itself") from None
    except (referencing.exceptions.Unresolvable, ValueError, AttributeError):
        raise ValueError(f"Unresolvable: {node[key]!s:.200}") from None


@functools.cache
def _class_of(draft: str, patterned: bool) -> Any:
    """The draft's class of validators with the departures of the module's docstring.

    `patterned`: the schema has `patternProperties`. jsonschema matches these patterns with Python's regular expressions
    to find the unevaluated names, so these are then not looked for.
    """
    kind = DRAFTS[draft]
    unevaluated = jsonschema.Draft202012Validator.VALIDATORS["unevaluatedProperties"]
    keywords: dict[str, Keyword] = {"unevaluatedProperties": unevaluated, **kind.VALIDATORS}
    keywords |= {"pattern": _pattern, "patternProperties": _pattern_properties, "multipleOf": _multiple}
    keywords["additionalProperties"] = _additional(keywords["additionalProperties"])
    if draft not in ("3", "4"):
        keywords |= {name: _exclusive(keywords[name], name) for name in ("exclusiveMinimum", "exclusiveMaximum")}
    if patterned:
        keywords["unevaluatedProperties"] = _unchecked
    keywords |= {name: _counted(keywords[name]) for name in ("$ref", "$dynamicRef") if name in keywords}
    return jsonschema.validators.extend(kind, {name: _not_null(one) for name, one in keywords.items()})


def _not_null(keyword: Keyword) -> Keyword:
    """The keyword, which allows null if `nullable: true` stands beside it."""

    def check(validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
        if instance is not None or schema.get("nullable") is not True:
            yield from keyword(validator, value, instance, schema) or ()

    return check


def _counted(keyword: Keyword) -> Keyword:
    def follow(validator: Any, reference: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
        followed = _references.get()
        if followed.count >= MOST_REFERENCES or followed.inside >= MOST_INSIDE:
            raise _TooMany
        followed.count += 1
        followed.inside += 1
        try:
            yield from keyword(validator, reference, instance, schema) or ()
        finally:
            followed.inside -= 1

    return follow


def _exclusive(keyword: Keyword, name: str) -> Keyword:
    """`exclusiveMinimum` or `exclusiveMaximum`, which is a bound, or true or false as in draft 4."""
    bound = name.removeprefix("exclusive").lower()

    def check(validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
        if value is True:
            value = schema.get(bound)
        if not isinstance(value, bool) and value is not None:
            yield from keyword(validator, value, instance, schema) or ()

    return check


def _additional(keyword: Keyword) -> Keyword:
    """`additionalProperties`, which concerns the names that no pattern of `patternProperties` matches."""

    def check(validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
        patterns = schema.get("patternProperties")
        if patterns and isinstance(instance, dict):
            known = {name for name in instance if any(_matches(pattern, name) is not False for pattern in patterns)}
            known |= set(schema.get("properties", ()))
            instance, schema = {name: one for name, one in instance.items() if name not in known}, {}
        yield from keyword(validator, value, instance, schema) or ()

    return check


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    for pattern, part in patterns.items() if isinstance(instance, dict) else ():
        for name, one in instance.items():
            if _matches(pattern, name):
                yield from validator.descend(one, part, path=name, schema_path=pattern)


def _multiple(validator: Any, step: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    if validator.is_type(value, "number") and (not math.isfinite(value) or _decimal(value) % _decimal(step)):
        yield ValidationError(f"{value!r} is not a multiple of {step!r}")


def _decimal(number: float) -> Fraction:
    """The number that is written; the float nearest to 0.07 is none of its multiples."""
    return Fraction(repr(number)) if isinstance(number, float) else Fraction(number)


def _unchecked(validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    return iter(())


def _pattern(validator: Any, expression: str, value: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    if isinstance(value, str) and _matches(expression, value) is False:
        yield ValidationError(f"{value!r} does not match {expression!r}")


def _matches(expression: str, text: str) -> bool | None:
    """Does a regular expression match somewhere in a text? None if the linear engine does not support it."""
    known = _linear(expression)
    return None if known is None else known.isinstance_python(text)


@functools.lru_cache(maxsize=256)
def _linear(expression: str) -> SchemaValidator | None:
    """The regular expression compiled by the linear engine; None if that engine does not support it.

    Raises:
        re.error: the text is no regular expression.
    """
    try:
        return SchemaValidator(core_schema.str_schema(pattern=expression))
    except SchemaError:
        re.compile(expression)
        return None
