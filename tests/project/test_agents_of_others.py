"""The programs of examples/agents, with the real packages they are written with, each in a Python of its own."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from agentrl.cli import main
from agentrl.graph import read_graph
from tests.other_pythons import python_with
from tests.programs.test_endpoint import Open, Told
from tests.toys.language_model import language_model, model_folder

EXAMPLES = Path(__file__).parents[2] / "examples"
PACKAGES = {
    "langgraph_agent": ("langgraph==1.2.22", "langchain-openai==1.7.3"),
    "openai_agents_agent": ("openai-agents==0.24.0",),
    "smolagents_agent": ("smolagents[openai]==1.26.0",),
}
ADD, MULTIPLY = ("add", {"a": 3, "b": 4}), ("multiply", {"a": 7, "b": 2})
SAID = {
    "langgraph_agent": [[ADD], [MULTIPLY], "14"],
    "openai_agents_agent": [[("transfer_to_calculates", {})], [ADD, MULTIPLY], "14"],
    "smolagents_agent": [[ADD], [MULTIPLY], [("final_answer", {"answer": "14"})]],
}
# LangGraph sends its messages back as they were. The agent that takes a task over has instructions of its own.
# smolagents tells each call again in other words, so every prompt begins a new context.
CONTEXTS = {"langgraph_agent": [-1, 0, 1], "openai_agents_agent": [-1, -1, 1], "smolagents_agent": [-1, -1, -1]}
EVERY = pytest.mark.parametrize("name", sorted(PACKAGES))


def said(words: object) -> str:
    """What a model writes that makes these calls."""
    if isinstance(words, str):
        return words
    assert isinstance(words, list)
    calls = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in words]
    return "".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)


def test_every_program_is_tested_here():
    assert sorted(file.stem for file in (EXAMPLES / "agents").glob("*.py")) == sorted(PACKAGES) == sorted(SAID)


@EVERY
@pytest.mark.slow
def test_calls_are_carried_out_and_prompts_continue_what_they_extend(name):
    tokenizer = language_model().tokenizer
    with Open(tokenizer, Told(tokenizer, *map(said, SAID[name])), turn_tokens=200) as served:
        served.recorder.actor.context_limit = None
        given = {"OPENAI_BASE_URL": served.endpoint.url, "OPENAI_API_KEY": served.key, "AGENTRL_TASK": "(3+4)*2?"}
        words = [python_with(*PACKAGES[name]), EXAMPLES / "agents" / f"{name}.py"]
        env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | given
        ended = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300)
        assert (ended.stdout.strip(), ended.returncode) == ("14", 0), ended.stderr
        assert served.tokens().context.tolist() == CONTEXTS[name]
        told = "\n".join(message.content or "" for step in served.recorder.steps for message in step.asked)
    assert "(3+4)*2?" in told and "14" in told  # the task, and the tool's result


@EVERY
@pytest.mark.slow
def test_it_is_trained_as_it_is(name, tmp_path, monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    model = model_folder(tmp_path / "model", num_hidden_layers=1)
    command = f"agents.main.command={python_with(*PACKAGES[name])} agents/{name}.py"
    words = ["train", "agent.toml", f"model.path={model}", command, f"run.folder={tmp_path / 'runs'}"]
    few = ["run.iterations=1", "eval.tasks=1", "batch.tasks=1", "batch.copies=2", "eval.modes=['greedy']"]
    small = ["limits.turn_tokens=4", "limits.turns=3", "limits.fault_share=0", "engine.max_context=4096"]
    assert main([*words, *few, *small]) == 0
    run = tmp_path / "runs" / "agent"
    (graph,) = (read_graph(file) for file in (run / "graphs").glob("*.safetensors"))
    assert len(set(graph.rollout.tolist())) == 2 and graph.tokens.sampled.any()
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    (trained,) = (line for line in metrics if line["stage"] == "train")
    assert trained["mismatch_max"] < 1e-3  # what the engine sampled is what the trainer reads
