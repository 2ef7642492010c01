"""A call in a wrong form never ends an episode, and an answer that only speaks of a tool does."""

import time
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from agentrl.env import Parsed
from agentrl.tool import Call, Calls, action as tool_action, load_format
from agentrl.tool_env import ToolWords
from agentrl.types import Observation, Status


def tool(name: str, **types: str) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in types.items()}
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": parameters}}


TOOLS = [tool("get", q="string", k="integer"), tool("sqrt", x="number"), tool("list_files")]
CODE = [tool("python", code="string")]
FORMATS = ["hermes", "llama_json", "xml_parameters", "action"]
JSON = '{"name": "get", "arguments": {"q": "a"}}'
MEANT = [
    JSON,
    JSON.replace("arguments", "parameters"),
    f"I will look.\n{JSON}",
    f"I will look: {JSON}",
    f"{JSON}\nNow I wait.",
    f"```json\n{JSON}\n```",
    f"Sure:\n```tool_call\n{JSON}\n```\nI wait for the result.",
    f"> {JSON}",
    f"Call: `{JSON}`",
    f"<think>hm</think>\n{JSON}",
    f"hm</think>\n{JSON}",
    f"[{JSON}]",
    f"[{JSON}, {JSON}]",
    f"{JSON}\n</tool_call>",
    JSON.replace('"a"}', '"a",}'),
    JSON.removesuffix("}"),
    JSON.replace('"', "'"),
    JSON.replace('{"q": "a"}', '"{\\"q\\": \\"a\\"}"'),
    JSON.replace('"get"', '"functions.get"'),
    '{"type": "function", "function": {"name": "get", "parameters": {"q": "a"}}}',
    '{"tool_calls": [{"id": "1", "type": "function", "function": {"name": "get", "arguments": "{}"}}]}',
    '{"tool_uses": [{"recipient_name": "functions.get", "parameters": {"q": "a"}}]}',
    '{"tool": "get", "args": {"q": "a"}}',
    '{"action": "get", "action_input": {"q": "a"}}',
    '{"name": "get", "q": "a"}',
    '{"name": "get"}',
    '{"get": {"q": "a"}}',
    'get {"q": "a"}',
    'get: {"q": "a"}',
    'get\n{"q": "a"}',
    'functions.get:0 {"q": "a"}',
    'get(q="a")',
    'get({"q": "a"})',
    '[get(q="a")]',
    'Action: get(q="a")',
    'I look.\nget(q="a")',
    'functions.get("a")',
    "list_files()",
    '```tool_code\nget(q="a")\n```',
    'Thought: hm\nAction: get\nAction Input: {"q": "a"}',
    "<tool_call>get\n<arg_key>q</arg_key>\n<arg_value>a</arg_value>\n</tool_call>",
    '<|python_tag|>get.call(q="a")',
    f"I do <|python_tag|>{JSON}",
    f"[TOOL_CALLS] [{JSON}]",
    '<|tool_call_begin|>functions.get:0<|tool_call_argument_begin|>{"q": "a"}<|tool_call_end|>',
    '<\uff5ctool\u2581calls\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>get\n```json\n{"q": "a"}\n```',
    '<|tool_call_start|>[get(q="a")]<|tool_call_end|>',
    '<minimax:tool_call>\n<invoke name="get">\n<parameter name="q">a</parameter>\n</invoke>\n</minimax:tool_call>',
    '<function=get>{"q": "a"}</function>',
    '<|channel|>commentary to=functions.get <|constrain|>json<|message|>{"q": "a"}',
    "<get>\n<q>a</q>\n</get>",
    '<get q="a"/>',
    '<tool>get</tool><args>{"q": "a"}</args>',
    # pythonic calls of Llama 3.2 and 4, Gemini, Gemma
    '[get(q="a"), sqrt(x=2)]',
    'get(q="a")\nget(q="b")',
    'get(q="a"); list_files()',
    '```tool_code\nprint(default_api.get(q="a"))\n```',
    'await tools.get(q="a")  # look',
    'get(q="it"s")',
    'get(q="a")\n\nI wait for its result.',
    f"functools[{JSON}]",
    # the keys of other agents and servers
    '{"thought": "hm", "action": "get", "action_input": "a"}',
    '{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "get", "arguments": "{}"}}]}',
    '[{"type": "text", "text": "hm"}, {"type": "tool_use", "id": "t", "name": "get", "input": {"q": "a"}}]',
    '{"functionCall": {"name": "get", "args": {"q": "a"}}}',
    '{"tool_name": "get", "tool_args": {"q": "a"}}',
    '{"Name": "get", "Arguments": {"q": "a"}}',
    '{"action": {"get": {"q": "a"}}}',
    '{name: "get", arguments: {q: "a"}}',
    '{"name": "gett", "arguments": {"q": "a"}}',
    '{"name": "get", "arguments": {"q": "the answer is 5"}}',
    'Tool: get\nArguments: {"q": "a"}',
    "Action 1: get[a]",
    '\u273fFUNCTION\u273f: get\n\u273fARGS\u273f: {"q": "a"}',
    '**Tool call:** `get`\n```json\n{"q": "a"}\n```',
    '"name": "get", "arguments": {"q": "a"}}</tool_call>',
    f"I must know what the answer is.\n{JSON}",
]
ANSWERS = [
    "42",
    "Paris",
    "get",
    "The tool get found nothing, so I say Paris.",
    'You can call get("a") to look it up, but the answer is 5.',
    'Use `get(q="a")` for it.',
    f"I wrote {JSON} first, and it failed.",
    f"The call `{JSON}` returned 5.",
    '{"answer": 42}',
    '{"name": "Alice", "age": 3}',
    '{"name": "Alice"}',
    '{"name": "Alice", "age": 3} is the record.',
    '```json\n{"name": "Bob"}\n```',
    '{"name": "Alice", "arguments": ["for", "against"]}',
    '{"name": "get", "result": 5}',
    '{"tool": "none", "result": "get"}',
    '{"get": 5}',
    '{"get": {"found": 5}}',
    '{"action": "get"}',
    '["get", "sqrt"]',
    "[1, 2, 3]",
    "{}",
    "sqrt(2)",
    "x = sqrt(2)",
    "The set {1, 2} and {x | x > 0}.",
    "```python\ndef f(x):\n    return sqrt(x)\n```",
    "get: nothing found",
    'list_files returned {"a": 1}',
    "It is get(x).",
    "Close it with `</tool_call>` and </p>.",
    "Action: none\nAnswer: 5",
    "<b>get</b> is bold",
    "<answer>42</answer>",
    # a call is quoted, and the answer stands in other words
    f"I sent\n{JSON}\nand found it. The answer is 5.",
    f"My answer: 5\n\n```json\n{JSON}\n```",
    f"{JSON}\n\n**Answer:** Paris",
    'get(q="a")\n\nfinds 5, so \\boxed{5}',
    # objects that say what came of a call, or describe a tool
    '{"steps": [{"tool": "get", "input": "a"}], "answer": "Paris"}',
    '{"function": "sqrt", "inputs": [4], "output": 2}',
    '{"plan": [{"action": "get", "arguments": {"q": "a"}}]}',
    '{"tool_calls": 3, "total": "get"}',
    '[{"name": "get"}, {"name": "sqrt"}]',
    '[{"name": "get", "description": "finds"}]',
    '{"name": "get", "type": "verb"}',
    '{"tools": [{"name": "get", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}]}',
    '[{"name": "get", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}]',
    '{"name": "Alice", "tool": "get", "args": 3}',
    '{"name": "Alice", "arguments": {"for": 1}}',
    "{1: 2, 'name': 'get'}",
    # code that calls a function of the tool's name
    "```python\nx = sqrt(2)\nprint(x)\n```",
    "```python\nfor n in range(3):\n    print(sqrt(n))\n```",
    "```python\nimport requests\nrequests.get(url='a')\n```",
    "requests.get(url='a')",
    "print(sqrt(2))",
    "Steps:\n1. get('a')\n2. sqrt(2)",
    "| tool | calls |\n|---|---|\n| get | 3 |",
]


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_in_a_wrong_form_is_a_call_or_a_malformed_call(name):
    form = load_format(name, TOOLS)
    for text in MEANT:
        found = form.parse(text)
        assert found.answer is None, text
        for error in found.errors:
            assert "not valid" in error.message or "not closed" in error.message
            own = {"llama_json": '"parameters": {...}', "action": "<action>name("}.get(name, "<tool_call>")
            assert own in error.message, error.message


