"""Replayed rollouts: which join, what they count in, and what they leave as it is."""

import json

import numpy as np
import pytest

from agentrl.config import resolve
from agentrl.credit import assign, rescore, resolve_rewards
from agentrl.graph import StepGraph, concatenate, extract
from agentrl.rollout import Replay
from agentrl.settings import Settings
from tests.algorithms.credit.steps import chain, graph_of
from tests.toys.entries import credit_method
from tests.toys.runs import TOY


def replay(name: str, **options) -> Replay:
    return Replay(resolve("replay", {"name": name, **options}), 0)


def batch(scores: dict[str, list[float]], at: str = "") -> StepGraph:
    """Episodes of one step, by task; the state is the task's."""
    rows = [
        dict(row, state="s")
        for key, won in scores.items()
        for i, x in enumerate(won)
        for row in chain(key, f"{key}{at}{i}", [x])
    ]
    return graph_of(rows)


def advantage(graph: StepGraph, name: str = "grpo", **options) -> np.ndarray:
    return assign(credit_method(name, **options), graph).advantage


def test_a_success_joins_the_group_that_failed_by_hand():
    buffer = replay("successes", when="failed")
    buffer.add(batch({"t": [1.0, 0.0], "u": [1.0]}), 0)
    joined = buffer.join(batch({"t": [0.0, 0.0, 0.0], "u": [1.0, 0.0], "v": [0.0]}), 3)
    assert joined.column("replayed").tolist() == [False] * 6 + [True]
    assert joined.column("age").tolist() == [0.0] * 6 + [3.0]
    assert joined.names["group"][joined.group[6]] == "t"
    # scores 0, 0, 0, 1: mean 1/4
    np.testing.assert_allclose(advantage(joined, std="none"), [-0.25] * 3 + [0.5, -0.5, 0.0, 0.75])
    assert buffer.metrics(joined) == {"replayed_share": 1 / 7, "replayed_age": 3.0}


def test_rows_outside_the_statistics_are_judged_by_the_fresh_ones():
    buffer = replay("recent", copies=2)
    buffer.add(batch({"t": [1.0, 0.5]}), 0)
    joined = buffer.join(batch({"t": [0.0, 1.0]}), 1)
    # mean of the fresh rollouts 1/2: replayed 1.0 and 0.5 get 1/2 and 0
    np.testing.assert_allclose(advantage(joined, std="none"), [-0.5, 0.5, 0.5, 0.0])
    credit = assign(credit_method("grpo"), joined)
    assert credit.assigned.all() and (joined.weight == 1).all()  # and they are trained with their whole weight


@pytest.mark.parametrize("copies", [1, 2, 4])
@pytest.mark.parametrize(("name", "options"), [("rloo", {}), ("grpo", {"std": "none"})])
def test_the_others_of_a_row_outside_the_statistics_are_all_fresh_rows(name, options, copies):
    fresh = [float(k % 2) for k in range(copies)]
    buffer = replay("recent")
    buffer.add(batch({"t": [1.0]}, "old"), 0)
    found = advantage(buffer.join(batch({"t": fresh}), 1), name, **options)
    assert found[-1] == pytest.approx(1.0 - np.mean(fresh))
    np.testing.assert_allclose(found[:-1], advantage(batch({"t": fresh}), name, **options))


def test_a_stored_step_beside_one_fresh_step_of_its_state_is_compared_with_it():
    buffer = replay("recent")
    buffer.add(batch({"t": [3.0]}, "old"), 0)
    joined = buffer.join(batch({"t": [1.0]}), 1)
    # episode and step term: 3 less the only fresh return, 1; the fresh step is alone
    np.testing.assert_allclose(advantage(joined, "gigpo", std="none", gamma=1), [0.0, 4.0])


REWARDS = {
    "sum": [{"name": "weighted_sum", "weights": {"env_reward": 1.0, "brief": 10.0}}],
    "against the group": [{"name": "group_normalised", "weights": {"env_reward": 1.0, "brief": 0.5}}],
    "two": [
        {"name": "weighted_sum", "weights": {"env_reward": 2.0}},
        {"name": "group_normalised", "weights": {"brief": 0.5}},
    ],
}


