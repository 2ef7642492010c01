"""Servers that refuse the roles of messages or their order: by themselves on the refusal, and by options."""

import asyncio
import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from agentrl.cli import main
from agentrl.engines.openai import Endpoint, EndpointLost
from agentrl.engines.openai.roles import Roles, alternating, with_system
from agentrl.engines.openai.wire import body_messages
from agentrl.types import Message, Observation, Request, ToolCall
from tests.engines.test_openai import OK, serve  # noqa: F401 - a fixture
from tests.evaluate.stand_in import StandIn, answer, is_probe

CALL = ToolCall("a", "count", '{"n": 1}')
CHAT = (Message("system", "be brief"), Message("user", "where?"))
PLAYED = (*CHAT, Message("assistant", "left"), Message("user", "a wall"))
RESULTS = (*CHAT, Message("assistant", "left"), Message("tool", "2"), Message("tool", "3"))  # of calls in a text
CALLED = (*CHAT, Message("assistant", "so", "", (CALL,)), Message("tool", "2"))
CORRECTED = (*CALLED, Message("user", "go on"))


def asked(messages: Sequence[Message]) -> Request:
    return Request(session=0, token_ids=(), messages=list(messages), observation=Observation(text=""))


def words(error: str, status: int = 400) -> Any:
    return status, {}, json.dumps({"error": {"message": error}}).encode()


def roles_of(body: dict[str, Any]) -> list[str]:
    return [message["role"] for message in body["messages"]]


def gemma(body: dict[str, Any]) -> Any:
    """The template of Gemma 2 on vLLM."""
    roles = roles_of(body)
    if "system" in roles or "developer" in roles:
        return words("System role not supported")
    if any((role == "user") != (place % 2 == 0) for place, role in enumerate(roles)):
        return words("Conversation roles must alternate user/assistant/user/assistant/...")
    return OK


def mistral_7b(body: dict[str, Any]) -> Any:
    """The template of Mistral 7B v0.2: also the refusal of a system message speaks of the order."""
    roles = roles_of(body)
    if any((role == "user") != (place % 2 == 0) for place, role in enumerate(roles)):
        return words("Conversation roles must alternate user/assistant/user/assistant/...", 500)
    return OK


def mistral_api(body: dict[str, Any]) -> Any:
    """Mistral's API: tools are known, and a user message behind their results is refused."""
    for before, after in pairwise(roles_of(body)):
        if (before, after) == ("tool", "user"):
            return words("Unexpected role 'user' after role 'tool'")
    return OK


def two_roles(body: dict[str, Any]) -> Any:
    """A template of LM Studio."""
    if not {*roles_of(body)} <= {"user", "assistant"} or any("tool_calls" in one for one in body["messages"]):
        return words("Error rendering prompt with jinja template: Only user and assistant roles are supported!")
    return OK


def developer(body: dict[str, Any]) -> Any:
    if "system" in roles_of(body):
        return words("'messages[0].role' does not support 'system' with this model. Use 'developer' instead.")
    return OK


def o1_mini(body: dict[str, Any]) -> Any:
    for role in ("system", "developer"):
        if role in roles_of(body):
            return words(f"Unsupported value: 'messages[0].role' does not support '{role}' with this model.")
    return OK


def strict(body: dict[str, Any]) -> Any:
    """Refuses two messages of one role in a row, in DeepSeek's words."""
    if any(before == after for before, after in pairwise(roles_of(body))):
        return words("deepseek-reasoner does not support successive user or assistant messages (messages[1] and ...)")
    return OK


def filled(body: dict[str, Any]) -> Any:
    """Mistral's API again: an answer without a text is refused."""
    empty = any(not one.get("content") and "tool_calls" not in one for one in body["messages"])
    return words("Assistant message must have either content or tool_calls, but not none.") if empty else OK


SERVERS = (filled, gemma, mistral_7b, mistral_api, two_roles, developer, o1_mini, strict)


