"""Chance as a player of tools: what it draws, a tool takes."""

from typing import Annotated, Literal

import numpy as np
import pytest
from pydantic import Field

from agentrl.tool import action as tool_action, json_checker, random_action, tool_spec
from agentrl.types import Observation

TYPES = {
    "below": Annotated[int, Field(le=-5)],
    "inside": Annotated[int, Field(gt=0, lt=4)],
    "threes": Annotated[int, Field(ge=1, multiple_of=3)],
    "share": Annotated[float, Field(gt=0, lt=1)],
    "narrow": Annotated[float, Field(gt=0.001, lt=0.002)],
    "halves": Annotated[float, Field(ge=-1, le=1, multiple_of=0.5)],
    "long": Annotated[str, Field(min_length=20)],
    "short": Annotated[str, Field(max_length=2)],
    "few": Annotated[list[int], Field(max_length=1)],
    "many": Annotated[list[bool], Field(min_length=5)],
    "one of": Literal["a", "b"],
    "either": int | str | None,
    "deep": dict[str, list[list[list[list[float]]]]],
}


@pytest.mark.parametrize("kind", TYPES)
def test_every_draw_is_taken_by_the_tool(kind):
    def tool(x):
        return ""

    tool.__annotations__ = {"x": TYPES[kind], "return": str}
    spec = tool_spec(tool)
    seen = Observation(text="some words to draw from", tools=(spec.schema,))
    drawn = []
    for seed in range(100):
        turn = tool_action.read(random_action(seen, np.random.default_rng(seed)), [spec.schema])
        drawn += [spec.check(call.arguments)["x"] for call in turn.items]
    assert len(drawn) > 50
    if kind not in ("narrow", "few", "deep"):
        assert len({str(one) for one in drawn}) > 1


def test_the_ends_of_a_range_are_drawn_and_no_number_beyond():
    def tool(x: Annotated[int, Field(gt=0, lt=4)]) -> str:
        return ""

    seen = Observation(text="", tools=(tool_spec(tool).schema,))
    turns = [tool_action.read(random_action(seen, np.random.default_rng(seed))) for seed in range(200)]
    assert {call.arguments["x"] for turn in turns for call in turn.items} == {1, 2, 3}


WHOLE, TEXT = {"type": "integer"}, {"type": "string"}
SCHEMAS = {
    "either": {
        "oneOf": [{"properties": {"id": WHOLE}, "required": ["id"]}, {"properties": {"n": TEXT}, "required": ["n"]}]
    },
    "some": {"properties": {"a": WHOLE, "b": TEXT, "never": False}, "minProperties": 1, "maxProperties": 2},
    "different": {"properties": {"a": {"items": WHOLE, "uniqueItems": True, "contains": {"minimum": 3}}}},
    "together": {"properties": {"a": WHOLE, "b": TEXT}, "dependentRequired": {"a": ["b"]}},
    "all": {"properties": {"a": {"allOf": [{**WHOLE, "minimum": 3}, {"maximum": 5}]}}, "required": ["a"]},
    "both bounds": {"properties": {"a": {**WHOLE, "minimum": -5, "exclusiveMinimum": 3, "exclusiveMaximum": 6}}},
    "draft 4": {
        "properties": {"a": {**WHOLE, "minimum": 3, "exclusiveMinimum": True, "maximum": 5}},
        "required": ["a"],
    },
    "nullable": {"properties": {"a": {**WHOLE, "nullable": True}}, "required": ["a"]},
    "reference": {"properties": {"a": {"$ref": "#/$defs/N"}}, "required": ["a"], "$defs": {"N": {"enum": ["1", 2]}}},
    "if": {
        "properties": {"kind": {"enum": ["a", "b"]}},
        "required": ["kind"],
        "if": {"properties": {"kind": {"const": "a"}}},
        "then": {"properties": {"x": WHOLE}, "required": ["x"]},
        "else": {"properties": {"y": {"const": "z"}}, "required": ["y"]},
    },
    "dependent": {"properties": {"a": {}}, "dependentSchemas": {"a": {"properties": {"b": WHOLE}, "required": ["b"]}}},
    "not": {"properties": {"a": TEXT, "b": TEXT}, "not": {"required": ["a", "b"]}},
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_draws_fit_composed_schemas(name):
    schema = {"type": "object", **SCHEMAS[name]}
    seen = Observation(text="some words", tools=({"function": {"name": "f", "parameters": schema}},))
    turns = [tool_action.read(random_action(seen, np.random.default_rng(seed))) for seed in range(40)]
    drawn = [dict(call.arguments) for turn in turns for call in turn.items]
    assert all(json_checker(schema).fits(arguments) for arguments in drawn)
    assert len({str(arguments) for arguments in drawn}) > 1
