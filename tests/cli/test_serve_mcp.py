"""An environment's tools for other clients: served by a real process, called through the SDK's client."""

import json
import sys
from types import ModuleType

import pytest

from agentrl import catalogue
from agentrl.cli import main
from agentrl.cli.serve import address
from agentrl.config import Entry, resolve
from agentrl.env import EnvironmentFile, tasks_of
from agentrl.foreign import McpTable
from agentrl.tool import run_all
from agentrl.tool_env import environment

SUMS = resolve("envs", {"name": "tests.toys.sums"})


def table(entry=SUMS, number: int = 7) -> McpTable:
    return McpTable(entry, tasks_of(entry)[number])


def test_tools_are_listed_with_closed_schemas_and_called_in_an_episode():
    served = table()
    names = [tool["name"] for tool in served.tools()]
    assert names == ["add", "fail", "wait", "shout", "give_up", "final_answer", "new_task"]
    assert served.shown() == "What is 1 + 2?"
    assert served.call("add", {"a": 1, "b": 2}) == "3"
    assert served.call("add", {"a": "1", "b": 2}).startswith("error: add: argument 'a'")
    ended = served.call("final_answer", {"answer": "3"})
    told = json.loads(ended.partition("The episode is over: ")[2])
    assert told["reward"] == 1.5 and told["success"] is True and told["signals"]["reward"] == 1.0
    assert served.call("new_task", {"key": "tests.toys.sums/0"}) == "What is 0 + 0?"
    assert served.call("new_task", {}) == "What is 0 + 0?"
    with pytest.raises(ValueError, match="unknown"):
        served.call("new_task", {"key": "nowhere"})


def test_an_environment_of_plain_actions_offers_act():
    walk = resolve("envs", {"name": "tests.toys.walk", "goal": 1})
    served = table(walk, 0)
    assert [tool["name"] for tool in served.tools()] == ["act", "new_task"]
    assert served.shown().endswith("Actions: left, right")
    assert '"reward": 1.0' in served.call("act", {"action": "right"})


class Post:
    """Its tool has an argument called `name`, as many have."""

    def reset(self, fails: bool = False) -> str:
        if fails:
            raise OSError("no post today")
        return "Write."

    def send(self, name: str, self_addressed: bool = False) -> str:
        return f"to {name}"

    def reward(self, answer: str) -> float:
        return 1.0


class Busy(Post):
    def new_task(self) -> str:
        return ""


ROWS = [{"fails": False}, {"fails": True}]
HOOKS = {owner: environment(owner, rows=ROWS, module=__name__) for owner in (Post, Busy)}


def of(owner: type) -> Entry:
    hooks = HOOKS[owner]
    module = ModuleType("post")
    vars(module).update(hooks._asdict())
    return Entry(name="post", config=hooks.Config(), hooks=catalogue.read(module, EnvironmentFile))


def test_an_argument_may_be_called_name_and_what_cannot_be_served_is_one_sentence():
    assert table(of(Post), 0).call("send", {"name": "Ada"}) == "to Ada"
    with pytest.raises(ValueError, match=r"task .*/1 of post cannot be started: OSError: no post today"):
        table(of(Post), 1)
    with pytest.raises(
        ValueError,
        match="post has a tool named 'new_task', which is also a tool of this server: rename the environment's tool",
    ):
        table(of(Busy), 0)


def test_a_real_client_plays_an_episode():
    pytest.importorskip("mcp")
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    words = ["-m", "agentrl", "serve", "mcp", "tests.toys.sums", "--task", "tests.toys.sums/7"]
    parameters = StdioServerParameters(command=sys.executable, args=words, env={"OMP_NUM_THREADS": "1"})

    async def episode():
        async with Client(stdio_client(parameters), read_timeout_seconds=120) as client:
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
            good = await client.call_tool("add", {"a": 1, "b": 2})
            bad = await client.call_tool("new_task", {"key": "nowhere"})
            last = await client.call_tool("final_answer", {"answer": "3"})
            return listed, good, bad, last

    (played,) = run_all([episode()])
    if isinstance(played, BaseException):
        raise played
    listed, good, bad, last = played
    assert listed["add"].input_schema["required"] == ["a", "b"]
    assert good.content[0].text == "3" and not good.is_error
    assert bad.is_error and "unknown" in bad.content[0].text
    assert '"success": true' in last.content[0].text


def test_mistakes_are_one_sentence(capsys):
    assert address("127.0.0.1:80") == ("127.0.0.1", 80)
    for words, sentence in (
        (["serve", "mcp", "no_such_env"], "unknown environment"),
        (["serve", "mcp", "tests.toys.sums", "--http", "nine"], "'nine' is no address: write HOST:PORT"),
        (["serve", "mcp", "tests.toys.sums", "--task", "x"], "unknown"),
        (["serve", "mcp", "deep_research", "world=tiny"], "calls other agents (searcher)"),
    ):
        assert main(words) == 2
        assert sentence in capsys.readouterr().err
