"""Values without quotes (xml_parameters) are what the tool's schema says, and a text only if it allows a text."""

from typing import Any

import jinja2
import pytest
from hypothesis import given, settings, strategies as st

from agentrl.tool import Call, Calls, load_format

DEFS = {
    "Size": {"enum": ["1", "2"]},
    "Node": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/Node"}}},
    "Maybe": {"anyOf": [{"$ref": "#/$defs/Size"}, {"type": "null"}]},
}
TEXT, INTEGER, NUMBER, BOOLEAN, NULL = ({"type": t} for t in ("string", "integer", "number", "boolean", "null"))
OPTIONAL = {"anyOf": [TEXT, NULL]}
TEXTS = {"type": "array", "items": TEXT}


def form(schema: Any):
    root = {"type": "object", "properties": {"x": schema}, "$defs": DEFS}
    return load_format("xml_parameters", [{"type": "function", "function": {"name": "f", "parameters": root}}])


def written(text: str) -> str:
    return f"<tool_call>\n<function=f>\n<parameter=x>\n{text}\n</parameter>\n</function>\n</tool_call>"


def value(schema: Any, text: str) -> Any:
    (call,) = form(schema).parse(written(text)).calls
    return call.arguments["x"]


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        (TEXT, {"5": "5", "null": "null", "None": "None", "True": "True", '"q"': '"q"', "a < b & c": "a < b & c"}),
        (TEXT, {"\n\na\n": "\n\na\n", "": "", " a ": " a ", "<tool_call>": "<tool_call>", "&lt;": "&lt;"}),
        (OPTIONAL, {"94110": "94110", "true": "true", "[1]": "[1]", '{"a": 1}': '{"a": 1}', "007": "007", "": ""}),
        (OPTIONAL, {"null": None, "None": None, "Null": None}),  # as vLLM's parser of Qwen3-Coder reads them
        ({"type": ["string", "null"]}, {"5": "5", "null": None}),
        ({"type": "string", "nullable": True}, {"5": "5", "null": None}),
        (BOOLEAN, {"True": True, "false": False, "FALSE": False, "yes": "yes", "1": "1"}),
        (
            INTEGER,
            {"5": 5, "+5": 5, "007": 7, " -3 ": -3, "5.0": 5, "five": "five", "5.5": "5.5", "9" * 5000: "9" * 5000},
        ),
        (NUMBER, {"5": 5, ".5": 0.5, "5.": 5, "1e-05": 1e-05, "NaN": "NaN", "1e999": "1e999", "inf": "inf"}),
        ({"type": "integer", "maximum": 10}, {"50": 50}),  # the check of the arguments says that 50 is too large
        ({"anyOf": [{"type": "integer", "maximum": 10}, TEXT]}, {"94110": "94110", "9": 9}),
        ({"type": ["integer", "string"]}, {"94110": 94110, "007": "007", "x": "x"}),
        ({"type": ["boolean", "string"]}, {"True": True, "Truth": "Truth"}),
        ({"enum": ["1", "2"]}, {"1": "1", " 2 ": "2", "9": "9", '"1"': "1"}),
        ({"enum": ["1", 2, None, True]}, {"1": "1", "2": 2, "null": None, "True": True}),
        ({"enum": ["null", "true"]}, {"null": "null", "true": "true"}),
        ({"const": "5"}, {"5": "5"}),
        ({"const": 5}, {"5": 5}),
        ({"$ref": "#/$defs/Size"}, {"1": "1"}),
        ({"$ref": "#/$defs/Maybe"}, {"1": "1", "None": None}),
        ({"allOf": [{"$ref": "#/$defs/Size"}], "description": "d"}, {"2": "2"}),
        ({"$ref": "#/$defs/Node"}, {'{"v": 1, "next": {"v": 2}}': {"v": 1, "next": {"v": 2}}, "{'v': 1}": {"v": 1}}),
        (TEXTS, {'["a"]': ["a"], "['a', 'b']": ["a", "b"], "a, b": "a, b", "['it\\'s']": ["it's"]}),
        ({"type": "object"}, {"{'a': None, 'b': [True]}": {"a": None, "b": [True]}, "{'a': x}": "{'a': x}"}),
        ({"oneOf": [TEXTS, TEXT]}, {'["a"]': ["a"], "[1]": "[1]", "x": "x"}),
        ({"pattern": "^[0-9]+$"}, {"2026": "2026"}),
        ({}, {"5": "5", "null": "null"}),
        ({"description": "no type"}, {"[1]": "[1]"}),
        ({"anyOf": [TEXT, {}]}, {"5": "5"}),
    ],
)
def test_the_schema_decides_what_a_text_is(schema, texts):
    for text, wanted in texts.items():
        found = value(schema, text)
        assert (type(found), found) == (type(wanted), wanted), text[:40]


