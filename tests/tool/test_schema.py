"""Schemas equal transformers' where that one works; arguments are checked strictly."""

import enum
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal, NotRequired

import numpy as np
import pytest
from pydantic import BaseModel, Field
from transformers.utils import get_json_schema
from typing_extensions import TypedDict

from agentrl.tool import as_words, json_checker, tool_spec, tool_specs


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


def plain(a: int, b: float, c: str, d: bool) -> str:
    """Do something.

    Args:
        a: the first
        b: the second,
            on two lines
        c: the third
        d: the last

    Returns:
        What came of it.
    """
    return ""


def optional(a: int = 3, b: str | None = None, c: int | str = 1, d: list[int] | None = None) -> list[str]:
    """First line.

    More of it
    on more lines.

    Args:
        a: a
        b: b
        c: c
        d: d
    """
    return []


def nested(a: list[dict[str, float]], b: dict[str, Any], c: tuple[int, str], d: dict, e: Any) -> None:
    """Nested.

    Args:
        a: a
        b: b
        c: c
        d: d
        e: e
    """


def chosen(a: Literal["x", "y"], b: Literal[1, "one", None], c: Color, d: str) -> Point:
    """Choose.

    Args:
        a: a
        b: b
        c: c
        d: tea or coffee (choices: ["tea", "coffee"])
    """
    return Point(0)


def nothing() -> int:
    """No argument at all."""
    return 0


class Holder:
    def method(self, a: int) -> str:
        """A method.

        Args:
            a: its argument
        """
        return ""


@pytest.mark.parametrize("function", [plain, optional, nested, chosen, nothing, Holder().method, Holder.method])
def test_the_schema_is_that_of_transformers(function):
    wanted = get_json_schema(function)
    if function is chosen and "enum" not in wanted["function"]["parameters"]["properties"]["c"]:
        pytest.skip("transformers 5.16 does not know enumerations")
    assert tool_spec(function).schema == wanted


def bounded(n: Annotated[int, Field(ge=1, le=9)], at: Point, many: tuple[int, ...] = (), title: str = "") -> str:
    return f"{n} {at} {many}"


def test_what_transformers_refuses_or_loses_is_kept():
    with pytest.raises(Exception, match="docstring"):
        get_json_schema(bounded)
    function = tool_spec(bounded).schema["function"]
    assert function["description"] == "" and function["parameters"]["required"] == ["n", "at"]
    properties = function["parameters"]["properties"]
    assert properties["n"] == {"type": "integer", "minimum": 1, "maximum": 9}
    assert properties["at"]["properties"] == {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}}
    assert properties["many"] == {"type": "array", "items": {"type": "integer"}}
    assert properties["title"] == {"type": "string"}
    assert tool_spec(bounded).parameters["additionalProperties"] is False


def test_json_values_become_what_the_function_takes_and_defaults_are_its_own():
    assert tool_spec(bounded).check({"n": 2, "at": {"x": 1}, "many": [1, 2]}) == {
        "n": 2,
        "at": Point(1, 0),
        "many": (1, 2),
    }
    assert tool_spec(chosen).check({"a": "x", "b": None, "c": "red", "d": "tea"})["c"] is Color.RED
    assert tool_spec(optional).check({}) == {}


