"""mini-swe-agent, the real package in a Python of its own, repairs a repository in the sandbox and is trained."""

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest

from agentrl.cli import main
from agentrl.config import resolve
from agentrl.env import make_pool, prompt_of, tasks_of
from agentrl.graph import read_graph
from tests.other_pythons import python_with
from tests.programs.test_endpoint import Open, Told
from tests.toys.language_model import language_model, model_folder

FOLDER = Path(__file__).parents[2] / "examples" / "repair"
PACKAGES = ("mini-swe-agent==2.4.6", "mcp")  # litellm imports mcp for calls with tools and does not require it


@pytest.mark.slow
@pytest.mark.timeout(1800)  # pip, on a busy machine
def test_mini_swe_agent_is_trained_on_repositories(tmp_path, monkeypatch):
    monkeypatch.chdir(FOLDER)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    model = model_folder(tmp_path / "model", num_hidden_layers=1, max_position_embeddings=32_768)
    command = f"agents.main.command={python_with(*PACKAGES)} mini_swe_agent.py"
    words = ["train", "mini_swe_agent.toml", f"model.path={model}", command, f"run.folder={tmp_path / 'runs'}"]
    few = ["run.iterations=1", "eval.tasks=1", "batch.tasks=1", "batch.copies=2", "eval.modes=['greedy']"]
    small = ["limits.turn_tokens=16", "limits.turns=3", "limits.fault_share=0", "engine.max_context=32768"]
    assert main([*words, *few, *small, "env.reward=share", "engine.max_slots=4"]) == 0
    run = tmp_path / "runs" / "mini-swe-agent"
    (graph,) = (read_graph(file) for file in (run / "graphs").glob("*.safetensors"))
    assert len(set(graph.rollout.tolist())) == 2 and graph.tokens.sampled.any()
    # A toy model calls no tool, so mini-swe-agent asks again and gives up; the repository is judged as it is.
    last = graph.ending > 0
    assert (graph.columns["signal/share"][last] >= 0).all() and not graph.columns["signal/program_failed"][last].any()
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    (trained,) = (line for line in metrics if line["stage"] == "train")
    assert trained["mismatch_max"] < 1e-3


@pytest.mark.slow
@pytest.mark.timeout(1800)  # pip, on a busy machine
def test_its_commands_run_in_the_sandbox_and_repair_the_repository():
    entry = resolve("envs", {"name": "code_repo"})
    task = next(task for task in tasks_of(entry) if task.key == "code_repo/1/getopt/3")
    ((path, old, new),) = task.params["fixes"]
    fix = f"python - <<'END'\ns = open({path!r}).read()\nopen({path!r}, 'w').write(s.replace({old!r}, {new!r}))\nEND"
    commands = ["pwd; cat /etc/passwd", "seq 16 17", fix, "python -m tests"]
    commands.append("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
    calls = [json.dumps({"name": "bash", "arguments": {"command": command}}) for command in commands]
    said = [f"I look.\n<tool_call>\n{call}\n</tool_call>" for call in calls]
    tokenizer, pool = language_model().tokenizer, make_pool(entry, "inline")
    handle = pool.acquire()
    with Open(tokenizer, Told(tokenizer, *said), turn_tokens=2_000) as served:

        def result(work):
            return asyncio.run_coroutine_threadsafe(work, served.loop).result()

        served.recorder.actor.context_limit, served.recorder.handle = None, handle
        first = result(handle.reset(task))
        given = {"OPENAI_BASE_URL": served.endpoint.url, "OPENAI_API_KEY": served.key, "AGENTRL_TASK": first.text}
        env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | given
        program = [python_with(*PACKAGES), FOLDER / "mini_swe_agent.py"]
        ended = subprocess.run(program, env=env, capture_output=True, text=True, timeout=300)
        assert ended.returncode == 0, ended.stderr
        steps = served.recorder.steps
        assert len(steps) == 5 and served.tokens().context.tolist() == [
            -1,
            0,
            1,
            2,
            3,
        ]  # one conversation, exact tokens
        told = [step.asked[-1].content for step in steps]
        assert "/work" in told[1] and "No such file" in told[1] and "9 passed, 0 failed" in told[4]
        assert json.loads(told[2]) == {"returncode": 0, "output": "16\n17"}  # a number is no exit code
        said_last = prompt_of(entry).parse(ended.stdout, first)
        assert ended.stdout == "ended: Submitted\n" and said_last.valid
        verdict = result(handle.step(said_last.action))
    assert verdict.reward == 1.0 and verdict.info["success"] and f"a/{path}" in verdict.info["result"]
    pool.close()
