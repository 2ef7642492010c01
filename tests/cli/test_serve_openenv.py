"""What `agentrl serve openenv` answers to the calls of a session; the package's client: tests/envs/foreign."""

import socket

import pytest

from agentrl.cli import main
from agentrl.config import Entry, resolve
from agentrl.env import Slot
from agentrl.foreign import OpenEnvTable
from agentrl.types import EnvFault

SUMS = resolve("envs", {"name": "tests.toys.sums"})
WALK = resolve("envs", {"name": "tests.toys.walk", "goal": 2})


def reset(seed: int | None = None, task: str = "") -> dict[str, object]:
    return {"method": "reset", "seed": seed, "task": task}


def step(action: str) -> dict[str, object]:
    return {"method": "step", "action": action}


def test_an_episode_of_plain_actions():
    table = OpenEnvTable(WALK)
    session = table.session()
    assert table.tools == []
    began = session.answer(reset(0))
    assert began["observation"]["actions"] == ["left", "right"] and not began["done"] and began["metadata"] == {}
    one = session.answer(step("right"))
    assert not one["done"] and one["observation"]["text"] == "You are at 1, the goal is 2."
    last = session.answer(step("right"))
    assert (last["reward"], last["done"], last["metadata"]) == (1.0, True, {"success": True, "truncated": False})
    after = session.answer(step("right"))
    assert (after["observation"]["text"], after["reward"], after["done"]) == ("The episode is over.", 0.0, True)
    assert not session.answer(reset(0))["done"]


def test_an_episode_of_tools_ends_by_the_final_answer():
    table = OpenEnvTable(SUMS)
    assert [tool["name"] for tool in table.tools] == ["add", "fail", "wait", "shout", "give_up", "final_answer"]
    assert table.tools[0]["input_schema"]["required"] == ["a", "b"]
    session = table.session()
    assert session.answer(reset(7))["observation"]["text"] == "What is 1 + 2?"
    assert (
        session.answer({"method": "call", "name": "add", "arguments": {"a": 1, "b": 2}})["observation"]["text"] == "3"
    )
    failed = session.answer({"method": "call", "name": "add", "arguments": {"a": "1", "b": 2}})
    assert failed["metadata"]["status"] == "tool_error"
    last = session.answer({"method": "call", "name": "final_answer", "arguments": {"answer": "3"}})
    assert (last["reward"], last["done"]) == (1.5, True)
    assert last["metadata"]["success"] is True and last["metadata"]["signals"]["reward"] == 1.0


def test_a_seed_a_key_or_the_turn_chooses_the_task():
    table = OpenEnvTable(SUMS)
    one, other = table.session(), table.session()
    keys = [one.answer(reset(seed))["state"]["task"] for seed in (0, 7, 0)]
    assert keys == ["tests.toys.sums/0", "tests.toys.sums/7", "tests.toys.sums/0"]
    assert one.answer(reset(task="tests.toys.sums/3"))["state"]["task"] == "tests.toys.sums/3"
    assert one.answer(reset(None))["state"]["task"] != other.answer(reset(None))["state"]["task"]
    far = 1 << 30
    assert one.answer(reset(far))["state"]["task"] == other.answer(reset(far))["state"]["task"]


def test_a_mistake_of_the_client_and_a_fault_of_the_environment_are_sentences(monkeypatch):
    session = OpenEnvTable(WALK).session()
    with pytest.raises(ValueError, match="no episode has begun: call reset first"):
        session.answer(step("right"))
    with pytest.raises(ValueError, match="nowhere"):
        session.answer(reset(task="nowhere"))
    session.answer(reset(0))

    def lost(self: Slot, action: str) -> None:
        raise EnvFault("OSError: no map")

    monkeypatch.setattr(Slot, "step", lost)
    with pytest.raises(EnvFault, match="no map"):
        session.answer(step("right"))


def test_what_cannot_be_served_is_one_sentence(capsys, monkeypatch):
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words, sentence in (
            (["no_such_env"], "unknown environment"),
            (["tests.toys.walk", "--port", "70000"], "--port 70000 is no port"),
            (["tests.toys.walk", "--port", port], f"cannot listen at 127.0.0.1:{port}: "),
            (
                ["tests.toys.walk", "--port", "0", "--token-variable", "NO_SUCH_TOKEN"],
                "this environment variable is not",
            ),
            (
                ["tests.toys.walk", "--port", "0", "--python", "nowhere/python"],
                "--python = 'nowhere/python' is no program",
            ),
            (["tests.toys.walk", "--port", "0"], "has no package openenv"),
            (["deep_research", "world=tiny"], "calls other agents (searcher)"),
        ):
            assert main(["serve", "openenv", *words]) == 2, words
            told = capsys.readouterr().err
            assert sentence in told and len(told.splitlines()) == 1, told


def test_a_tool_named_like_the_servers_own_is_refused():
    from tests.cli.test_serve_mcp import Post, of

    entry: Entry = of(Post)
    assert [tool["name"] for tool in OpenEnvTable(entry).tools] == ["send", "final_answer"]
