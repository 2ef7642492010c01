"""Arguments are checked by the schemas that people write, in the draft in which they write them."""

import json
import socket
from typing import Any

import pytest

from agentrl.tool import inlined, json_checker, without_nullable
from agentrl.tool.json_schema import argument_schemas, kinds
from agentrl.tools._mcp_schema import checker, closed

INTEGER, TEXT = {"type": "integer"}, {"type": "string"}


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def needs(name: str, kind: dict[str, Any]) -> dict[str, Any]:
    return {**of(**{name: kind}), "required": [name]}


DRAFT = "http://json-schema.org/draft-0{}/schema#".format
RECURSIVE = of(a=INTEGER, n={"$ref": "#/$defs/A"})
EITHER = {"type": "object", "oneOf": [needs("id", INTEGER), needs("name", TEXT)]}
BY_KIND = {
    **needs("kind", {"enum": ["a", "b"]}),
    "if": {"properties": {"kind": {"const": "a"}}},
    "then": needs("x", INTEGER),
    "else": of(y=INTEGER),
}
# name -> (the schema, arguments that fit, arguments that do not)
SCHEMAS: dict[str, tuple[dict[str, Any], list[Any], list[Any]]] = {
    "oneOf": (EITHER, [{"id": 1}, {"name": "a"}], [{"id": 1, "x": 2}, {"id": 1, "name": "a"}, {}, {"id": "1"}]),
    "oneOf, draft 7": ({**EITHER, "$schema": DRAFT(7)}, [{"id": 1}], [{"id": 1, "x": 2}, {}]),
    "oneOf, draft 4": ({**EITHER, "$schema": DRAFT(4)}, [{"id": 1}], [{"id": 1, "x": 2}, {}]),
    "anyOf": ({"anyOf": [of(id=INTEGER), of(name=TEXT)]}, [{"id": 1, "name": "a"}], [{"z": 1}]),
    "allOf": ({"allOf": [of(a=INTEGER), of(b=TEXT)], **of(c={})}, [{"a": 1, "b": "x", "c": 1}], [{"a": 1, "d": 1}]),
    "if": (BY_KIND, [{"kind": "a", "x": 1}, {"kind": "b", "y": 1}], [{"kind": "a", "y": 1}, {"kind": "b", "x": 1}]),
    "dependent": (
        {**of(card={}), "dependentSchemas": {"card": needs("address", TEXT)}},
        [{}, {"card": 1, "address": "x"}],
        [{"card": 1}, {"address": "x"}],
    ),
    "dependencies": (
        {**of(a={}), "dependencies": {"a": needs("b", INTEGER)}, "$schema": DRAFT(7)},
        [{"a": 1, "b": 2}],
        [{"a": 1}],
    ),
    "not": ({**of(a={}, b={}), "not": {"required": ["a", "b"]}}, [{"a": 1}], [{"a": 1, "b": 1}, {"z": 1}]),
    "root reference": ({"$ref": "#/$defs/A", "$defs": {"A": needs("a", INTEGER)}}, [{"a": 1}], [{"b": 1}, {"a": ""}]),
    "recursion": (
        {"$ref": "#/$defs/A", "$defs": {"A": RECURSIVE}},
        [{"n": {"n": {"a": 1}}}],
        [{"b": 1}, {"n": {"a": ""}}],
    ),
    "recursion, draft 7": (
        {
            "$schema": DRAFT(7),
            "$ref": "#/definitions/A",
            "definitions": {"A": of(a=INTEGER, n={"$ref": "#/definitions/A"})},
        },
        [{"n": {"a": 1}}],
        [{"b": 1}, {"n": {"a": ""}}],
    ),
    "beside a reference": (
        {**of(a={"$ref": "#/$defs/N", "minimum": 5}), "$defs": {"N": {**INTEGER, "minimum": 0}}},
        [{"a": 6}],
        [{"a": 3}, {"a": "x"}],
    ),
    "reference by path": ({**of(a=INTEGER, b={"$ref": "#/properties/a"})}, [{"b": 6}], [{"b": "x"}]),
    "path that ends as a name": (
        {**of(a={"$ref": "#/$defs/A/properties/N"}), "$defs": {"N": TEXT, "A": of(N=INTEGER)}},
        [{"a": 6}],
        [{"a": "x"}],
    ),
    "anchor": ({**of(a={"$ref": "#n"}), "$defs": {"N": {"$anchor": "n", **INTEGER}}}, [{"a": 6}], [{"a": "x"}]),
    "exclusive, undeclared": (of(n={**INTEGER, "minimum": 0, "exclusiveMinimum": True}), [{"n": 1}], [{"n": 0}]),
    "exclusive, draft 4": (
        {**of(n={"minimum": 0, "exclusiveMinimum": True}), "$schema": DRAFT(4)},
        [{"n": 1}],
        [{"n": 0}],
    ),
    "exclusive, false": (of(n={"maximum": 5, "exclusiveMaximum": False}), [{"n": 5}], [{"n": 6}]),
    "exclusive beside const": (
        of(n={"maximum": 5, "exclusiveMaximum": True}, k={"const": "x"}),
        [{"n": 4, "k": "x"}],
        [{"n": 5}, {"k": "y"}],
    ),
    "nullable": (of(n={**INTEGER, "nullable": True}), [{"n": None}, {"n": 1}], [{"n": "x"}]),
    "nullable enum": (of(n={**TEXT, "enum": ["a"], "nullable": True}), [{"n": None}], [{"n": "b"}]),
    "nullable reference": (
        {**of(n={"$ref": "#/$defs/A", "nullable": True}), "$defs": {"A": INTEGER}},
        [{"n": None}],
        [{"n": ""}],
    ),
    "not nullable": (of(n={**INTEGER, "nullable": False}), [{"n": 1}], [{"n": None}]),
    "tuple of draft 7": (of(n={"type": "array", "items": [INTEGER, TEXT]}), [{"n": [1, "a"]}], [{"n": ["a", 1]}]),
    "draft 7 with https": (
        {**of(n={"items": [INTEGER]}), "$schema": "https://json-schema.org/draft-07/schema"},
        [{"n": [1]}],
        [{"n": ["a"]}],
    ),
    "open": ({**of(a={}), "additionalProperties": INTEGER}, [{"b": 1}], [{"b": "x"}]),
    "plain": (of(title=TEXT, a={"type": ["string", "null"]}), [{"title": "t", "a": None}], [{"b": 1}, {"a": 1}]),
    "letters of Unicode": (of(a={"pattern": r"^\p{L}+$"}), [{"a": "é"}], [{"a": "1"}]),
    "look-ahead": (of(a={"pattern": r"^(?=a)a$"}), [{"a": "zz"}], []),
    "names by a pattern": (
        {"type": "object", "patternProperties": {"^x-": TEXT, "^(?=n)": INTEGER}},
        [{"x-a": "b"}, {"n": "the server checks it"}],
        [{"x-a": 1}],
    ),
    "names by a pattern, closed": (
        {**of(a=INTEGER), "patternProperties": {"^x-": TEXT}, "additionalProperties": False},
        [{"a": 1, "x-a": "b"}],
        [{"b": 1}, {"x-a": 1}, {"a": "x"}],
    ),
    "names by a pattern and others": (
        of(o={"patternProperties": {"^x-": TEXT}, "additionalProperties": INTEGER}),
        [{"o": {"x-a": "b", "n": 1}}],
        [{"o": {"n": "b"}}],
    ),
    "names": ({"propertyNames": {"pattern": "^[a-z]+$"}, "additionalProperties": TEXT}, [{"a": "b"}], [{"A": "b"}]),
    "number of names": ({**of(a={}, b={}), "minProperties": 1, "maxProperties": 1}, [{"a": 1}], [{}, {"a": 1, "b": 1}]),
    "required names": (
        {**of(a=INTEGER, b=INTEGER), "dependentRequired": {"a": ["b"]}},
        [{"b": 1}, {"a": 1, "b": 1}],
        [{"a": 1}, {"c": 1}],
    ),
    "cents": (
        of(a={"type": "number", "multipleOf": 0.01}, b={"multipleOf": 0.1}),
        [{"a": 0.07}, {"a": 19.99}, {"a": 5}, {"a": 1e300}, {"b": 0.3}, {"b": "text"}],
        [{"a": 0.075}, {"a": 1e-9}, {"b": 0.25}],
    ),
    "schemas of OpenAPI": (
        {**of(a={"$ref": "#/components/schemas/A"}), "components": {"schemas": {"A": of(n=INTEGER)}}},
        [{"a": {"n": 1}}],
        [{"a": {"n": "x"}}],
    ),
    "name with signs": (
        {
            **of(a={"$ref": "#/$defs/List%5Bint%5D"}, b={"$ref": "#/$defs/a~1b"}),
            "$defs": {"List[int]": INTEGER, "a/b": TEXT},
        },
        [{"a": 1, "b": "x"}],
        [{"a": "x"}, {"b": 1}],
    ),
    "values of all kinds": (
        of(a={"enum": ["1", None, True, [1], {"x": 1}]}),
        [{"a": "1"}, {"a": None}, {"a": [1]}, {"a": {"x": 1}}],
        [{"a": 1}, {"a": False}, {"a": [1, 2]}],
    ),
    "format": (of(a={**TEXT, "format": "email"}), [{"a": "no address"}], [{"a": 1}]),
    "wrong default": (of(a={**INTEGER, "default": "x"}), [{}, {"a": 1}], [{"a": "x"}]),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_arguments_that_fit_pass_and_others_do_not(name):
    schema, right, wrong = SCHEMAS[name]
    check = checker("t", closed(inlined(schema)))
    for arguments in right:
        assert check(arguments) == arguments
    for arguments in wrong:
        with pytest.raises(ValueError, match=r"^t: "):
            check(arguments)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (of(a={"type": "strng"}), "Unknown type 'strng' at properties.a"),
        (of(a={"enum": "abc"}), "'abc' is not of type 'array' at properties.a.enum"),
        (of(a={"required": "yes"}), "'yes' is not of type 'array' at properties.a.required"),
        ({"properties": ["a"]}, "is not of type 'object' at properties"),
        (of(a={"$ref": "#/$defs/None"}), "Unresolvable: #/\\$defs/None"),
        ({"anyOf": [of(a={"$ref": "#/$defs/None"})]}, "Unresolvable: #/\\$defs/None"),
        (of(a={"$ref": "file:///etc/hostname"}), "Unresolvable: file:///etc/hostname"),
        (of(a={"pattern": "("}), "unterminated subpattern at position 0 in the pattern"),
        (
            {**of(a={"$ref": "#/$defs/A"}), "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}},
            "leads back",
        ),
    ],
)
def test_a_schema_by_which_nothing_can_be_checked_is_refused_at_once(schema, sentence):
    with pytest.raises(ValueError, match=sentence):
        json_checker(closed(inlined(schema)))


