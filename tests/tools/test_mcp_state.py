"""MCP servers that keep state: an episode starts from the beginning, or a note says that it does not."""

import sys
from pathlib import Path

import pytest

from agentrl.config import Entry
from agentrl.env import EnvironmentFile
from agentrl.gym import difference_when_repeated
from agentrl.run import leak_note
from agentrl.tool import ToolFault, run_all
from agentrl.tool_env import environment

pytest.importorskip("mcp")
from agentrl.tools.mcp import Config, make

LEDGER = (sys.executable, "-S", "-E", str(Path(__file__).with_name("ledger_server.py")))
PATIENT = {"start_s": 120.0, "timeout_s": 60.0}


def ledger(**options):
    """An environment over the ledger's tools, as a catalogue entry."""

    def paid(calls) -> float:
        return float(sum(int(done.result) for done in calls if done.name == "deposit"))

    source = {"name": "mcp", "command": list(LEDGER), **PATIENT, **options}
    hooks = environment(rows=[{"prompt": "Pay in."}], tools=[source], reward=paid, module=__name__, name="ledger")
    file = EnvironmentFile(name="ledger", module=__name__, config=hooks.Config, make=hooks.make, tasks=hooks.tasks)
    return Entry("ledger", file, hooks.Config())


def deposits(entry, *, closed=False):
    """What two episodes of one instance and one of another instance answer to `deposit(2)`."""
    one, other = entry.hooks.make(entry.config), entry.hooks.make(entry.config)
    (task,) = list(entry.hooks.tasks(entry.config))
    call = '{"calls": [{"name": "deposit", "arguments": {"amount": 2}}]}'
    said = []
    for env in (one, one, other):
        env.reset(task)
        said.append(env.step(call).observation.text)
    one.close()
    other.close()
    return [text.strip() for text in said]


def test_a_shared_server_leaks_and_a_note_says_so():
    entry = ledger(only=["deposit"])
    first, second, third = deposits(entry)
    assert first != second != third
    assert "differs" in difference_when_repeated(entry)
    note = leak_note(entry)
    assert "'mcp' keeps state" in note and "env.tools.mcp.episode=restart" in note


def test_a_process_per_episode_begins_anew():
    entry = ledger(episode="restart")
    assert len(set(deposits(entry))) == 1 and leak_note(entry) == ""


def test_a_tool_that_resets_begins_anew_and_is_not_offered():
    entry = ledger(episode="reset", reset_tool="clear", reset_arguments={"to": 5})
    assert [text.endswith("7") for text in deposits(entry)] == [True] * 3
    assert leak_note(entry) == ""
    box = make(Config(command=LEDGER, episode="reset", reset_tool="clear", **PATIENT))
    assert [spec.name for spec in box.specs()] == ["deposit"]
    box.close()


def test_a_reset_tool_that_fails_is_a_fault_and_an_unknown_one_a_sentence():
    box = make(Config(command=LEDGER, episode="reset", reset_tool="clear", reset_arguments={"to": "many"}, **PATIENT))
    with pytest.raises(ToolFault, match=r"clear of the MCP server .* failed"):
        box.reset()
    box.close()
    with pytest.raises(ValueError, match="has no tool 'clea': did you mean clear"):
        make(Config(command=LEDGER, episode="reset", reset_tool="clea", **PATIENT))
    with pytest.raises(ValueError, match="belong together"):
        Config(command=LEDGER, episode="reset")


def test_two_instances_do_not_see_each_other():
    boxes = [make(Config(command=LEDGER, episode="restart", **PATIENT)) for _ in range(2)]
    said = []
    for box in boxes:
        box.reset()
        (spec,) = [spec for spec in box.specs() if spec.name == "deposit"]
        said += run_all([spec.function(amount=3)])
    assert said == ["3", "3"]
    for box in boxes:
        box.close()
