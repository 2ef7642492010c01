"""The refusals of all servers in `tests.engines.dialects`, through the endpoint policy against one real HTTP server."""

import asyncio
import json
import re
import time
from typing import Any

import pytest

from agentrl.cli import main
from agentrl.engines.openai import EndpointLost
from agentrl.engines.openai.refusals import KINDS, PASSING, kind_of, unread, wait_s
from agentrl.engines.openai.words import ServerWords, words_of
from agentrl.tool import load_format
from agentrl.types import Message, Observation, Request
from tests.engines.dialects import REFUSALS, Case, openai, page
from tests.engines.test_openai import OK, completion, request, serve  # noqa: F401 - a fixture
from tests.evaluate.stand_in import StandIn, answer, is_probe

WALK, SUMS = "tests.toys.walk", "tests.toys.sums"
TOOL = {"type": "function", "function": {"name": "count", "parameters": {"type": "object", "properties": {}}}}
SERVERS = (
    *("OpenAI", "Azure", "vLLM", "SGLang", "TGI", "llama.cpp", "Ollama", "LM Studio", "Groq", "xAI", "Gemini"),
    *("Bedrock", "LiteLLM", "OpenRouter", "Mistral", "DeepSeek", "Anthropic"),
)


def asked(*messages: Message, tools: tuple[Any, ...] = ()) -> Request:
    given = list(messages) or [Message("system", "be brief"), Message("user", "where?"), Message("user", "where?")]
    made = request()
    return Request(
        session=0,
        token_ids=made.token_ids,
        messages=given,
        observation=Observation(text=""),
        max_tokens=64,
        tools=tools,
    )


def test_the_table_has_every_server_and_every_kind():
    assert {*SERVERS} <= {case.server for case in REFUSALS} and {case.kind for case in REFUSALS} == {*KINDS}
    for server in SERVERS:
        kinds = {case.kind for case in REFUSALS if case.server == server}
        assert "context" in kinds and len(kinds) >= 3, server


@pytest.mark.parametrize("case", REFUSALS, ids=str)
def test_words_and_kinds_of_refusals(case):
    words = words_of(case.data.decode())
    assert case.words in words.shown(case.status) and kind_of(words, case.status) == case.kind


ORDINARY = (
    (400, "Invalid 'tools[0].function.name': string does not match pattern '^[a-zA-Z0-9_-]+$'."),
    (400, "Invalid value for 'temperature': decimal above maximum value. Expected a value <= 2, but got 200 instead."),
    (400, "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) is supported."),
    (400, "max_tokens is too large: 100000. This model supports at most 4096 completion tokens, you provided 100000."),
    (
        400,
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.",
    ),
    (400, "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'"),
    (400, "We could not parse the JSON body of your request."),
    (400, "context deadline exceeded"),
    (405, "Method Not Allowed"),
    (400, "The name of tool 'aaaa' exceeds max length of 64."),
    (400, "Invalid 'stop': array too long. Expected an array with maximum length 4, but got an array with length 5."),
    (400, "The number of stop sequences exceeds the limit of 4"),
)


@pytest.mark.parametrize(("status", "text"), ORDINARY)
def test_other_refusals_are_of_no_special_kind(status, text):
    assert kind_of(words_of(json.dumps(openai(text))), status) == "refused"


def test_what_the_model_wrote_chooses_no_kind():
    """An agent whose episode does not count if its account has no money would like to say that it has none."""
    text = "insufficient_quota, maximum context length, content_filter"
    for message in (f"error parsing tool call: raw='{text}', err=x", f"Failed to parse input at pos 0: {text}"):
        assert kind_of(words_of(json.dumps(openai(message))), 500) == "malformed"
    groq = openai("Failed to call a function.", "tool_use_failed", failed_generation=text)
    assert kind_of(words_of(json.dumps(groq)), 400) == "malformed"
    assert kind_of(words_of(json.dumps({"detail": [{"msg": "Field required", "input": text}]})), 422) == "refused"


