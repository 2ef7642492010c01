"""A stored episode goes on with a server that takes tool calls as data: what was called before is told as data too."""

import asyncio
import json
from dataclasses import replace

import pytest

from agentrl.engines import Wordless
from agentrl.env import Limits, make_pool, prompt_of, tasks_of
from agentrl.evaluate import find_place, play_on
from agentrl.rollout import Scripted, build_graph
from agentrl.types import Generation, Request
from tests.rollout.playing import entry, play_all, player

ON = entry("tests.toys.sums")
LIMITS = Limits(turns=4, fault_share=1.0)
ADD = 'Let me see. <tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'
BROKEN = '<tool_call>{"name": "add", "arguments": </tool_call>'


class Heard(Wordless):
    """Keeps the requests, and answers 3."""

    name = "heard"

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def generate(self, request: Request) -> Generation:
        self.requests.append(request)
        return Generation(text="3")


def asked(first: str, native: bool) -> Request:
    """The request of turn 1 after a stored answer."""
    pool = make_pool(ON, "inline")
    task = tasks_of(ON)[0]
    graph = build_graph(play_all(player(ON, pool, policy=Scripted([first, "3"]), limits=LIMITS), [task]))
    heard = Heard()
    by = player(ON, pool, policy=heard, limits=LIMITS)
    by = replace(by, prompt=prompt_of(ON).as_native()) if native else by
    asyncio.run(play_on(find_place(graph, 0, 1), task, by, 1, exact=False))
    return heard.requests[0]


def test_calls_are_told_as_data():
    request = asked(ADD, native=True)
    called, result = request.messages[-2:]
    assert (called.role, called.content) == ("assistant", "Let me see.")
    assert [(call.name, json.loads(call.arguments)) for call in called.calls] == [("add", {"a": 1, "b": 2})]
    assert (result.role, result.content) == ("tool", "3") and request.tools


@pytest.mark.parametrize(("first", "native"), [(ADD, False), (BROKEN, True)])
def test_other_answers_stay_texts(first, native):
    assert all(not message.calls for message in asked(first, native).messages)
