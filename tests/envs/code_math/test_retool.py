"""Every part of ReTool's setting runs here: only the model, the problems and the sizes are small."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from agentrl.cli import main
from agentrl.engines.hf import Config as Embedded
from agentrl.env import tasks_of
from agentrl.files import read_toml
from agentrl.graph import read_graph
from agentrl.settings import Settings
from agentrl.tool import action as tool_action, open_runner

RECIPE = Path(__file__).parents[3] / "benchmarks" / "recipes" / "retool-7b.toml"
SIZES = (
    "model={new={layers=1, hidden=32, heads=2, kv_heads=1, intermediate=64, max_positions=2048}}",
    "run.iterations=1",
    "run.threads=1",
    "run.graphs_every=1",
    "eval.every=0",
    "eval.tasks=2",
    "engine.name=hf",  # tests/runs/test_gpu_recipes.py runs it on a server and on two processes
    "engine.max_slots=8",
    "learner.processes=1",
    "engine.max_context=1024",
    "limits.turn_tokens=12",
    "limits.episode_tokens=48",
    "batch.tasks=2",
    "batch.copies=2",
    "update.minibatches=2",
    "update.max_tokens=4096",
)
# By default a model made from scratch would be warmed up, and see the environment's prompt for small models.
AS_PUBLISHED = ("warmup.updates=0", "env.prompt=chat")


@pytest.fixture(scope="module")
def words(tmp_path_factory) -> list[str]:
    """Overrides: small sizes, and problems with the columns of DAPO-Math and of AIME."""
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").Table
    folder = tmp_path_factory.mktemp("data")
    asked = "Solve the following math problem step by step. What is {n} * {n}?"
    rows = [
        {
            "data_source": "math_dapo",
            "prompt": [{"content": asked.format(n=n), "role": "user"}],
            "ability": "MATH",
            "reward_model": {"ground_truth": str(n * n), "style": "rule-lighteval/MATH_v2"},
        }
        for n in range(12, 20)
    ]
    parquet.write_table(table.from_pylist(rows), folder / "dapo.parquet")
    aime = [{"problem": f"Find {n} + 1.", "answer": str(n + 1)} for n in range(3)]
    (folder / "aime.jsonl").write_text("".join(json.dumps(row) + "\n" for row in aime))
    return [*SIZES, *AS_PUBLISHED, f"env.rows={folder / 'dapo.parquet'}", f"eval.env.rows={folder / 'aime.jsonl'}"]


def test_the_published_setting_resolves_without_data(capsys):
    assert main(["train", str(RECIPE), "--dry-run"]) == 0
    assert "Qwen/Qwen2.5-7B-Instruct" in capsys.readouterr().out
    settings = Settings.load(RECIPE)
    tables, config = settings.tables, settings.env.config
    assert (config.convention, config.reward, config.strict, config.print_last) == ("retool", "retool", True, True)
    assert (tables.limits.turns, tables.limits.episode_tokens, settings.engine.config.max_context) == (
        8,
        16384,
        2048 + 16384,
    )
    assert (tables.batch.tasks, tables.batch.copies, tables.update.minibatches) == (64, 16, 64 // 16)
    assert tables.run.iterations == 17398 // 64  # verl drops the last, incomplete batch


def test_what_is_missing_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", str(RECIPE)]) == 2
    assert "data/dapo-math-17k.parquet" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def settings(words):
    loaded = Settings.load(RECIPE, words)
    try:
        open_runner(loaded.env.config.sandbox)
    except ValueError as why:
        pytest.skip(str(why))
    return loaded


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("x = 12\nx * x", "144\n"),  # the last line is printed
        ("```python\nprint(1 + 1)\n```", "2\n"),  # the first fenced block
        ("for i in range(2):\n    print(i)", "0\n1\n"),  # an indented last line is left alone
    ],
)
def test_a_call_is_answered_in_the_recipes_words(settings, code, told):
    env = settings.env.hooks.make(settings.env.config)
    env.reset(tasks_of(settings.env)[0])
    assert env.step(tool_action.call("code_interpreter", code=code)).observation.text == told
    env.close()


def test_rewards_by_hand(settings):
    # 12 * 12 = 144. Right: 1. Wrong: -1 + 0.1 for each turn with calls, at most -0.6: none -1, one -0.9, seven -0.6.
    for answer, calls, reward in (
        ("so \\boxed{144}", 1, 1.0),
        ("144", 0, -1.0),
        ("\\boxed{7}", 1, -0.9),
        ("\\boxed{7}", 7, -0.6),
    ):
        env = settings.env.hooks.make(settings.env.config)
        env.reset(tasks_of(settings.env)[0])
        for _ in range(calls):
            env.step(tool_action.call("code_interpreter", code="print(1)"))
        assert env.step(tool_action.answer(answer)).reward == pytest.approx(reward)
        env.close()


def test_it_trains_and_evaluates(words, settings, tmp_path):
    assert main(["train", str(RECIPE), f"run.folder={tmp_path}", *words]) == 0
    run = tmp_path / "retool-7b"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [r["name"] for r in rows if r["stage"] == "eval"] == ["start", "end"]
    (train,) = [r for r in rows if r["stage"] == "train"]
    assert all(math.isfinite(value) for value in train.values() if isinstance(value, float))
    published, here = Settings.load(RECIPE).dump(), read_toml(run / "config.toml")
    differing = {f"{s}.{k}" for s in published for k in published[s] if published[s][k] != here[s].get(k)}
    sizes = [text for text in words if text not in AS_PUBLISHED and not text.startswith(("model=", "eval.env."))]
    small = {text.partition("=")[0] for text in sizes}
    of_servers = {f"engine.{name}" for name in published["engine"].keys() - Embedded.model_fields.keys() - {"name"}}
    own = {"run.folder", "run.date", "model.path", "eval.env"}
    assert differing == (small - {"engine.max_slots"}) | of_servers | own
    graph = read_graph(next((run / "graphs").glob("*.safetensors")))
    assert len(np.unique(graph.rollout)) == 4 and set(np.round(graph.reward, 6)) <= {0.0, -1.0, -0.9, -0.8, -0.7, -0.6}