@pytest.mark.parametrize(
    "body",
    [
        "[" * 50_000, "{" * 50_000, '{"error": ' * 9_000, '{"error": {"message": [[[[[[[[[[["deep"]]]]]]]]]]]}}',
        "<html" * 100_000, "<title>" * 50_000, json.dumps({"error": "[" * 50_000}), "model " * 200_000,
        "tokens " * 100_000, json.dumps({"error": {"message": 5, "code": [1], "type": {}}}), "\x00\ud800", "[]", "{}",
    ],
)  # fmt: skip
def test_hostile_bodies_have_words_in_linear_time(body):
    began = time.process_time()
    words = words_of(body)
    assert len(words.shown(400)) < 1000 and kind_of(words, 400) in KINDS
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("headers", "text", "seconds"),
    [
        ({"retry-after": "7"}, "", 7.0),
        ({"retry-after-ms": "1500", "retry-after": "7"}, "", 1.5),
        ({"x-ms-retry-after-ms": "250"}, "", 0.25),
        ({"retry-after": "soon"}, "try again in 20s.", 20.0),
        ({}, "Please try again in 7m12.5s.", 432.5),
        ({}, "Please try again in 120ms.", 0.12),
        ({}, "Please retry in 34.07s.", 34.07),
        ({}, "Please retry after 6 seconds.", 6.0),
        ({}, "try again in 2 minutes", 120.0),
        ({}, "Try again later", None),
    ],
)
def test_the_wait_that_a_server_asks_for(headers, text, seconds):
    assert wait_s(headers, ServerWords(text)) == (seconds if seconds is None else pytest.approx(seconds))


def test_the_wait_in_the_body_of_gemini():
    (case,) = [case for case in REFUSALS if case.server == "Gemini" and case.kind == "rate"]
    assert wait_s({}, words_of(case.data.decode())) == pytest.approx(34.07)
    assert wait_s({}, words_of(json.dumps([{"error": {"details": [{"retryDelay": "3s"}]}}]))) == 3.0


async def outcome(case: Case, number: int, policy: Any) -> str:
    """What becomes of a request that the server refuses, after it has answered another request."""
    try:
        generation = await policy.generate(asked(Message("user", str(number)), tools=(TOOL,)))
    except EndpointLost as lost:
        assert case.words in str(lost)
        return "no answer" if "gave no answer in 1 tries" in str(lost) else "refused"
    assert case.words in generation.refusal
    if generation.finish == "malformed":
        parsed = load_format("hermes", (TOOL,)).parse(generation.text)
        assert parsed.errors and not parsed.calls and parsed.answer is None
    return generation.finish


@pytest.mark.fault
def test_one_server_plays_all_dialects_and_a_refusal_ends_its_own_episode(serve):  # noqa: F811
    """The message chooses the refusal; the first request is answered."""

    def reply(body: dict[str, Any]) -> Any:
        said = body["messages"][-1]["content"]
        return OK if said == "first" else (REFUSALS[int(said)].status, {}, REFUSALS[int(said)].data)

    async def all_of_them(policy: Any) -> list[str]:
        await policy.generate(asked(Message("user", "first")))
        return [await outcome(case, number, policy) for number, case in enumerate(REFUSALS)]

    special = {"context": "context", "filtered": "refused", "malformed": "malformed", "length": "length"}
    expected = [special.get(case.kind, "no answer" if case.kind in PASSING else "refused") for case in REFUSALS]
    assert asyncio.run(all_of_them(serve(reply).policy(retries=0))) == expected


def test_the_call_that_the_server_could_not_read_is_the_answer(serve):  # noqa: F811
    failed = '{"name": "count", "arguments": {}}'  # well-formed, and refused all the same: it is not carried out
    server = serve(OK, (400, {}, json.dumps(openai("no", "tool_use_failed", failed_generation=failed)).encode()))
    policy = server.policy()
    asyncio.run(policy.generate(asked()))
    answered = asyncio.run(policy.generate(asked(tools=(TOOL,))))
    assert json.dumps(failed) in answered.text and len(server.bodies) == 2
    assert load_format("hermes", (TOOL,)).parse(answered.text).errors
    ollama = "error parsing tool call: raw='{\"word\": }', err=invalid character '}'"
    assert unread(words_of(json.dumps({"error": ollama}))) == '{"word": }'
    assert unread(words_of(json.dumps({"error": "Failed to parse input at pos 9: {x"}))) == "{x"


