"""Call formats: what is rendered is read back, what is broken is said, and nothing ever raises."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from transformers.utils.chat_parsing import parse_response

from agentrl.tool import Call, Calls, Malformed, Span, calls
from agentrl.tool.calls._expression import read_expression, write_expression


def schema(name: str, required: tuple[str, ...] = (), **types: str) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in types.items()}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}


MANY = [schema("add", a="integer", b="number"), schema("search", ("query",), query="string", k="integer")]
ONE = [schema("search", ("query",), query="string")]
CODE = [schema("python", ("code",), code="string")]
SCHEMAS = {"fenced": CODE, "search_r1": ONE, "action": MANY}


def load(name: str) -> calls.Format:
    return calls.load_format(name, SCHEMAS.get(name, MANY))


def called(found: Calls) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, dict(call.arguments)) for call in found.calls]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
NAME = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.builds(lambda n, a: Call(name=n, arguments=a), NAME, st.dictionaries(NAME, VALUE, max_size=3)),
        min_size=1,
        max_size=3,
    )
)
def test_hermes_and_llama_calls_are_read_back(wanted):
    for name, joint in (("hermes", " and then "), ("llama_json", "; ")):
        form = load(name)
        text = joint.join(map(form.render, wanted))
        if "</think>" in text:
            continue
        found = form.parse(text)
        assert called(found) == [(c.name, dict(c.arguments)) for c in wanted] and not found.errors
        assert [form.parse(text[a:b]).calls[0].name for a, b in found.spans] == [c.name for c in wanted]


@settings(max_examples=60, deadline=None)
@given(TEXT.filter(lambda t: "<" not in t and "`" not in t), st.integers(), st.integers(-99, 99))
def test_the_other_formats_are_read_back(text, a, b):
    add = Call(name="add", arguments={"a": a, "b": b + 0.5})
    search = Call(name="search", arguments={"query": text})
    for name, call in (("xml_parameters", add), ("xml_parameters", search), ("action", add), ("action", search)):
        assert called(load(name).parse(load(name).render(call))) == [(call.name, dict(call.arguments))]
    code = Call(name="python", arguments={"code": text.replace("\r", "")})
    assert called(load("fenced").parse(load("fenced").render(code))) == [("python", dict(code.arguments))]
    stripped = Call(name="search", arguments={"query": text.strip()})
    assert called(load("search_r1").parse(load("search_r1").render(stripped))) == [("search", dict(stripped.arguments))]


@pytest.mark.parametrize("name", calls.format_names())
def test_a_final_answer_is_read_back_with_the_thinking_left_out(name):
    form = load(name)
    assert form.parse("<think>hm</think>\n" + form.answer("It is 42.")) == Calls(answer="It is 42.")


PIECES = [
    "<tool_call>",
    "</tool_call>",
    "<function=add>",
    "</function>",
    "<parameter=a>",
    "</parameter>",
    "{",
    "}",
    '"',
    "\\",
    '{"name": "add", "arguments": {"a": 1}}',
    '{"name": "add", "parameters": {}}',
    "<think>",
    "</think>",
    "<search>",
    "</search>",
    "<answer>",
    "</answer>",
    "```python\n",
    "\n```\n",
    "<action>",
    "</action>",
    "add(a=1, b=2)",
    "add(",
    "NaN",
    "[" * 300,
    ";",
    "<|python_tag|>",
    "'",
    "9" * 5000,
    "\x00",
    "\ud800",
    "\\ud800",
    "1e999",
    "-" * 600,
    "say(t='",
    "ü",
    "\n",
]


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=12).map("".join))
def test_no_text_makes_a_parser_raise_and_spans_lie_in_the_text_in_order(text):
    for name in calls.format_names():
        found = load(name).parse(text)
        assert (found.answer is None) == bool(found.items)
        assert all(item.message for item in found.errors)
        ends = [0, *(end for span in found.spans for end in span)]
        assert ends == sorted(ends) and ends[-1] <= len(text)
        for call in found.calls:  # the span holds the call, all of it and nothing else
            part = text[slice(*call.span)]
            assert "</think>" in part or load(name).parse(part).items == (replace(call, span=Span(0, len(part))),)
            json.dumps(dict(call.arguments), allow_nan=False)


@pytest.mark.parametrize("name", ["hermes", "llama_json", "xml_parameters", "action"])
@pytest.mark.parametrize(
    "value", ['"\\ud800"', '{"\\ud800": 1}', "1e999", "[-1e999]", "[" * 150 + "]" * 150, "-" * 900 + "1"]
)
def test_values_that_cannot_be_stored_or_written_again_are_no_calls(name, value):
    """Each would otherwise stop the run, not the episode: no encoder takes half a pair, no JSON infinity."""
    texts = {
        "hermes": '<tool_call>{"name": "add", "arguments": {"a": %s}}</tool_call>',
        "llama_json": '{"name": "add", "parameters": {"a": %s}}',
        "xml_parameters": "<tool_call><function=add><parameter=a>%s</parameter></function></tool_call>",
        "action": "<action>add(a=%s)</action>",
    }
    found = load(name).parse(texts[name] % value)
    if name == "xml_parameters":  # bare text stays text, which the strict check of arguments refuses
        assert found.calls[0].arguments == {"a": value}
    else:
        assert not found.calls and "not valid" in found.errors[0].message
        found.errors[0].message.encode()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('<tool_call>{"name": "add", "arguments": {"a": 1}', "delimiter"),
        ('<tool_call>{"name": "add", "arguments": {"a": 1}}', "not closed by </tool_call>"),
        ("<tool_call>{'name': 'add'}</tool_call>", "property name enclosed in double quotes"),
        ('<tool_call>{"arguments": {}}</tool_call>', 'no "name"'),
        ('<tool_call>{"name": 3, "arguments": {}}</tool_call>', '"name" is no text'),
        ('<tool_call>{"name": "add", "arguments": "{}"}</tool_call>', '"arguments" is a text, not an object'),
        ('<tool_call>[{"name": "add"}]</tool_call>', "it is a list, not an object"),
        ('<tool_call>{"name": "add", "arguments": {"a": NaN}}</tool_call>', "NaN is no JSON"),
        ('<tool_call>{"name": "add", "arguments": {"a": 1, "a": 2}}</tool_call>', "'a' occurs twice"),
        ('<tool_call>{"name": "add", "args": {}}</tool_call>', '"args" does not belong there'),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "nested too deeply|expecting value"),
        ("<tool_call></tool_call>", "expecting value"),
    ],
)
def test_a_broken_call_is_one_error_that_says_why_and_what_to_write(text, why):
    found = load("hermes").parse("I will call. " + text)
    (item,) = found.items
    assert isinstance(item, Malformed) and '{"name": "...", "arguments": {...}}' in item.message
    assert pytest.importorskip("re").search(why, item.message), item.message
    assert item.span == Span(13, 13 + len(text))


def test_calls_and_broken_calls_keep_their_order_and_an_end_tag_in_a_string_is_text():
    good = '<tool_call>{"name": "search", "arguments": {"query": "</tool_call>"}}</tool_call>'
    found = load("hermes").parse(f"{good}<tool_call>oops</tool_call> {good}")
    assert [type(item).__name__ for item in found.items] == ["Call", "Malformed", "Call"]
    assert found.calls[0].arguments == {"query": "</tool_call>"} and len(found.errors) == 1


def test_calls_inside_the_thinking_are_not_made():
    call = '<tool_call>{"name": "add", "arguments": {}}</tool_call>'
    assert called(load("hermes").parse(f"<think>maybe {call}</think> {call}")) == [("add", {})]
    unclosed = load("hermes").parse(f"<think>maybe {call}")
    assert "not closed by </think>" in unclosed.errors[0].message and not unclosed.calls


def test_llama_json_that_is_no_call_is_an_answer():
    assert load("llama_json").parse('{"total": 3}') == Calls(answer='{"total": 3}')
    assert load("llama_json").parse("{x} is a set") == Calls(answer="{x} is a set")
    assert "words follow" in load("llama_json").parse('{"name": "add", "parameters": {}} done').errors[0].message
    assert called(load("llama_json").parse('<|python_tag|>{"name": "add", "parameters": {"a": 1}}')) == [
        ("add", {"a": 1})
    ]


def test_xml_values_are_typed_by_the_schema():
    text = "<tool_call>\n<function=%s>\n<parameter=%s>\n%s\n</parameter>\n</function>\n</tool_call>"
    form = load("xml_parameters")
    assert called(form.parse(text % ("add", "a", "5"))) == [("add", {"a": 5})]
    assert called(form.parse(text % ("search", "query", "5"))) == [("search", {"query": "5"})]
    assert called(form.parse(text % ("add", "a", "five"))) == [("add", {"a": "five"})]  # the strict check refuses it
    assert called(form.parse(text % ("search", "query", "two\nlines"))) == [("search", {"query": "two\nlines"})]
    assert (
        "occurs twice"
        in form.parse(
            "<tool_call><function=f><parameter=a>1</parameter><parameter=a>2</parameter></function></tool_call>"
        )
        .errors[0]
        .message
    )


def test_search_r1_takes_the_first_pair_and_answers_the_rest_with_its_own_words():
    form = load("search_r1")
    found = form.parse("<think>x</think><search> who? </search> <answer>me</answer>")
    assert called(found) == [("search", {"query": "who?"})]
    assert form.parse("so <answer> Beijing </answer>") == Calls(answer="Beijing")
    assert form.parse("Beijing").errors[0].message.startswith("My previous action is invalid. If I want to search")
    assert form.stop == ("</search>", "</answer>")


def test_fenced_code_and_actions():
    text = "Let me see.\n```python\nprint(1)\n\nprint(2)\n```\nand\n```text\nno code\n```\n"
    assert called(load("fenced").parse(text)) == [("python", {"code": "print(1)\n\nprint(2)"})]
    assert "not closed" in load("fenced").parse("```python\nprint(1)").errors[0].message
    assert called(load("action").parse("<action>add(1, b=2)</action><action>search('x')</action>")) == [
        ("add", {"a": 1, "b": 2}),
        ("search", {"query": "x"}),
    ]
    assert "not valid" in load("action").parse("<action>go north</action>").errors[0].message
    single = calls.load_format("action", ONE)
    assert called(single.parse("<action>capital of France</action>")) == [("search", {"query": "capital of France"})]
    assert called(single.parse("<action>print('x')</action>")) == [("search", {"query": "print('x')"})]
    windows = "Run:\r\n```python\r\na = 1\r\nb = 2\r\n```\r\n"
    assert called(load("fenced").parse(windows)) == [("python", {"code": "a = 1\nb = 2"})]


def test_llama_models_may_say_that_it_is_a_function():
    text = '{"type": "function", "name": "add", "parameters": {"a": 1}}'
    assert called(load("llama_json").parse(text)) == [("add", {"a": 1})]
    assert '"type" does not belong' in load("llama_json").parse(text.replace('"function"', '"tool"')).errors[0].message


def test_an_end_tag_in_a_text_of_an_action_is_escaped():
    call = Call(name="search", arguments={"query": "a</action>\\</action>'b"})
    text = load("action").render(call)
    assert text.count("</action>") == 1 and called(load("action").parse(text)) == [("search", dict(call.arguments))]


@pytest.mark.parametrize(
    "text",
    ["add(a=1)(2)", "add.x()", "a+b", "add(**x)", "add(a=print())", "add(a=1, a=2)", "add(1, a=1)", "add(1,2,3)"],
)
def test_expressions_are_literals_only(text):
    with pytest.raises(ValueError, match=r"call|argument|cannot|literal|text|Name|number|repeated"):
        read_expression(text, MANY)


def test_expressions_are_read_back():
    call = Call(name="add", arguments={"a": [1, {"x": None}], "b": "it's"})
    assert read_expression(write_expression(call), MANY) == call
    assert read_expression("add(a=true, b=null)", []).arguments == {"a": True, "b": None}


def test_formats_that_cannot_call_the_tools_are_refused():
    with pytest.raises(ValueError, match=r"fenced needs exactly one tool.*the tools are add, search: use hermes"):
        calls.load_format("fenced", MANY)
    with pytest.raises(ValueError, match=r"search_r1 cannot call add: .* one text"):
        calls.load_format("search_r1", MANY)
    for odd, what in (
        (schema("my-tool"), "tool 'my-tool'"),
        (schema("f", **{"from": "string"}), "argument of f 'from'"),
    ):
        with pytest.raises(ValueError, match=f"action writes calls as Python does, which cannot name the {what}"):
            calls.load_format("action", [odd])
    with pytest.raises(ValueError, match="unknown call format 'hermse': did you mean hermes"):
        calls.load_format("hermse", MANY)
    with pytest.raises(ValueError, match="cannot be imported"):
        calls.load_format("no.such.module", MANY)


QWEN = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open_pattern": r"\s*<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"\s*(?:<\|im_end\|>)", "content": "text"},
    },
}
QWEN_XML = {
    **QWEN,
    "fields": {
        "tool_calls": {
            "open_pattern": r"\s*<tool_call>\s*<function=(?P<name>[^>\n]+)>",
            "close_pattern": r"</function>\s*</tool_call>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {"tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\s*(?P<value>.*?)\s*</parameter>"},
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": QWEN["fields"]["content"],
    },
}


@pytest.mark.parametrize(("name", "template"), [("hermes", QWEN), ("xml_parameters", QWEN_XML)])
def test_valid_calls_are_read_as_transformers_reads_them(name, template):
    wanted = [
        Call(name="add", arguments={"a": 2, "b": 0.5}),
        Call(name="search", arguments={"query": "who is it?", "k": 3}),
    ]
    form = load(name)
    text = "I will call two tools.\n" + "\n".join(map(form.render, wanted))
    message = parse_response(f"{text}<|im_end|>", template, prefix="<|im_start|>assistant\n", tools=MANY)
    theirs = [(c["function"]["name"], c["function"]["arguments"]) for c in message["tool_calls"]]
    assert theirs == called(form.parse(text)) == [(c.name, dict(c.arguments)) for c in wanted]
