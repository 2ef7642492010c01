"""How a server's schema decides what an action is, and what a reply then means; tests/envs/foreign plays servers."""

import pytest

from agentrl.config import resolve
from agentrl.env import tasks_of
from agentrl.envs.openenv import adapter
from agentrl.tool import action as tool_action

MOVE = {
    "properties": {
        "move": {"$ref": "#/$defs/Move"},
        "why": {"type": "string", "default": ""},
        "metadata": {"type": "object"},
    },
    "required": ["move"],
    "$defs": {"Move": {"enum": ["up", "down", 3], "title": "Move"}},
}
CALL = {"properties": {"type": {"const": "call_tool"}, "tool_name": {}, "arguments": {}, "metadata": {}}}
PAIR = {"properties": {"left": {"type": "integer"}, "right": {"type": "integer"}}, "required": ["left", "right"]}


def form(schema, **options):
    return adapter._form(schema, {"field": "", "fixed": {}, **options})


@pytest.mark.parametrize(
    ("schema", "options", "found"),
    [
        (CALL, {}, ("tools", None)),
        ({"properties": {"metadata": {}}}, {}, ("tools", None)),  # OpenEnv's Action itself: any tool
        (MOVE, {}, ("field", "move")),
        (MOVE, {"field": "why"}, ("field", "why")),
        (PAIR, {}, ("json", None)),
        (PAIR, {"fixed": {"left": 1}}, ("field", "right")),
        ({"properties": {"only": {"type": "string"}}}, {}, ("field", "only")),
    ],
)
def test_the_schema_decides_the_form(schema, options, found):
    chosen = form(schema, **options)
    assert (chosen["form"], chosen.get("field")) == found


def test_a_field_that_the_action_lacks_is_named():
    with pytest.raises(ValueError, match="has no field 'mvoe': move, why"):
        form(MOVE, field="mvoe")
    with pytest.raises(ValueError, match="has no field 'first': left, right"):
        form(PAIR, fixed={"first": 1})


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (form(MOVE)["kind"], " up\n", "up"),
        (form(MOVE)["kind"], "3", 3),
        ({"type": "string"}, ' "as it is" ', ' "as it is" '),
        ({"type": "integer"}, "7", 7),
        ({"type": "number"}, "7.5", 7.5),
        ({"type": "boolean"}, "true", True),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "words", "words"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
    ],
)
def test_a_reply_is_the_value_of_a_field(kind, text, value):
    found = adapter._value(text, kind)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "text", "sentence"),
    [
        (form(MOVE)["kind"], "left", "write one of up, down, 3"),
        ({"type": "integer"}, "seven", "write "),
        ({"type": "integer"}, "true", "write a value of the type integer"),
        ({"type": "integer"}, "7.5", "write a value of the type integer"),
        ({"type": "boolean"}, "1", "write a value of the type boolean"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "seven", "write "),
    ],
)
def test_a_reply_of_another_type_is_told_what_to_write(kind, text, sentence):
    with pytest.raises(adapter.WrongAction, match=sentence):
        adapter._value(text, kind)


def test_the_calls_of_a_turn():
    assert adapter._read(tool_action.call("add", a=1)) == ([{"name": "add", "arguments": {"a": 1}}], None)
    assert adapter._read(tool_action.answer("42")) == ([], "42")
    assert adapter._read("no call at all") == ([], "no call at all")
    with pytest.raises(adapter.WrongAction, match="no JSON"):
        adapter._read('{"calls": [{"error": "no JSON"}]}')


def test_what_a_tool_says():
    content = [{"type": "text", "text": "3"}, {"type": "image", "data": "..."}]
    assert adapter._tool_text({"tool_name": "add", "result": {"content": content}}) == "3\n[image]"
    failed = {"tool_name": "add", "result": {"content": content[:1], "is_error": True}}
    assert adapter._tool_text(failed) == "error: 3" and adapter._failed(failed)
    lost = {"tool_name": "add", "result": None, "error": {"error_type": "timeout", "message": "too late"}}
    assert adapter._tool_text(lost) == "error: too late" and adapter._failed(lost)
    assert adapter._tool_text({"tool_name": "add", "result": {"sum": 3}}) == '{"sum": 3}'


def test_a_mistake_is_found_before_anything_is_started():
    with pytest.raises(ValueError, match=r"env.url is empty: give the address of an OpenEnv server"):
        tasks_of(resolve("envs", {"name": "openenv"}, "env"))
