"""Which tasks are played: epochs, dynamic filtering, the curriculum, and going on from a checkpoint."""

import asyncio
import json
from collections import Counter

import numpy as np
import pytest

from agentrl.config import resolve
from agentrl.env import Limits, make_pool, tasks_of
from agentrl.rollout import BatchPlan, build_graph, collect
from agentrl.rollout.batches import batch_metrics
from agentrl.types import Status, Task
from tests.rollout.playing import FAULTY, entry, play_all, player, right
from tests.toys import faulty

TASKS = [Task(key=f"bin{i % 3}/{i}", env="walk", seed=i) for i in range(7)]


def sampler(name: str, tasks=TASKS, seed: int = 0, **options):
    found = resolve("sampler", {"name": name, **options})
    return found, found.hooks.make(found.config, tasks, seed)


class Endless:
    """More tasks than can be shuffled."""

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> Task:
        return Task(key=f"endless/{index}", env="walk", seed=index % 3)


@pytest.mark.parametrize("name", ["uniform", "dynamic"])
@pytest.mark.parametrize("size", [1, 3, 7, 10])
def test_each_epoch_has_each_task_once(name, size):
    _, draws = sampler(name)
    drawn = [draw.task.key for _ in range(7) for draw in draws.draw(size)]  # 7 * size tasks: `size` whole epochs
    assert len(drawn) == 7 * size
    epochs = [drawn[i : i + 7] for i in range(0, len(drawn), 7)]
    assert all(sorted(epoch) == sorted(task.key for task in TASKS) for epoch in epochs)
    if size > 3:
        assert len({tuple(epoch) for epoch in epochs}) > 1  # in another order each time


@pytest.mark.parametrize("name", ["uniform", "dynamic", "curriculum"])
@pytest.mark.parametrize("tasks", [TASKS, Endless()])
def test_draws_are_the_seeds_and_go_on_from_a_checkpoint(name, tasks):
    _, whole = sampler(name, tasks, 3)
    expected = [[d.task.key for d in whole.draw(4)] for _ in range(5)]
    _, first = sampler(name, tasks, 3)
    begun = [[d.task.key for d in first.draw(4)] for _ in range(2)]
    state = json.loads(json.dumps(first.state_dict()))
    _, second = sampler(name, tasks, 3)
    second.load_state_dict(state)
    assert begun + [[d.task.key for d in second.draw(4)] for _ in range(3)] == expected
    _, other = sampler(name, tasks, 4)
    assert [[d.task.key for d in other.draw(4)] for _ in range(5)] != expected


def outcome(won: dict[str, float]):
    """A graph of one-step episodes: task key -> score; None for one the environment spoiled."""
    from agentrl.rollout import EpisodeRecord, StepRecord
    from agentrl.types import Generation, Observation

    records = []
    for group, (key, score) in enumerate(won.items()):
        record = StepRecord(
            observation=Observation(text="x"),
            added=np.zeros(0, np.int64),
            continues=False,
            generation=Generation(text="a"),
            action="a",
            valid=True,
            status=Status.OK,
            reward=score or 0.0,
        )
        ending = Status.ENV_ERROR if score is None else Status.DONE
        task = Task(key=key, env="x")
        records.append(EpisodeRecord(task=task, group=group, copy=0, steps=[record], ending=ending))
    return build_graph(records)


def test_the_curriculum_by_hand():
    # bin0 wins always, bin1 half of the time, bin2 never; one batch, nothing forgotten.
    # v = (won + 0.5) / (n + 1): 4.5/5, 2.5/5, 0.5/5; weight sqrt(v (1 - v)) + 0.1
    _, draws = sampler("curriculum", floor=0.1, decay=1.0)
    draws.observe(outcome({f"bin{b}/{i}": float(b == 0 or (b == 1 and i < 2)) for b in range(3) for i in range(4)}))
    weights = [draws.weight(f"bin{b}/0") for b in range(3)]
    np.testing.assert_allclose(weights, [0.3 + 0.1, 0.5 + 0.1, 0.3 + 0.1])
    draws.observe(outcome({"bin2/0": None}))  # the environment's fault teaches nothing
    np.testing.assert_allclose([draws.weight(f"bin{b}/0") for b in range(3)], weights)


def test_the_curriculum_prefers_what_is_neither_solved_nor_hopeless():
    many = [Task(key=f"bin{i % 3}/{i}", env="x") for i in range(300)]
    _, draws = sampler("curriculum", many, floor=0.05)
    for _ in range(20):
        draws.observe(
            outcome({f"bin{b}/{i}": float(b == 0 or (b == 1 and i < 5)) for b in range(3) for i in range(10)})
        )
    drawn = Counter(draw.task.key.partition("/")[0] for _ in range(100) for draw in draws.draw(10))
    assert drawn["bin1"] > 2 * drawn["bin0"] > 0 and drawn["bin1"] > 2 * drawn["bin2"] > 0
    assert len({draw.task.key for draw in draws.draw(10)}) == 10