@pytest.mark.fault
def test_a_refusal_before_any_answer_stops_unless_another_request_is_answered(serve):  # noqa: F811
    gone = (404, {}, json.dumps(openai("The model `m` does not exist.")).encode())
    late = lambda body: (time.sleep(0.2), OK)[1]  # noqa: E731

    async def two(policy: Any) -> list[Any]:
        jobs = [policy.generate(asked(Message("user", text))) for text in ("first", "where?")]
        return await asyncio.gather(*jobs, return_exceptions=True)

    refused, answered = (serve(lambda body: gone), serve(lambda b: late(b) if "first" in str(b["messages"]) else gone))
    assert [type(one) for one in asyncio.run(two(refused.policy()))] == [ValueError, ValueError]
    first, second = asyncio.run(two(answered.policy()))
    assert first.text == "right" and isinstance(second, EndpointLost) and "correct the model" in str(second)


def evaluated(capsys: Any, *words: str, code: int = 0) -> Any:
    assert main(["eval", *words, "--json"]) == code
    captured = capsys.readouterr()
    return json.loads(captured.out) if code == 0 else captured.err


def refusing(case: Case, tasks: tuple[int, ...] = (1,)) -> StandIn:
    """Refuses the second request of the given tasks of the walk, in the order in which they begin."""
    begun: list[str] = []

    def reply(body: dict[str, Any]) -> Any:
        if is_probe(body):
            return answer("ready")
        first = json.dumps(body["messages"][:1])
        if len(body["messages"]) == 1:
            begun.append(first)
        refused = first in [begun[n] for n in tasks if n < len(begun)] and len(body["messages"]) > 1
        return (case.status, json.loads(case.data)) if refused else answer("right")

    return StandIn(reply)


@pytest.mark.fault
def test_one_refused_episode_of_many_is_scored_or_lost_and_the_others_are_played(capsys):
    by_kind = {case.kind: case for case in REFUSALS if case.status == 400 and isinstance(case.body, dict)}
    lost = {"auth", "gone", "quota", "refused"}
    for kind in ("context", "filtered", *sorted(lost)):
        server = refusing(by_kind[kind])
        words = [WALK, "--policy", server.word, "endpoint.concurrency=1", "limits.retries=0", "limits.fault_share=0.5"]
        report = evaluated(capsys, *words)
        server.close()
        ending = {"context": "context_limit", "filtered": "refused"}.get(kind, "env_error")
        assert report["endings"] == {"done": 3, ending: 1}, kind
        assert report["episodes"] == (3 if kind in lost else 4) and report["success_rate"] == 3 / report["episodes"]
        assert by_kind[kind].words in report["failures"][f"episodes.{ending}"]["example"]["text"]


def test_a_refusal_of_the_probe_stops_with_advice_and_many_refusals_stop_by_their_share(capsys):
    quota = next(case for case in REFUSALS if case.kind == "quota")
    server = StandIn(lambda body: (quota.status, json.loads(quota.data)))
    said = evaluated(capsys, WALK, "--policy", server.word, code=2)
    assert quota.words in said and "see the account's balance" in said and len(server.bodies) == 1
    server.close()
    server = refusing(quota, (0, 1, 2))
    said = evaluated(capsys, WALK, "--policy", server.word, "limits.retries=0", "endpoint.concurrency=1", code=2)
    assert "1 of 4 episodes were lost" in said and quota.words in said
    server.close()