def signalled(graph: StepGraph, brief: list[float]) -> StepGraph:
    return graph.with_columns(**{"signal/brief": np.array(brief)})


@pytest.mark.parametrize("section", REWARDS.values(), ids=REWARDS)
@pytest.mark.parametrize("name", ["recent", "successes"])
def test_the_own_rollouts_of_a_batch_have_equal_rewards_when_they_are_replayed(name, section):
    rewards = resolve_rewards(section)
    fresh = rescore(signalled(batch({"t": [1.0, 0.0, 1.0], "u": [1.0, 0.5]}), [0.1, 0.2, 0.3, 0.4, 0.5]), rewards)
    buffer = replay(name, copies=9, statistics=False)
    buffer.add(fresh, 0)
    joined = buffer.join(fresh, 1, rewards)
    twin = {name: row for row, name in enumerate(fresh.names["episode"])}
    rows = [twin[joined.names["episode"][one]] for one in joined.episode.tolist()]
    for column in ("reward", "env_reward", "env_score", "signal/brief"):
        np.testing.assert_allclose(joined.columns[column], fresh.columns[column][rows], err_msg=column)
    np.testing.assert_array_equal(joined.succeeded, fresh.succeeded[rows])
    assert joined.column("replayed").any()


def test_a_replayed_success_is_better_than_a_failure_by_hand():
    # env + 10 brief: the stored success 1 + 3 = 4 beside the fresh 1 + 2 = 3 and 0 + 2 = 2
    rewards = resolve_rewards(REWARDS["sum"])
    buffer = replay("successes", statistics=False)
    buffer.add(rescore(signalled(batch({"t": [1.0, 0.0]}, "old"), [0.3, 0.1]), rewards), 0)
    joined = buffer.join(rescore(signalled(batch({"t": [1.0, 0.0]}), [0.2, 0.2]), rewards), 1, rewards)
    assert joined.reward.tolist() == [3.0, 2.0, 4.0] and joined.columns["env_reward"].tolist() == [1.0, 0.0, 1.0]
    np.testing.assert_allclose(advantage(joined, std="none"), [0.5, -0.5, 1.5])


@pytest.mark.parametrize("name", ["grpo", "gigpo", "graft", "graph_gpo", "rloo", "hgpo"])
def test_values_only_never_enters_the_gradient(name):
    buffer = replay("values_only")
    buffer.add(batch({"t": [1.0, 1.0, 0.0]}), 0)
    fresh = batch({"t": [0.0, 0.0], "u": [1.0, 0.0]})
    joined = buffer.join(fresh, 1)
    credit = assign(credit_method(name), joined)
    assert credit.assigned.tolist() == [True] * 4 + [False] * 3
    assert not credit.positive[4:].any() and not credit.negative[4:].any() and not credit.weight[4:].any()
    alone = assign(credit_method(name), fresh).advantage
    assert (alone[:2] == 0).all() or name == "graft"  # no variance, no credit
    if name in ("grpo", "gigpo", "rloo", "hgpo"):
        assert (credit.advantage[:2] < 0).all()  # others of this task were solved
    np.testing.assert_allclose(credit.advantage[2:4], alone[2:])  # other groups see nothing


@pytest.mark.parametrize("seed", range(8))
def test_a_joined_group_is_credited_like_one_that_was_played_so(seed):
    rng = np.random.default_rng(seed)
    fresh, old = rng.normal(size=4).round(2).tolist(), rng.normal(size=3).round(2).tolist()
    buffer = replay("values_only", copies=3)
    buffer.add(batch({"t": old}), 0)
    joined = advantage(buffer.join(batch({"t": fresh}), 1), "gigpo")
    whole = advantage(batch({"t": [*fresh, *old]}), "gigpo")
    np.testing.assert_allclose(joined[:4], whole[:4])