def test_arguments_that_only_a_branch_or_a_rule_for_others_names_have_kinds_too():
    roots = [
        {"oneOf": [{"properties": {"x": INTEGER}}, {"properties": {"y": TEXT}}]},
        {"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"x": INTEGER}}}},
        {"properties": {}, "additionalProperties": INTEGER},
        {"patternProperties": {"^x": INTEGER}},
    ]
    for root in roots:
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", **root}}}
        assert load_format("xml_parameters", [tool]).parse(written("5")).calls[0].arguments == {"x": 5}


TEMPLATES = {  # the lines of the templates of Qwen3-Coder and Qwen3.5 (str of a scalar), and of Qwen3.6 and 3.8 (JSON)
    "str": "{{ v | tojson if v is mapping or (v is sequence and v is not string) else v | string }}",
    "json": "{{ v | string if v is string else v | tojson }}",
}
WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=12)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
KINDS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "text": (TEXT, WORDS),
    "optional text": (OPTIONAL, st.none() | WORDS.filter(lambda t: t.strip().lower() not in ("null", "none"))),
    "integer": (INTEGER, st.integers()),
    "number": (NUMBER, st.integers(-(10**9), 10**9) | NUMBERS),
    "boolean": (BOOLEAN, st.booleans()),
    "optional integer": ({"anyOf": [INTEGER, NULL]}, st.none() | st.integers()),
    "texts": (TEXTS, st.lists(WORDS, max_size=3)),
    "object": ({"type": "object"}, st.dictionaries(WORDS, st.none() | st.booleans() | NUMBERS | WORDS, max_size=3)),
    "enumeration": ({"enum": ["1", 2, None, True, "x"]}, st.sampled_from(["1", 2, None, True, "x"])),
    "reference": ({"$ref": "#/$defs/Maybe"}, st.sampled_from(["1", "2", None])),
}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_call_that_a_template_writes_is_read_back(data):
    name = data.draw(st.sampled_from(sorted(KINDS)))
    schema, values = KINDS[name]
    given_value = data.draw(values)
    environment = jinja2.Environment(autoescape=False)
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False}
    reader = form(schema)
    call = Call(name="f", arguments={"x": given_value})
    for text in (
        reader.render(call),
        *(written(environment.from_string(t).render(v=given_value)) for t in TEMPLATES.values()),
    ):
        found = reader.parse(text).calls[0].arguments["x"]
        assert found == given_value and isinstance(found, bool) == isinstance(given_value, bool), text


def test_tags_inside_values_and_values_that_are_not_closed():
    two = {"type": "object", "properties": {"x": TEXT, "y": INTEGER}}
    reader = load_format("xml_parameters", [{"type": "function", "function": {"name": "f", "parameters": two}}])
    call = Call(name="f", arguments={"x": "</tool_call> <tool_call> <parameter=z> </parameter> .", "y": 1})
    assert reader.parse(reader.render(call)).calls[0].arguments == call.arguments
    broken = {
        "<tool_call><function=f><parameter=x>1\n<parameter=y>2</parameter></function></tool_call>": "'x' is not closed",
        "<tool_call><function=f><parameter=x>1</parameter></tool_call>": "not closed by </function> and </tool_call>",
        "<tool_call><function=f><parameter=x>1</parameter> so </function></tool_call>": "is not closed by </parameter>",
        "<tool_call><parameter=x>1</parameter></tool_call>": "holds no <function=NAME>",
    }
    for text, why in broken.items():
        found = reader.parse(text)
        assert why in found.errors[0].message and not found.calls, text
    words = "<tool_call><function=f><parameter=x>1</parameter> so </function></tool_call>"
    found = reader.parse(words + reader.render(call))
    assert "is no parameter" in found.errors[0].message and len(found.calls) == 1


def test_a_call_without_its_opening_tag_is_read_as_vllm_reads_it():
    reader = form(TEXT)
    bare = "<function=f>\n<parameter=x>\na\n</parameter>\n</function>"
    for text in (bare, f"{bare}\n</tool_call>", f"I look.\n{bare}"):
        assert reader.parse(text).calls[0].arguments == {"x": "a"}
    assert "is not opened by <tool_call>" in reader.parse(bare.replace("=f", "=g")).errors[0].message
    assert reader.parse("Write `<function=f>` first.") == Calls(answer="Write `<function=f>` first.")


def test_a_schema_that_cannot_be_read_names_its_tool():
    with pytest.raises(
        ValueError, match=r"the schema of the tool 'f' cannot be read: Unknown type 'strng' at properties\.x"
    ):
        form({"type": "strng"})