def test_no_schema_is_fetched_from_another_machine():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(0.2)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        with pytest.raises(ValueError, match=r"Unresolvable: http://127\.0"):
            json_checker(of(a={"$ref": address}))
        with pytest.raises(TimeoutError):
            server.accept()


def test_an_unknown_argument_is_named_and_a_failing_branch_is_no_second_mistake():
    check = checker("get", closed(EITHER))
    with pytest.raises(ValueError, match=r"^get: Unevaluated properties are not allowed \('x' was unexpected\)$"):
        check({"id": 1, "x": 2})
    with pytest.raises(
        ValueError, match=r"^get: \{'id': '1'\} is not valid under any of the given schemas \('1' is not"
    ):
        check({"id": "1"})


def test_inlining_keeps_data_that_looks_like_a_schema():
    data = {"title": "T", "$ref": "#/$defs/A", "$defs": 1}
    schema = {**of(a={"enum": [data], "default": data, "title": "A"}), "$defs": {"A": TEXT}}
    assert inlined(schema)["properties"] == {"a": {"enum": [data], "default": data}}
    both = inlined(
        {**of(a={"$ref": "#/$defs/A", "properties": {"y": TEXT}, "description": "d"}), "$defs": {"A": of(x=TEXT)}}
    )
    assert both["properties"]["a"] == {"allOf": [of(x=TEXT), {"properties": {"y": TEXT}}], "description": "d"}