def test_the_curriculum_restores_what_it_learnt():
    _, draws = sampler("curriculum")
    draws.observe(outcome({"bin0/0": 1.0}))
    _, other = sampler("curriculum")
    other.load_state_dict(json.loads(json.dumps(draws.state_dict())))
    assert other.weight("bin0/0") == draws.weight("bin0/0") != draws.weight("bin1/0")


def test_dynamic_keeps_groups_whose_scores_vary():
    on = entry(FAULTY)
    some = [faulty.task(0), faulty.task(2, "raise", 1), faulty.task(2)]
    by = player(on, make_pool(on, "inline"), limits=Limits(turns=2, fault_share=1), seed=11)
    graph = build_graph(play_all(by, some, copies=8))
    found, _ = sampler("dynamic")
    kept = found.hooks.keep(found.config, graph)
    # task 0 (goal 1, two turns) is won by some; the other goal is out of reach, so its scores are all 0
    assert set(graph.group[kept]) == {0} and kept[graph.group == 0].all()


def gather(name: str, tasks, *, wanted: int, policy=None, turns: int = 2, **options):
    on = entry()
    found, draws = sampler(name, tasks, **options)
    by = player(on, make_pool(on, "inline"), policy=policy, limits=Limits(turns=turns), seed=2)
    plan = BatchPlan(sampler=draws, sampler_entry=found, tasks=wanted, copies=4)
    return asyncio.run(collect(by, plan, iteration=5)), draws


def test_a_batch_without_a_filter_is_what_was_drawn():
    batch, _ = gather("uniform", tasks_of(entry()), wanted=3)
    assert sorted(set(batch.graph.group)) == [0, 1, 2] and len(batch.records) == 12
    assert (
        batch.metrics["groups_played"],
        batch.metrics["groups_dropped"],
        batch.metrics["groups_filled"],
    ) == (3, 0, 0)


def test_dynamic_batches_keep_their_size_and_are_counted():
    # Goals 1, 2 and 3 with two turns: goal 1 varies, goal 2 sometimes, goal 3 never.
    tasks = [Task(key=f"walk/{i}", env="walk", seed=i) for i in range(30)]
    batch, draws = gather("dynamic", tasks, wanted=6)
    scores: dict[int, set[float]] = {}
    for record in batch.records:
        scores.setdefault(record.group, set()).add(sum(step.reward for step in record.steps))
    assert sorted(scores) == list(range(6)) and all(len(values) > 1 for values in scores.values())
    metrics = batch.metrics
    assert metrics["groups_played"] > 6 and metrics["groups_dropped"] == metrics["groups_played"] - 6
    assert metrics["groups_filled"] == 0 and metrics["constant_groups"] == 0
    assert draws.state_dict() == {"drawn": metrics["groups_played"]}
    keys = [(r.group, r.task.key) for r in batch.records]
    assert all(len({key for g, key in keys if g == group}) == 1 for group in range(6))


def test_a_batch_that_never_varies_is_filled_after_the_last_try():
    batch, _ = gather("dynamic", tasks_of(entry(goal=9)), wanted=3, policy=right(), max_rounds=4)
    metrics = batch.metrics
    assert len(batch.records) == 12
    assert (metrics["groups_played"], metrics["groups_dropped"], metrics["groups_filled"]) == (12, 9, 3)


def test_the_same_seed_collects_the_same_batch():
    tasks = [Task(key=f"walk/{i}", env="walk", seed=i) for i in range(30)]
    a, b = (gather("dynamic", tasks, wanted=4)[0] for _ in range(2))
    assert a.metrics == b.metrics
    for name, column in a.graph.columns.items():
        np.testing.assert_array_equal(column, b.graph.columns[name])


def test_metrics_of_a_batch_leave_spoiled_rollouts_out():
    on = entry(FAULTY)
    some = [faulty.task(0), faulty.task(1, "raise", 0), faulty.task(2)]
    by = player(on, make_pool(on, "inline"), policy=right(), limits=Limits(turns=2, fault_share=1))
    metrics = batch_metrics(play_all(by, some, copies=2))
    # task 0 is won in 1 step, task 2 not in 2; the two rollouts of task 1 are lost
    assert metrics["success"] == 0.5 and metrics["steps"] == 1.5 and metrics["episodes"] == 4
    assert metrics["env_error_share"] == pytest.approx(1 / 3) and metrics["retried"] == 2
    assert metrics["truncated_share"] == 0.5 and metrics["invalid_share"] == 0.0