@pytest.mark.fault
def test_a_call_that_the_server_cannot_read_is_scored_as_malformed_and_the_episode_goes_on(capsys):
    groq = next(case for case in REFUSALS if case.server == "Groq" and case.kind == "malformed")

    def reply(body: dict[str, Any]) -> Any:
        if is_probe(body):
            return answer("ready")
        said = [message["content"] for message in body["messages"]]
        if len(said) == 1:
            return groq.status, groq.body
        assert "<function=count" in said[-2] and "not valid" in said[-1]
        return answer(str(sum(int(word) for word in said[0].replace("?", "").split() if word.isdigit())))

    server = StandIn(reply)
    report = evaluated(capsys, SUMS, "--policy", server.word, "--tasks", "2")
    server.close()
    assert report["endings"] == {"done": 2} and report["success_rate"] == 1.0 and report["invalid_share"] == 0.5
    failed = report["failures"]["answers.malformed_call"]
    assert failed["count"] == 2 and "held a tool call that the server could not read" in failed["line"]
    assert groq.words in failed["example"]["text"] and report["usage"]["retries"] == 0


TEXT = {"type": "text", "text": "1"}
ODD = {"id": "x", "object": "chat.completion", "created": 0, "model": "m"}


def choice(message: dict[str, Any], finish: Any = "stop", **more: Any) -> bytes:
    made = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}, **more}
    return json.dumps({**ODD, "choices": [made]}).encode()


@pytest.mark.fault
@pytest.mark.parametrize(
    ("message", "text", "thought", "refusal"),
    [
        (
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, TEXT]},
            "1", "hm", "",
        ),
        ({"content": [{"type": "text", "text": "go "}, {"type": "text", "text": "left"}]}, "go left", "", ""),
        ({"content": [{"type": "reasoning", "reasoning": "hm"}, {"type": "output_text", "text": "1"}]}, "1", "hm", ""),
        ({"content": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}]}, "", "hm", ""),
        ({"content": [{"type": "thinking", "thinking": "hm"}, {"type": "redacted_thinking"}]}, "", "hm", ""),
        ({"content": [{"type": "refusal", "refusal": "no"}]}, "", "", "no"),
        ({"content": [TEXT, {"type": "reference", "reference_ids": [1]}]}, "1", "", ""),
        ({"content": []}, "", "", ""),
        ({"content": ["go ", "left"]}, "go left", "", ""),
        ({"content": {"type": "text", "text": "1"}}, "1", "", ""),
        ({"content": [{"type": "text", "text": None}, TEXT]}, "1", "", ""),
        ({"content": [{"text": "hm", "thought": True}, {"text": "1"}]}, "1", "hm", ""),
        ({"content": [{"reasoningContent": {"reasoningText": {"text": "hm"}}}, {"text": "1"}]}, "1", "hm", ""),
        ({"content": [{"type": "think", "think": "hm"}, TEXT]}, "1", "hm", ""),
        ({"content": None, "refusal": "no"}, "", "", "no"),
        ({"content": "1", "reasoning_content": "hm"}, "1", "hm", ""),
        ({"content": "1", "reasoning": "hm"}, "1", "hm", ""),
        ({"content": "1", "thinking": "hm"}, "1", "hm", ""),
        ({"content": None}, "", "", ""),
        ({}, "", "", ""),
    ],
)  # fmt: skip
def test_the_content_of_an_answer_in_every_form(serve, message, text, thought, refusal):  # noqa: F811
    found = asyncio.run(serve((200, {}, choice(message))).policy().generate(asked()))
    assert (found.text, found.thought, found.refusal) == (text, thought, refusal)
    assert found.finish == ("abort" if refusal else "stop")


def test_a_part_with_a_call_is_a_call(serve):  # noqa: F811
    parts = [{"type": "text", "text": "so"}, {"type": "tool_use", "id": "a", "name": "count", "input": {"n": 1}}]
    found = asyncio.run(serve((200, {}, choice({"content": parts}, "tool_calls"))).policy().generate(asked()))
    assert found.message is not None and found.message.calls == (("a", "count", '{"n": 1}'),) and "so" in found.text


@pytest.mark.fault
def test_a_part_of_an_unknown_type_is_named_by_the_probe_and_in_an_episode(serve):  # noqa: F811
    odd = (200, {}, choice({"content": [{"type": "image_url", "image_url": {}}]}))
    with pytest.raises(ValueError, match=r"first answer of .* cannot be read: .* part of type 'image_url'"):
        serve(odd).policy().probe()
    with pytest.raises(EndpointLost, match="part of type 'image_url', which is no text"):
        asyncio.run(serve(odd).policy(retries=0).generate(asked()))
    assert serve((200, {}, choice({"content": [{"type": "text", "text": "1"}]}))).policy().probe()