def test_the_kinds_of_values_that_a_schema_names():
    root = {"$defs": {"Size": {"enum": ["1", 2]}, "Loop": {"anyOf": [INTEGER, {"$ref": "#/$defs/Loop"}]}}}
    assert kinds({"anyOf": [TEXT, {"type": "null"}]}, root) == {"string", "null"}
    assert kinds({"$ref": "#/$defs/Size", "nullable": True}, root) == {"string", "integer", "null"}
    assert kinds({"allOf": [{"type": ["string", "integer"]}, {"type": "number"}]}, root) == {"integer"}
    assert kinds({"const": True}, root) == {"boolean"} and kinds({"items": TEXT}, root) == {"array"}
    assert kinds({}, root) is kinds({"description": "d"}, root) is kinds({"anyOf": [TEXT, {}]}, root) is None
    assert set(argument_schemas(BY_KIND)) == {"kind", "x", "y"} and set(argument_schemas(EITHER)) == {"id", "name"}


def test_nullable_in_the_words_of_json_schema():
    assert without_nullable(of(a={**INTEGER, "nullable": True}))["properties"]["a"] == {"type": ["integer", "null"]}
    written = without_nullable({"anyOf": [TEXT], "nullable": True, "description": "d"})
    assert written == {"anyOf": [{"anyOf": [TEXT]}, {"type": "null"}], "description": "d"}
    assert json.dumps(without_nullable(of(a={**TEXT, "nullable": False}))) == json.dumps(of(a=TEXT))


def test_how_deep_a_value_may_be_does_not_depend_on_the_caller():
    check = checker(
        "t",
        closed({**of(a={"$ref": "#/$defs/n"}), "$defs": {"n": of(k={"items": {"anyOf": [{"$ref": "#/$defs/n"}]}})}}),
    )

    def nested(depth: int) -> dict[str, Any]:
        return {"k": [nested(depth - 1)]} if depth else {}

    def called_at(depth: int, value: Any) -> Any:
        return called_at(depth - 1, value) if depth else check({"a": value})

    for depth in (0, 300):
        assert called_at(depth, nested(30))
        with pytest.raises(ValueError, match="nested too deeply"):
            called_at(depth, nested(60))