@pytest.mark.fault
@pytest.mark.parametrize("server", SERVERS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("messages", [PLAYED, RESULTS, CALLED, CORRECTED])
def test_every_server_gets_an_order_that_it_takes_with_all_words(serve, server, messages):  # noqa: F811
    one = serve(server)
    policy = one.policy(retries=0)

    async def twice() -> None:
        assert (await policy.generate(asked(messages))).text == "right"
        first = len(one.bodies)
        assert (await policy.generate(asked(messages))).text == "right"
        assert len(one.bodies) == first + 1  # later requests have the form that the server takes from the start

    asyncio.run(twice())
    sent = json.dumps(one.bodies[-1])
    place = -1
    for text in ("be brief", *(message.content for message in messages[1:])):
        place = sent.index(json.dumps(text)[1:-1], place + 1)
    assert "count" in sent or not any(message.calls for message in messages)
    assert bool(policy.notes) == (len(one.bodies) > 2)
    assert all("refuses the messages as they are" in note for note in policy.notes)


def test_an_empty_answer_of_the_model_ends_no_episode(serve):  # noqa: F811
    one = serve(filled)
    policy = one.policy(retries=0)
    empty = (*CHAT, Message("assistant", ""), Message("user", "no answer"))
    assert asyncio.run(policy.generate(asked(empty))).text == "right"
    assert [message["content"] for message in one.bodies[-1]["messages"]] == [
        "be brief",
        "where?",
        "(empty)",
        "no answer",
    ]
    assert "were sent as '(empty)'" in policy.notes[0] and len(one.bodies) == 2


def test_the_forms_by_hand():
    assert body_messages(RESULTS, Roles("user", True)) == [
        {"role": "user", "content": "be brief\n\nwhere?"},
        {"role": "assistant", "content": "left"},
        {"role": "user", "content": "2\n\n3"},
    ]
    plain = body_messages(CALLED, Roles("developer", True, True))
    assert [one["role"] for one in plain] == ["developer", "user", "assistant", "user"]
    assert plain[2]["content"] == 'so\n<tool_call>\n{"name": "count", "arguments": {"n": 1}}\n</tool_call>'
    asked_of, result = body_messages(CORRECTED, Roles("system", True))[-2:]
    assert asked_of["tool_calls"][0]["id"] == "a"
    # As without the option: a user message becomes the result of a call that has none, or stands behind the results.
    assert result == {"role": "tool", "tool_call_id": "a", "content": "2\n\ngo on"}
    assert with_system([Message("system", "a"), Message("system", "b")], "user") == [Message("user", "a\n\nb")]
    assert with_system([Message("system", "a"), Message("assistant", "b")], "user")[0] == Message("user", "a")
    assert with_system([Message("user", "a"), Message("system", "b")], "user")[1] == Message("user", "b")
    assert with_system([Message("user", "a")], "user") == [Message("user", "a")]


@pytest.mark.parametrize("messages", [CHAT, PLAYED, CALLED])
def test_messages_in_turn_stay_as_they_are(messages):
    assert alternating(body_messages(messages)) == body_messages(messages)


@pytest.mark.parametrize(
    ("options", "roles"),
    [
        ({"system": "user"}, ["user", "assistant", "user", "user"]),
        ({"system": "developer"}, ["developer", "user", "assistant", "user", "user"]),
        ({"system": "user", "alternating": True}, ["user", "assistant", "user"]),
        ({"system": "system", "alternating": False}, ["system", "user", "assistant", "user", "user"]),
    ],
)
def test_options_give_the_form_of_the_first_request(serve, options, roles):  # noqa: F811
    one = serve(OK)
    policy = one.policy(**options)
    asyncio.run(policy.generate(asked(RESULTS)))
    assert roles_of(one.bodies[0]) == roles and policy.notes == []
    described = policy.describe()
    assert {name: described[name] for name in options} == options
    assert not {"system", "alternating"} & {*one.policy().describe()}  # reports of other servers stay as they were


@pytest.mark.parametrize(
    ("options", "server", "advice"),
    [
        ({"system": "system"}, gemma, "set endpoint.system=user"),
        ({"system": "developer"}, o1_mini, "set endpoint.system=user"),
        ({"alternating": False}, strict, "set endpoint.alternating=true"),
        ({"tool_calls": "native", "system": "user"}, two_roles, "set endpoint.system=user"),
    ],
)
def test_an_option_of_the_user_is_not_changed_by_a_refusal(serve, options, server, advice):  # noqa: F811
    messages = CALLED if "tool_calls" in options else RESULTS
    with pytest.raises(ValueError, match=advice):
        asyncio.run(serve(server).policy(**options).generate(asked(messages)))


def test_a_refusal_that_no_form_helps_is_a_refusal(serve):  # noqa: F811
    one = serve(lambda body: words("System role not supported"))
    with pytest.raises(ValueError, match=r"System role not supported; set endpoint\.system=user"):
        asyncio.run(one.policy().generate(asked(CHAT)))
    assert len(one.bodies) == 2  # as it is, and with the system message joined to the user's
    late = serve(OK, lambda body: words("System role not supported"))
    policy = late.policy()

    async def both() -> None:
        await policy.generate(asked(CHAT))
        await policy.generate(asked(CHAT))

    with pytest.raises(EndpointLost, match="System role not supported"):
        asyncio.run(both())


def test_many_refusals_at_once_change_the_form_once(serve):  # noqa: F811
    one = serve(gemma)
    policy = one.policy(concurrency=4)

    async def many() -> list[str]:
        return [made.text for made in await asyncio.gather(*[policy.generate(asked(CHAT)) for _ in range(12)])]

    assert asyncio.run(many()) == ["right"] * 12
    assert [roles_of(body)[0] for body in one.bodies].count("system") <= 4 and len(policy.notes) == 1


@pytest.mark.parametrize("field", ["messages", "tools", "stream", "model", "n"])
def test_a_field_of_the_body_that_agentrl_fills_in_is_refused(field):
    with pytest.raises(ValueError, match=rf"extra_body has '{field}'"):
        Endpoint(model="m", extra_body={field: True})


def played(capsys: pytest.CaptureFixture[str], reply: Callable[[dict[str, Any]], Any], *more: str) -> tuple[Any, str]:
    server, words_of_it = StandIn(reply), ["prompt=instruct", "--tasks", "1", "--turns", "2", *more]
    assert main(["eval", "alfworld", "--policy", server.word, *words_of_it]) == 0
    server.close()
    return server, capsys.readouterr().out


def test_an_evaluation_on_a_server_without_a_system_role_is_played_with_a_note(capsys):
    def reply(body: dict[str, Any]) -> Any:
        if any(message["role"] == "system" for message in body["messages"]):
            return 400, {"error": {"message": "System role not supported"}}
        return answer("look")

    server, out = played(capsys, reply)
    assert "answers without a valid action 0.0%" in out and "note: openai:m refuses the messages as they are" in out
    assert "System role not supported" in out and "endpoint.system=user" in out
    assert [roles_of(body)[0] for body in server.bodies if not is_probe(body)] == ["system", "user", "user"]
    server, out = played(capsys, reply, "endpoint.system=user")
    assert "note:" not in out and "system=user" in out and len(server.played) == 2