@pytest.mark.parametrize("name", FORMATS)
def test_an_answer_that_only_speaks_of_a_tool_is_the_final_answer(name):
    form = load_format(name, TOOLS)
    for text in ANSWERS:
        if name == "llama_json" and text.startswith((JSON, '{"name": "Alice", "arguments": {')):
            continue  # this format reads any such object at the beginning as a call
        assert form.parse(text) == Calls(answer=text), text


@pytest.mark.parametrize(
    "text",
    [
        "(<a>" * 20_000 + "x",
        "( " + "<a> " * 20_000 + "x",
        "( " + "<a> " * 20_000,
        '{"name": "get" ' * 10_000,
        "get {" * 20_000,
        "`<tool_use>" * 20_000,
        "Action: get\n" * 20_000,
        '{"name": "get", "arguments": "' + '\\"' * 20_000,
        "get(" * 20_000,
        "the answer " * 20_000 + JSON,
    ],
)
def test_a_long_answer_is_read_in_linear_time(text):
    before = time.process_time()
    load_format("hermes", TOOLS).parse(text)
    assert time.process_time() - before < 2.0  # quadratic time is far more than 10 s


PIECES = [
    *"{}[]()<>\"'`\n,;:=\\ ",
    "get",
    "sqrt",
    "name",
    "arguments",
    "tool_call",
    "print",
    "q",
    "1",
    "\x00",
    "\ud800",
    "é",
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_no_text_makes_a_parser_raise(text):
    for name in FORMATS:
        found = load_format(name, TOOLS).parse(text)
        assert found.items or found.answer == text.strip()


def test_the_keys_that_vllm_takes_for_llama_are_taken():
    form = load_format("llama_json", TOOLS)
    (call,) = form.parse(JSON).calls
    assert (call.name, call.arguments) == ("get", {"q": "a"})
    both = '{"name": "get", "parameters": {}, "arguments": {}}'
    assert '"arguments" does not belong there' in form.parse(both).errors[0].message
    wrong_key = load_format("hermes", TOOLS).parse(f"<tool_call>{JSON.replace('arguments', 'parameters')}</tool_call>")
    assert '"parameters" does not belong there' in wrong_key.errors[0].message


def test_other_openings_of_code_are_malformed_and_other_languages_are_text():
    form = load_format("fenced", CODE)
    for text in (
        "```Python\nprint(1)\n```",
        "```python3\nprint(1)\n```",
        "``` python\nprint(1)\n```",
        "```python print(1)```",
        "~~~python\nprint(1)\n~~~",
        '{"name": "python", "arguments": {"code": "print(1)"}}',
        "<python>print(1)</python>",
        'python("print(1)")',
    ):
        found = form.parse(text)
        assert found.errors and "```python and ```" in found.errors[0].message, text
    for text in ("I used python.", "```\nx\n```", "```cpp\nint x;\n```", "`print(1)` prints 1.", '{"code": "x"}'):
        assert form.parse(text) == Calls(answer=text)


TAGGED = {
    "hermes": '<tool_call>{"name": "get", "arguments": {"q": "%s"}}</tool_call>',
    "llama_json": '{"name": "get", "parameters": {"q": "%s"}}',
    "xml_parameters": "<tool_call><function=get><parameter=q>%s</parameter></function></tool_call>",
    "action": '<action>get(q="%s")</action>',
}


@pytest.mark.parametrize("name", FORMATS)
def test_the_tag_of_a_thought_in_an_argument_closes_no_thought(name):
    form, call = load_format(name, TOOLS), TAGGED[name]
    wanted = [Call(name="get", arguments={"q": "write </think> here"})]
    for before in ("", "<think>hm</think>"):
        found = form.parse(before + call % "write </think> here")
        assert [(c.name, c.arguments) for c in found.calls] == [(c.name, c.arguments) for c in wanted]
    draft = form.parse(f"maybe {call % 'no'} no</think>{call % 'yes'}")  # a thought that the prompt has opened
    assert [c.arguments for c in draft.calls] == [{"q": "yes"}] and not draft.errors
    assert form.parse(f"maybe {call % 'no'} no</think>So 5.") == Calls(answer="So 5.")


def test_an_open_draft_in_a_thought_is_no_call():
    draft = "<tool_call><function=get><parameter=q>a\n</think>\n"
    found = load_format("xml_parameters", TOOLS).parse(draft + TAGGED["xml_parameters"] % "yes")
    assert [c.arguments for c in found.calls] == [{"q": "yes"}]


def test_the_tag_of_a_thought_in_a_query_and_in_code():
    search = load_format("search_r1", [tool("search", query="string")])
    assert search.parse("<search>what is </think> for</search>").calls[0].arguments == {"query": "what is </think> for"}
    assert search.parse("<search>no</think><search>yes</search>").calls[0].arguments == {"query": "yes"}
    code = load_format("fenced", CODE).parse("```python\nprint('</think>')\n```")
    assert code.calls[0].arguments == {"code": "print('</think>')"}


def test_a_wrong_form_costs_its_turn_and_is_counted():
    prompt = ToolWords(load_format("hermes", TOOLS), TOOLS)
    parsed = prompt.parse(JSON, Observation(text="?", tools=tuple(TOOLS)))
    assert isinstance(parsed, Parsed) and not parsed.valid and parsed.status is Status.PARSE_ERROR
    (item,) = tool_action.read(parsed.action, TOOLS).items
    assert "write <tool_call>" in item.message and "or give the final answer without a call" in item.message  # type: ignore[union-attr]


def test_json_that_a_person_types_in_another_form_is_no_final_answer():
    for typed in (JSON, '{"calls": [{"name": "get", "parameters": {"q": "a"}}]}', f"[{JSON}]"):
        (item,) = tool_action.read(typed, TOOLS).items
        assert 'write name(argument=value), or {"calls"' in item.message  # type: ignore[union-attr]
    for typed in ('{"total": 3}', "[1, 2]", "42"):
        assert tool_action.read(typed, TOOLS).answer == typed