@pytest.mark.parametrize(
    ("finish", "meant"),
    [
        ("stop", "stop"), ("tool_calls", "stop"), ("eos_token", "stop"), (None, "stop"), ("whatever", "stop"),
        ("length", "length"), ("max_tokens", "length"), ("MAX_TOKENS", "length"), ("model_length", "length"),
        ("content_filter", "abort"), ("content_filter: SAFETY", "abort"), ("SAFETY", "abort"), ("refusal", "abort"),
        ("function_call_filter: MALFORMED_FUNCTION_CALL", "malformed"), ("MALFORMED_FUNCTION_CALL", "malformed"),
    ],
)  # fmt: skip
def test_the_words_for_the_end_of_an_answer(serve, finish, meant):  # noqa: F811
    text = "" if meant == "malformed" else "1"
    found = asyncio.run(serve((200, {}, choice({"content": text}, finish))).policy().generate(asked(tools=(TOOL,))))
    assert found.finish == meant
    if meant == "malformed":
        assert load_format("hermes", (TOOL,)).parse(found.text).errors


def test_an_answer_that_the_context_left_no_room_for_ends_the_episode(serve):  # noqa: F811
    server = serve((200, {}, choice({"content": ""}, "model_context_window_exceeded")))
    assert asyncio.run(server.policy().generate(asked())).finish == "context"


@pytest.mark.fault
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (json.dumps({**ODD, "choices": None}).encode(), "not a chat completion"),
        (json.dumps({**ODD, "choices": []}).encode(), "not a chat completion"),
        (
            json.dumps({"error": {"message": "Provider returned error", "code": 502}}).encode(),
            "Provider returned error",
        ),
        (choice({"content": ""}, "error", error={"code": 502, "message": "upstream broke"}), "upstream broke"),
        (choice({"content": "1"}, "error"), "finish_reason='error'"),
        (choice({"content": None}, "insufficient_system_resource"), "insufficient_system_resource"),
        (page("502 Bad Gateway").encode(), "502 Bad Gateway"),
    ],
)
def test_a_successful_answer_that_is_none_is_asked_for_again(serve, body, words):  # noqa: F811
    server = serve((200, {}, body), (200, {}, completion()))
    assert asyncio.run(server.policy().generate(asked())).text == "right" and len(server.bodies) == 2
    with pytest.raises(EndpointLost) as lost:
        asyncio.run(serve((200, {}, body)).policy(retries=0).generate(asked()))
    assert words in str(lost.value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (openai("maximum context length is 8 tokens"), "calls a first short request too long: Error code: 400"),
        ({"error": "Unexpected endpoint or method. (POST /chat/completions)"}, "correct the model or the address"),
        ({"error": "no such parameter"}, "failed twice at a first short request: no such parameter"),
    ],
)
def test_the_probe_stops_at_a_server_that_can_play_nothing(serve, body, words):  # noqa: F811
    status = 400 if "maximum" in str(body) else 200
    with pytest.raises(ValueError, match=re.escape(words)):
        serve((status, {}, json.dumps(body).encode())).policy().probe()


def test_a_malformed_call_at_the_probe_does_not_mean_that_the_server_takes_no_tools(serve):  # noqa: F811
    groq = next(case for case in REFUSALS if case.server == "Groq" and case.kind == "malformed")
    server = serve((400, {}, groq.data))
    assert server.policy().probe([TOOL]) and len(server.bodies) == 1


@pytest.mark.fault
def test_a_server_that_loads_its_model_is_waited_for(serve, monkeypatch):  # noqa: F811
    monkeypatch.setattr("agentrl.engines.openai.AGAIN_S", 0.01)
    loading = next(case for case in REFUSALS if case.words == "Loading model")
    server = serve(*[(503, {}, loading.data)] * 3, OK)
    assert server.policy().probe() and len(server.bodies) == 4
    with pytest.raises(ValueError, match="Loading model"):
        serve((503, {}, loading.data)).policy(probe_s=0.05).probe()