@pytest.mark.parametrize(
    ("function", "arguments", "sentence"),
    [
        (
            plain,
            {"a": "1", "b": 1, "c": "", "d": True},
            "plain: argument 'a' is \"1\": input should be a valid integer",
        ),
        (plain, {"a": True, "b": 1, "c": "", "d": True}, "argument 'a' is true"),
        (plain, {"a": 1.0, "b": 1, "c": "", "d": True}, "argument 'a' is 1.0"),
        (plain, {"a": 1, "b": "x", "c": 2, "d": 0}, "'b' is \"x\".*; argument 'c' is 2.*; argument 'd' is 0"),
        (plain, {"a": 1, "b": 1, "c": ""}, "plain: argument 'd' is missing"),
        (plain, {"a": 1, "b": 1, "c": "", "d": True, "aa": 1}, "there is no argument 'aa': did you mean a?"),
        (nothing, {"x": 1}, "there is no argument 'x': known are none"),
        (bounded, {"n": 10, "at": {"x": 1}}, "argument 'n' is 10: input should be less than or equal to 9"),
        (bounded, {"n": 1, "at": {"x": 1, "z": 2}}, "at"),
        (chosen, {"a": "z", "b": 1, "c": "green", "d": "milk"}, "'a' is \"z\".*'c' is \"green\".*'d' is \"milk\""),
        (plain, {"a": 1, "b": 1, "c": "\ud800", "d": True}, "plain"),
    ],
)
def test_wrong_arguments_are_named_with_their_values(function, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        tool_spec(function).check(arguments)


class Tree(BaseModel):
    label: str
    parts: "list[Tree]" = Field(default_factory=list)


class Options(TypedDict):
    depth: int
    note: NotRequired[str]


def fields(
    count: int = Field(default=1, ge=1, le=9, description="how many"),
    names: list[str] = Field(default_factory=list, max_length=2),  # noqa: B008  as pydantic's users write it
    share: Annotated[float, Field(gt=0, default=0.5)] = Field(lt=1),
    word: str = Field("a", pattern="^a+$"),
) -> str:
    """Take four.

    Args:
        word: letters
    """
    return f"{count} {names} {share} {word}"


def test_fields_in_signatures_give_bounds_defaults_and_descriptions():
    spec = tool_spec(fields)
    shown = spec.schema["function"]["parameters"]
    assert "required" not in shown
    assert shown["properties"]["count"] == {"type": "integer", "minimum": 1, "maximum": 9, "description": "how many"}
    assert shown["properties"]["word"] == {"type": "string", "pattern": "^a+$", "description": "letters"}
    assert spec.check({}) == {"count": 1, "names": [], "share": 0.5, "word": "a"}
    assert fields(**spec.check({"count": 2})) == "2 [] 0.5 a"
    assert spec.check({})["names"] is not spec.check({})["names"]
    for wrong in ({"count": 0}, {"count": 10}, {"names": ["a"] * 3}, {"share": 0}, {"share": 1}, {"word": "b"}):
        with pytest.raises(ValueError, match=f"fields: argument '{next(iter(wrong))}' is"):
            spec.check(wrong)
        assert not json_checker(shown).fits(wrong) and not json_checker(spec.parameters).fits(wrong)


def needed(count: int = Field(ge=1), more: Annotated[int, Field(ge=1)] = 3) -> int:
    return count + more


def test_a_field_without_a_default_must_be_given_and_a_plain_default_is_the_functions_own():
    spec = tool_spec(needed)
    assert spec.schema["function"]["parameters"]["required"] == ["count"]
    assert spec.check({"count": 1}) == {"count": 1} and needed(**spec.check({"count": 1})) == 4
    with pytest.raises(ValueError, match="argument 'count' is missing"):
        spec.check({})


def nest(tree: Tree, trees: dict[str, Tree], options: Options, many: list[Tree] | None = None) -> str:
    return ""


def test_definitions_of_nested_types_stand_where_the_references_point():
    spec = tool_spec(nest)
    shown = spec.schema["function"]["parameters"]
    assert list(shown["$defs"]) == ["Tree"] and "$ref" in json.dumps(shown["properties"])
    right = {"tree": {"label": "a", "parts": [{"label": "b"}]}, "trees": {"x": {"label": "c"}}, "options": {"depth": 1}}
    assert spec.check({**right, "many": None})["tree"] == Tree(label="a", parts=[Tree(label="b")])
    wrong = [
        {"tree": {"label": "a", "parts": [{"label": 1}]}},
        {"trees": {"x": {"label": 1}}},
        {"options": {"depth": "1"}},
        {"many": [{"label": 1}]},
    ]
    for parameters in (shown, spec.parameters):
        check = json_checker(parameters)
        assert check.fits(right) and not any(check.fits({**right, **one}) for one in wrong)
    for one in wrong:
        with pytest.raises(ValueError, match=f"argument '{next(iter(one))}"):
            spec.check({**right, **one})


def aliased(a: int = Field(alias="b")) -> str:
    return ""


def misspelt(a: str) -> str:
    """Choose.

    Args:
        a: tea (choices: [tea, coffee])
    """
    return ""


def untyped(a, b: int) -> str:
    return ""


def starred(*a: int) -> str:
    return ""


def unresolved(a: "Missing") -> str:  # type: ignore[name-defined]  # noqa: F821
    return ""


def beyond(a: Holder) -> str:
    return ""


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (untyped, "tool untyped: argument 'a' has no type hint"),
        (starred, "cannot be given by name"),
        (aliased, "tool aliased: argument 'a' has an alias"),
        (misspelt, "tool misspelt: argument 'a' has choices in its docstring that are no JSON list"),
        (unresolved, "a type hint cannot be resolved"),
        (beyond, "a type hint cannot be written as JSON"),
        (lambda x: x, "'<lambda>' is no name for a tool"),
    ],
)
def test_functions_that_cannot_be_tools_are_refused_in_one_sentence(function, sentence):
    with pytest.raises(ValueError, match=sentence):
        tool_spec(function)


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two tools are named 'plain'"):
        tool_specs([plain, plain])


class Named:
    name = "look_up"

    async def __call__(self, query: str) -> str:
        """Look something up."""
        return query


def test_an_object_with_a_typed_call_is_a_tool_and_may_wait():
    spec = tool_spec(Named())
    assert (spec.name, spec.waits, spec.schema["function"]["description"]) == ("look_up", True, "Look something up.")


def test_what_a_tool_returns_is_written_as_text():
    values = ["text", None, 3, True, [1, "ü"], {"a": None}, Point(1, 2), object]
    texts = ["text", "", "3", "true", '[1, "ü"]', '{"a": null}', '{"x": 1, "y": 2}', str(object)]
    assert [as_words(value) for value in values] == texts


def test_what_a_tool_returns_may_hold_what_json_lacks():
    values = [
        [Point(1, 2)],
        {"c": Color.RED},
        {"b", "a"},
        np.arange(3),
        (i for i in "ab"),
        b"\xffx",
        {1: date(2026, 1, 2)},
    ]
    texts = [
        '[{"x": 1, "y": 2}]',
        '{"c": "red"}',
        '["a", "b"]',
        "[0, 1, 2]",
        '["a", "b"]',
        "\ufffdx",
        '{"1": "2026-01-02"}',
    ]
    assert [as_words(value) for value in values] == texts
    assert as_words("a\ud800b") == "a?b"  # no tokenizer takes half of a surrogate pair
    assert as_words({(1, 2): 3}) == "{(1, 2): 3}"


async def yields(n: int) -> AsyncIterator[int]:
    yield n


def test_a_tool_that_yields_is_refused():
    with pytest.raises(ValueError, match="tool yields: it is a generator, and a call has one result"):
        tool_spec(yields)
