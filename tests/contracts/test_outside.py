"""Every environment, tool and engine against the contract of its catalogue, where what it needs is on this machine."""

import asyncio
import inspect
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentrl import catalogue
from agentrl.engines import Sampling, Serving
from agentrl.env import tasks_of
from agentrl.gym import check_env
from agentrl.tool import Tool, Toolbox, ToolSpec, tool_spec
from agentrl.types import Message, Observation, Request
from tests.contracts.every import entry
from tests.toys.runs import tiny_model

ENVS, TOOLS, ENGINES = (catalogue.names(kind) for kind in ("envs", "tools", "engine"))

# What an entry needs of the machine; without it making the entry raises ValueError, and the test is skipped.
SANDBOX = "a sandbox: bubblewrap, or user namespaces"
PYTHON = "env.python with the package; make foreign plays it"
NEEDS = {
    "code_math": SANDBOX,
    "code_pair": SANDBOX,
    "code_repair": SANDBOX,
    "code_repo": SANDBOX,
    "code_test": SANDBOX,
    "inspect_ai": PYTHON,
    "openenv": "env.url, the address of an OpenEnv server; make foreign plays some",
    "reasoning_gym": PYTHON,
    "textarena": PYTHON,
    "textworld": "the extra textworld",
    "verifiers": PYTHON,
    "python_sandbox": SANDBOX,
    "e2b": "the extra e2b and a key",
    "mcp": "the extra mcp",
    "search": "the extra search",
    "openai": "the extra openai",
}
LONG = {"textworld", "code_repair", "code_pair", "code_test"}  # more than two CPU seconds; their own tests check it too
SMALL: Mapping[str, Mapping[str, Any]] = {"search_qa": {"world": "tiny"}, "deep_research": {"world": "tiny"}}
SERVER = Path(__file__).parents[1] / "tools" / "mcp_server.py"


def made(name: str, make: Any) -> Any:
    """What `make()` gives, or a skip with the reason in words."""
    try:
        return make()
    except ValueError as error:
        if name not in NEEDS:
            raise
        pytest.skip(f"{name} needs {NEEDS[name]}: {error}")


def test_the_tables_name_entries():
    assert {*NEEDS, *LONG, *SMALL} <= {*ENVS, *TOOLS, *ENGINES}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in ENVS])
def test_an_environment_keeps_its_promises(name):
    chosen = entry("envs", name, **SMALL.get(name, {}))
    made(name, lambda: (tasks_of(chosen), chosen.hooks.make(chosen.config).close()))
    assert check_env(chosen, tasks=1, steps=5) == []


@pytest.mark.parametrize("name", [n for n in ENVS if n not in LONG])
def test_the_labels_of_an_environment_are_words(name):
    chosen = entry("envs", name, **SMALL.get(name, {}))
    hooks, config = chosen.hooks, chosen.config
    task = made(name, lambda: tasks_of(chosen))[0]
    if hooks.find is not None:
        assert hooks.find(config, task.key) == task
    assert hooks.kind is None or hooks.kind(task)
    assert hooks.benchmark is None or hooks.benchmark(config)
    assert hooks.entities is None or all(isinstance(one, str) and one for one in hooks.entities(config))
    assert isinstance(hooks.waits_under(config), bool)
    assert (hooks.experts is None) or hooks.expert is not None, "EXPERTS names experts that nobody makes"
    for section in ({} if hooks.agents is None else hooks.agents(config)).values():
        entry("envs", **section["env"])  # an environment with options that it takes
    for options in hooks.gymnasium_ids.values():
        hooks.config(**options)
    assert all(callable(command) for command in hooks.commands.values())


@pytest.fixture
def tool_options(monkeypatch, tmp_path) -> dict[str, dict[str, Any]]:
    """Options with which tools can be made here: a server of our own, a corpus of two lines, no real key."""
    monkeypatch.setenv("E2B_API_KEY", "e2b_" + "0" * 40)
    corpus = tmp_path / "corpus.jsonl"
    lines = [{"id": str(i), "contents": f"Title {i}\nThe words of passage {i}."} for i in range(2)]
    corpus.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {
        "mcp": {"command": [sys.executable, str(SERVER)], "url": "", "start_s": 120.0},
        "search": {"bm25": {"corpus": str(corpus)}},
    }