def test_the_buffer_forgets_the_oldest_and_the_too_old():
    buffer = replay("recent", keep=3, copies=9, max_age=2, tasks=2)
    for iteration in range(5):
        buffer.add(batch({"t": [float(iteration)]}), iteration)
    joined = buffer.join(batch({"t": [0.0]}), 5)
    assert sorted(joined.column("age").tolist()) == [0.0, 1.0, 2.0]
    buffer.add(batch({"u": [1.0], "v": [1.0]}), 5)
    assert [*buffer.rollouts] == ["u", "v"]


def test_what_is_replayed_is_not_stored_again_and_states_go_on():
    buffer = replay("successes", copies=2)
    buffer.add(batch({"t": [1.0]}), 0)
    joined = buffer.join(batch({"t": [0.0]}), 1)
    buffer.add(joined, 1)
    assert [one.iteration for one in buffer.rollouts["t"]] == [0]
    other = replay("successes", copies=2)
    other.load_state_dict(buffer.state_dict())
    ours, theirs = (one.join(batch({"t": [0.0, 0.0]}), 2) for one in (buffer, other))
    for name, column in ours.columns.items():
        np.testing.assert_array_equal(column, theirs.columns[name])


def test_draws_of_successes_are_the_seeds():
    buffer = replay("successes", copies=2, keep=30)
    buffer.add(batch({"t": [1.0 + i for i in range(20)]}), 0)
    fresh = batch({"t": [0.0]})
    first, again, later = (buffer.join(fresh, i).score.tolist() for i in (1, 1, 2))
    assert first == again != later


def test_bad_options_are_told(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"replay\.runs: .*empty has no graphs"):
        replay("recent", runs=[str(tmp_path / "empty")])
    tables = {**TOY, "env": {"name": "tests.toys.walk"}, "eval": {"env": {"first": 9}}, "replay": {"name": "recent"}}
    Settings(tables)
    with pytest.raises(ValueError, match=r"would count replayed rollouts again: choose another credit method"):
        Settings({**tables, "credit": {"name": "single_stream"}})
    with pytest.raises(ValueError, match=r"choose rollout\.name=chain"):
        Settings({**tables, "rollout": {"name": "tree"}, "credit": {"name": "tree_grpo"}})
    with pytest.raises(ValueError, match=r"set update\.old_logprob='engine'"):
        Settings({**tables, "loss": {"name": "m2po"}})
    Settings({**tables, "loss": {"name": "m2po"}, "update": {"old_logprob": "engine"}})


def test_states_of_old_steps_give_a_baseline_to_a_step_alone():
    def steps(episode: str, *pairs):
        rows = chain("t", episode, [reward for _, reward in pairs])
        return [dict(row, state=state) for row, (state, _) in zip(rows, pairs, strict=True)]

    buffer = replay("values_only")
    buffer.add(graph_of([*steps("old1", ("a", 0.0), ("b", 1.0)), *steps("old2", ("a", 0.0), ("c", 0.0))]), 0)
    fresh = graph_of(steps("new", ("a", 0.0), ("b", 0.0)))
    assert not advantage(fresh, "gigpo", std="none", gamma=1).any()
    # episodes: score 0 in a group of 0, 1, 0: -1/3. Steps: at a returns 0, 1, 0: -1/3; at b returns 0, 1: -1/2
    found = advantage(buffer.join(fresh, 1), "gigpo", std="none", gamma=1)
    np.testing.assert_allclose(found[:2], [-1 / 3 - 1 / 3, -1 / 3 - 1 / 2])


def test_extract_and_concatenate_are_what_the_buffer_does():
    fresh, old = batch({"t": [0.0], "u": [1.0]}), batch({"u": [2.0], "t": [3.0]}, "old")
    buffer = replay("recent")
    buffer.add(old, 0)
    joined = buffer.join(fresh, 1)
    mine = concatenate([fresh, *(extract(old, np.array([row])) for row in (1, 0))])
    for name in {*mine.columns} - {"line"}:
        np.testing.assert_array_equal(joined.columns[name], mine.columns[name])
    assert json.dumps(joined.names["group"]) == json.dumps(mine.names["group"])
