"""The genuine package reasoning_gym: its questions, its verifiers, its levels."""

import asyncio
import hashlib
import json

import pytest

from agentrl.cli import main
from agentrl.config import resolve
from agentrl.env import make_pool, tasks_of
from agentrl.graph import read_graph
from agentrl.gym import check_env
from agentrl.types import EnvFault, Status

pytestmark = [pytest.mark.slow, pytest.mark.foreign, pytest.mark.timeout(1200)]  # processes on a busy machine


def entry(python: str, **options):
    return resolve("envs", {"name": "reasoning_gym", "python": python, **options}, "env")


def played(found, task, action):
    env = found.hooks.make(found.config)
    try:
        return env.reset(task), env.step(action)
    finally:
        env.close()


def test_it_keeps_the_promises_of_an_environment(reasoning_gym):
    assert check_env(entry(reasoning_gym, datasets=["leg_counting", "boxnet"], count=10)) == []


def test_the_package_scores(reasoning_gym):
    found = entry(reasoning_gym)
    task = tasks_of(found)[0]
    env = found.hooks.make(found.config)
    env.reset(task)
    right = env.ask("answer")
    for answer, score in ((right, 1.0), (f"{right}.0", 1.0), (str(int(right) + 1), 0.0), ("", 0.0)):
        _, result = played(found, task, answer)
        assert (result.reward >= 1) == (score == 1) and result.terminated
        assert result.info["success"] is (score == 1) and result.info["signals"]["score"] == result.reward
    assert played(found, task, "")[1].info["status"] == Status.PARSE_ERROR


def test_no_question_is_in_both_splits(reasoning_gym):
    """Sums of two digits: 180 questions or so, and 300 tasks of each split."""
    options = {"options": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}, "count": 300}
    seen = {}
    for split in ("train", "test"):
        found = entry(reasoning_gym, split=split, **options)
        env = found.hooks.make(found.config)
        seen[split] = {env.reset(task).text for task in tasks_of(found)}
    assert not seen["train"] & seen["test"] and len(seen["train"]) > 50 and len(seen["test"]) > 10
    assert {hashlib.sha256(text.encode()).digest()[0] % 5 == 0 for text in seen["test"]} == {True}


def test_levels_are_those_of_the_curriculum(reasoning_gym):
    found = entry(reasoning_gym, levels=[0, 4], count=2)
    tasks = tasks_of(found)
    assert [task.key for task in tasks][::2] == ["chain_sum/level-0/0", "chain_sum/level-4/0"]
    assert found.hooks.kind(tasks[-1]) == "chain_sum/level-4"
    env = found.hooks.make(found.config)
    easy, hard = (env.reset(tasks[i]).text for i in (0, 2))
    assert len(hard) > len(easy)


def test_demonstrators(reasoning_gym):
    found = entry(reasoning_gym, count=40)

    async def success(name: str) -> float:
        pool = make_pool(found)
        try:
            won = 0
            for task in tasks_of(found):
                handle = pool.acquire()
                await handle.reset(task)
                won += bool((await handle.step((await handle.act(name, 0)).action)).info["success"])
                pool.release(handle, broken=False)
            return won / 40
        finally:
            pool.close()

    assert asyncio.run(success("expert")) == 1.0
    assert asyncio.run(success("random")) < 0.2
    assert 0.2 < asyncio.run(success("careless:0.5")) < 0.8


def test_the_recipe_trains(reasoning_gym, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [
        f"env.python={reasoning_gym}",
        "env.count=40",
        "run.iterations=1",
        "run.graphs_every=1",
        "warmup.updates=1",
    ]
    words += ["warmup.episodes=8", "batch.tasks=2", "batch.copies=4", "eval.tasks=4", "update.old_logprob=trainer"]
    assert main(["train", "reasoning-gym-cpu", *words]) == 0
    run = tmp_path / "runs" / "reasoning-gym-cpu"
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    (trained,) = (one for one in metrics if one["stage"] == "train")
    assert trained["mismatch_max"] < 1e-3 and trained["episodes"] == 8  # few answers are right so early
    (graph,) = (read_graph(file) for file in (run / "graphs").glob("*.safetensors"))
    assert {key.rpartition("/")[0] for key in graph.names["group"]} <= {"chain_sum/level-0", "chain_sum/level-1"}


def test_an_answer_on_which_a_verifier_fails_scores_0_and_says_so(reasoning_gym):
    found = entry(reasoning_gym, datasets=["boxnet"])
    _, result = played(found, tasks_of(found)[0], "0")
    assert (result.reward, result.info["status"], result.info["signals"]["verifier_failed"]) == (
        0,
        Status.TOOL_ERROR,
        1,
    )
    env = found.hooks.make(found.config)
    env.reset(tasks_of(found)[0])
    with pytest.raises((EnvFault, ValueError), match="gives no answer to boxnet: it has no demonstrator"):
        env.ask("answer")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"datasets": ["chain_summ"]},
            "env.datasets: reasoning_gym has no dataset 'chain_summ': did you mean chain_sum",
        ),
        ({"levels": [99]}, "env.levels: chain_sum has the levels 0 to "),
        (
            {"datasets": ["acre"], "levels": [1]},
            "env.levels: acre has no curriculum in reasoning_gym: leave levels out",
        ),
        ({"options": {"min_termz": 3}}, "env.options: chain_sum refuses {'min_termz': 3, 'level': None}"),
        ({"options": {"min_terms": 0}}, "env.options: chain_sum refuses {'min_terms': 0, 'level': None}"),
        ({"datasets": ["n_queens"]}, "reasoning_gym's verifier of n_queens evaluates the answer as Python code"),
    ],
)
def test_a_mistake_is_one_sentence(reasoning_gym, options, sentence):
    with pytest.raises(ValueError) as error:
        tasks_of(entry(reasoning_gym, **options))
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_a_dataset_is_played_on_trust(reasoning_gym):
    found = entry(reasoning_gym, datasets=["n_queens"], trust=True)
    assert played(found, tasks_of(found)[0], "[]")[1].reward < 1


def test_without_the_package_there_is_one_sentence(capsys):
    assert main(["eval", "reasoning_gym", "--policy", "expert"]) == 2
    told = capsys.readouterr().err
    assert "has no package reasoning-gym" in told and "pip install reasoning-gym, or set env.python" in told
    assert "Traceback" not in told
