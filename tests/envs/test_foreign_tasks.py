"""What the environments inspect_ai and verifiers make of the answers of their programs, without the packages."""

import pytest

from agentrl.config import resolve
from agentrl.env import Bare, kind_of, prompt_of, tasks_of
from agentrl.foreign import ForeignProgram
from agentrl.tool_env import ToolWords

TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"properties": {}}}}


@pytest.mark.parametrize("tools", [[], [TOOL]])
@pytest.mark.parametrize(
    ("name", "option", "keys"),
    [("inspect_ai", "task", ["0123456789abcdefgh", "b"]), ("verifiers", "taskset", ["0123456789abcdef", "b"])],
)
def test_tasks_and_tools_are_what_the_program_lists(name, option, keys, tools, monkeypatch):
    answers = {"tasks": [[0, "0123456789abcdefgh"], [4, "b"]], "tools": tools}
    monkeypatch.setattr(ForeignProgram, "ask", lambda self, method, *arguments: answers[method])
    source = f"set{len(tools)}"  # answers are cached per program
    env = resolve("envs", {"name": name, option: source})
    tasks = tasks_of(env)
    assert [(task.key, task.seed) for task in tasks] == [(f"{source}/{keys[0]}", 0), (f"{source}/{keys[1]}", 4)]
    assert [task.params["index"] for task in tasks] == [0, 4] and kind_of(env, tasks[0]) == source
    assert type(prompt_of(env)) is (ToolWords if tools else Bare)
