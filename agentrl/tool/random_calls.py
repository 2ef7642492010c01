"""A random policy for tool environments: a call with random arguments of the right types, or a word as the answer."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from agentrl.tool import action as tool_action
from agentrl.tool.calls import function_of
from agentrl.tool.json_schema import definition, json_checker, kinds, with_numeric_bounds, without_nullable
from agentrl.types import Observation

ANSWERS = 0.3  # share of turns that give a final answer
LARGEST = 10  # if the schema sets no bounds, numbers are drawn from 0 to this number
LONGEST = 3  # largest number of items of a list, unless the schema's `minItems` is larger
COMPOSING = ("$ref", "allOf", "anyOf", "else", "if", "oneOf", "then")
# With one of these keywords, a schema refuses some draws.
EXCLUDING = (
    *("contains", "dependencies", "dependentRequired", "dependentSchemas", "maxProperties", "minProperties", "not"),
    *("propertyNames", "uniqueItems"),
)
TRIES = 30  # values drawn for a schema whose parts exclude each other, until one fits
DEPTH = 4  # values at this depth or deeper have no optional entries and only as many list items as the schema requires


def random_action(observation: Observation, rng: np.random.Generator) -> str:
    """A random action, written by `agentrl.tool.action`.

    Arguments fit the schema, also if it is composed of several (`anyOf`, `allOf`, `$ref`, `if`), but not always its
    `pattern` and `format`; texts are words of the observation.

    Raises:
        ValueError: the observation offers no tools.
    """
    if not observation.tools:
        raise ValueError("there is no tool to call at random")
    words = re.findall(r"\w+", observation.text) or ["nothing"]
    if rng.random() < ANSWERS:
        return tool_action.answer(str(rng.choice(words)))
    function = function_of(observation.tools[int(rng.integers(len(observation.tools)))])
    arguments = _arguments(function.get("parameters", {"type": "object"}), words, rng)
    return tool_action.calls([(str(function["name"]), arguments)])


def _arguments(given: Mapping[str, Any], words: Sequence[str], rng: np.random.Generator) -> Any:
    """Random arguments. A draw may not fit if schemas are composed; the next draw is then taken."""
    schema = {"type": "object", **without_nullable(with_numeric_bounds(given))}
    composed = any(f'"{key}"' in json.dumps(schema) for key in (*COMPOSING, *EXCLUDING))
    checker = json_checker(schema) if composed else None
    for _ in range(TRIES):
        arguments = _value(schema, schema, words, rng, 0)
        if checker is None or checker.fits(arguments):
            break
    return arguments


def _one_schema(schema: Mapping[str, Any], root: Mapping[str, Any], rng: np.random.Generator) -> Mapping[str, Any]:
    """The schema with its references followed, and with one branch of each choice taken in."""
    found = definition(schema.get("$ref"), root)
    branches = [found[1]] if found is not None else []
    branches += schema.get("allOf") or []
    branches += [_one_of(schema[key], rng) for key in ("anyOf", "oneOf") if schema.get(key)]
    dependent = (schema.get("dependentSchemas") or {}).items()
    branches += [{"allOf": [one], "required": [name]} for name, one in dependent if rng.integers(2)]
    if "if" in schema:
        condition = schema["if"] if rng.integers(2) else {}
        branches += [condition, schema.get("then" if condition else "else", {})]
    whole = {key: value for key, value in schema.items() if key not in COMPOSING}
    for branch in branches:
        if isinstance(branch, Mapping):
            whole = _both(whole, _one_schema(branch, root, rng))
    return whole


def _one_of(values: Sequence[Any], rng: np.random.Generator) -> Any:
    return values[int(rng.integers(len(values)))]


def _both(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """A schema for values that fit both schemas; exact for bounds, enumerations, properties and required names."""
    both = {**one, **other}
    for key, join in JOINS.items():
        if key in one and key in other:
            both[key] = join(one[key], other[key])
    return both


def _types(one: Any, other: Any) -> Any:
    ones, others = ([kind] if isinstance(kind, str) else kind for kind in (one, other))
    shared = [kind for kind in ones if kind in others or (kind == "integer" and "number" in others)]
    return shared or [kind for kind in others if kind == "integer" and "number" in ones] or other


def _properties(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    shared = {name: {"allOf": [one[name], other[name]]} for name in one.keys() & other.keys()}
    return {**one, **other, **shared}


JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "type": _types,
    "enum": lambda one, other: [value for value in one if value in other] or other,
    "properties": _properties,
    "required": lambda one, other: [*one, *other],
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems"), min),
}


def _value(schema: object, root: Mapping[str, Any], words: Sequence[str], rng: np.random.Generator, depth: int) -> Any:
    if not isinstance(schema, Mapping):  # true: any value
        return str(rng.choice(words))
    schema = _one_schema(schema, root, rng)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return _one_of(schema["enum"], rng)
    named = sorted(kinds(schema, root) or {"string"})
    listed = schema.get("type", [one for one in named if not (one == "integer" and "number" in named)])
    match listed if isinstance(listed, str) else _one_of(listed, rng):
        case "object":
            return _object(schema, root, words, rng, depth)
        case "array":
            return _array(schema, root, words, rng, depth)
        case "integer":
            return int(_whole(schema, rng))
        case "number":
            return _number(schema, rng)
        case "boolean":
            return bool(rng.integers(2))
        case "null":
            return None
    return _text(schema, words, rng)


def _bounds(schema: Mapping[str, Any]) -> tuple[float, float]:
    """(smallest, largest) number of a schema; an exclusive bound is returned as if it were inclusive."""
    lows = [schema[key] for key in ("minimum", "exclusiveMinimum") if key in schema]
    highs = [schema[key] for key in ("maximum", "exclusiveMaximum") if key in schema]
    low, high = max(lows, default=None), min(highs, default=None)
    if low is None:
        low = 0 if high is None or high > 0 else high - LARGEST
    return low, low + LARGEST if high is None else high


def _whole(schema: Mapping[str, Any], rng: np.random.Generator) -> float:
    """A number in the range of the schema that is a multiple of its `multipleOf` (default 1)."""
    step, (low, high) = schema.get("multipleOf", 1), _bounds(schema)
    first, last = math.ceil(low / step), math.floor(high / step)
    first += schema.get("exclusiveMinimum") == first * step
    last -= schema.get("exclusiveMaximum") == last * step
    return float(step * rng.integers(first, max(first, last) + 1))


def _number(schema: Mapping[str, Any], rng: np.random.Generator) -> float:
    """A number, rounded to two decimals if the rounded number lies in the range."""
    if "multipleOf" in schema:
        return _whole(schema, rng)
    low, high = _bounds(schema)
    number = rng.uniform(low, high)
    short = round(number, 2)
    return float(short if low < short < high else number)


def _text(schema: Mapping[str, Any], words: Sequence[str], rng: np.random.Generator) -> str:
    text = str(rng.choice(words))
    while len(text) < schema.get("minLength", 0):
        text += f" {rng.choice(words)}"
    return text[: schema.get("maxLength")]


def _object(
    schema: Mapping[str, Any], root: Mapping[str, Any], words: Sequence[str], rng: np.random.Generator, depth: int
) -> dict[str, Any]:
    """All required entries, and each optional entry with probability 1/2."""
    required = schema.get("required", ())
    properties = schema.get("properties", {})
    allowed = [name for name, one in properties.items() if one is not False]
    names = [name for name in allowed if name in required or (depth < DEPTH and rng.integers(2))]
    return {name: _value(properties[name], root, words, rng, depth + 1) for name in names}


def _array(
    schema: Mapping[str, Any], root: Mapping[str, Any], words: Sequence[str], rng: np.random.Generator, depth: int
) -> list[Any]:
    items = schema.get("items", {})
    listed = schema.get("prefixItems", items if isinstance(items, list) else None)
    if listed is not None:
        return [_value(item, root, words, rng, depth + 1) for item in listed]
    low = schema.get("minItems", 0)
    high = min(schema.get("maxItems", LONGEST), LONGEST if depth < DEPTH else 0)
    count = int(rng.integers(low, max(low, high) + 1))
    return [_value(items, root, words, rng, depth + 1) for _ in range(count)]