def specs_of(tool: Any) -> list[ToolSpec]:
    return list(tool.specs()) if isinstance(tool, Toolbox) else [tool_spec(tool)]


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_shows_a_model_what_it_is_and_refuses_unknown_arguments(name, tool_options):
    chosen = entry("tools", name, **tool_options.get(name, {}))
    tool = made(name, lambda: chosen.hooks.make(chosen.config))
    try:
        assert isinstance(tool, Tool | Toolbox)
        specs = specs_of(tool)
        assert specs and len({spec.name for spec in specs}) == len(specs)
        for spec in specs:
            check_spec(spec, described=isinstance(tool, Toolbox))
    finally:
        if hasattr(tool, "close"):
            tool.close()


def check_spec(spec: ToolSpec, described: bool) -> None:
    """A JSON schema with words, as chat templates take it; `described`: its words are the server's."""
    shown = json.loads(json.dumps(spec.schema))
    assert shown["type"] == "function" and shown["function"]["name"] == spec.name
    parameters = shown["function"]["parameters"]
    assert parameters["type"] == "object" and set(parameters.get("required", ())) <= set(parameters["properties"])
    assert all({"type", "anyOf", "enum"} & set(one) for one in parameters["properties"].values())
    if not described:
        assert len(shown["function"]["description"].split()) >= 3
        assert all(one.get("description") for one in parameters["properties"].values())
    assert json.loads(json.dumps(spec.parameters))["type"] == "object" and callable(spec.function)
    with pytest.raises(ValueError, match="no_such_argument"):
        spec.check({"no_such_argument": 1})


def test_a_tool_that_runs_code_has_a_runner():
    from agentrl.tool import CodeRunner

    with_runner = [name for name in TOOLS if catalogue.load("tools", name).runner is not None]
    assert {"python_sandbox", "sandbox_fusion"} <= set(with_runner)
    for name in ("sandbox_fusion",):  # which asks its server only when a session opens
        chosen = entry("tools", name)
        assert isinstance(chosen.hooks.runner(chosen.config), CodeRunner)


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_has_the_options_of_every_engine(name):
    config = entry("engine", name).config
    assert config.max_context >= 8 and config.actions in ("free", "admissible")
    with pytest.raises(ValueError):
        type(config).model_validate({**config.model_dump(), "max_context": 0})
    with pytest.raises(ValueError):
        type(config).model_validate({**config.model_dump(), "actions": "some"})


# Engines of servers are tried against a server that speaks their protocol, in tests/engines.
@pytest.mark.parametrize("name", [name for name in ENGINES if not catalogue.load("engine", name).folders])
def test_an_engine_serves_and_one_with_weights_takes_new_ones(name, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", os.environ.get("OPENAI_API_KEY", "no key"))
    chosen = entry("engine", name, max_context=64)
    model = tiny_model(["left right go"]) if chosen.hooks.weights else None
    serving = Serving(model=model and model.model, tokenizer=model and model.tokenizer, sampling=Sampling(), version=3)
    policy = made(name, lambda: chosen.hooks.make(chosen.config, serving))
    told = policy.describe()
    assert policy.name and told["actions"] == chosen.config.actions and json.dumps(told)
    for method in ("open", "fork", "rest", "wake", "release", "generate"):
        assert callable(getattr(policy, method)), method
    assert inspect.iscoroutinefunction(policy.generate)
    if model is None:
        assert not hasattr(policy, "load"), "an engine that takes weights says WEIGHTS = True"
        return
    assert answer(policy, model.tokenizer).policy_version == (3, 3)
    policy.load(model.model, 4)
    assert answer(policy, model.tokenizer).policy_version == (4, 4)
    policy.clear()
    assert answer(policy, model.tokenizer).text == answer(policy, model.tokenizer).text


def answer(policy: Any, tokenizer: Any) -> Any:
    """One answer to the same request, in a session of its own."""
    from agentrl.chat import Chat

    messages = [Message("user", "go left")]
    request = Request(
        session=0,
        token_ids=Chat(tokenizer).start(messages),
        messages=messages,
        observation=Observation(text="go left"),
        max_tokens=4,
    )
    policy.open(0)
    try:
        return asyncio.run(policy.generate(request))
    finally:
        policy.release(0)
