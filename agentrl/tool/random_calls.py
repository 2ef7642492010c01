"""A random policy for tool environments: a call with random arguments of the right types, or a word as the answer."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentrl.tool import action as tool_action
from agentrl.tool.calls import function_of
from agentrl.types import Observation

ANSWERS = 0.3  # share of turns that give a final answer
LARGEST = 10  # if the schema sets no bounds, numbers are drawn from 0 to this number
LONGEST = 3  # largest number of items of a list, unless the schema's `minItems` is larger
DEPTH = 4  # values at this depth or deeper have no optional entries and only as many list items as the schema requires


def random_action(observation: Observation, rng: np.random.Generator) -> str:
    """A random action, written by `agentrl.tool.action`.

    Arguments keep the types, bounds and lengths of the schema, but not its `pattern` and `format`; texts are words of
    the observation.

    Raises:
        ValueError: the observation offers no tools.
    """
    if not observation.tools:
        raise ValueError("there is no tool to call at random")
    words = re.findall(r"\w+", observation.text) or ["nothing"]
    if rng.random() < ANSWERS:
        return tool_action.answer(str(rng.choice(words)))
    function = function_of(observation.tools[int(rng.integers(len(observation.tools)))])
    arguments = _value(function.get("parameters", {"type": "object"}), words, rng, 0)
    return tool_action.calls([(str(function["name"]), arguments)])


def _value(schema: Mapping[str, Any], words: Sequence[str], rng: np.random.Generator, depth: int) -> Any:
    if "enum" in schema:
        return schema["enum"][int(rng.integers(len(schema["enum"])))]
    if "anyOf" in schema:
        return _value(schema["anyOf"][int(rng.integers(len(schema["anyOf"])))], words, rng, depth)
    kind = schema.get("type", "string")
    kind = kind if isinstance(kind, str) else kind[int(rng.integers(len(kind)))]
    match kind:
        case "object":
            return _object(schema, words, rng, depth)
        case "array":
            return _array(schema, words, rng, depth)
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
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is None:
        low = 0 if high is None or high > 0 else high - LARGEST
    return low, low + LARGEST if high is None else high


def _whole(schema: Mapping[str, Any], rng: np.random.Generator) -> float:
    """A number in the range of the schema that is a multiple of its `multipleOf` (default 1)."""
    step, (low, high) = schema.get("multipleOf", 1), _bounds(schema)
    first, last = math.ceil(low / step), math.floor(high / step)
    first += "exclusiveMinimum" in schema and first * step == low
    last -= "exclusiveMaximum" in schema and last * step == high
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


def _object(schema: Mapping[str, Any], words: Sequence[str], rng: np.random.Generator, depth: int) -> dict[str, Any]:
    """All required entries, and each optional entry with probability 1/2."""
    required = schema.get("required", ())
    properties = schema.get("properties", {})
    names = [name for name in properties if name in required or (depth < DEPTH and rng.integers(2))]
    return {name: _value(properties[name], words, rng, depth + 1) for name in names}


def _array(schema: Mapping[str, Any], words: Sequence[str], rng: np.random.Generator, depth: int) -> list[Any]:
    if "prefixItems" in schema:
        return [_value(item, words, rng, depth + 1) for item in schema["prefixItems"]]
    low = schema.get("minItems", 0)
    high = min(schema.get("maxItems", LONGEST), LONGEST if depth < DEPTH else 0)
    count = int(rng.integers(low, max(low, high) + 1))
    return [_value(schema.get("items", {}), words, rng, depth + 1) for _ in range(count)]
