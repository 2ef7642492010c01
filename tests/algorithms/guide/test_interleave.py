"""Imitation between updates: what fails in every copy is shown once, collected, and given when a lesson is full."""

import asyncio

import numpy as np
import pytest

from agentrl.config import resolve
from agentrl.env import Limits, make_pool, tasks_of
from agentrl.rollout import Draw, LessonGuide, play
from tests.rollout.playing import entry, player, right

ON = entry(goal=3, count=4)
TASKS = tasks_of(ON)


def guide(**options):
    found = resolve("guide", {"name": "interleave", **options})
    return found.hooks.make(found.config, 0)


def episodes(won: dict[int, list[bool]]):
    """Chains of the tasks with these numbers: solved in three steps, or cut off after two."""
    records = []
    for number, copies in won.items():
        for one in copies:
            by = player(ON, make_pool(ON, "inline"), policy=right(), limits=Limits(turns=3 if one else 2))
            (record,) = asyncio.run(play(by, [TASKS[number]]))
            record.group = number
            records.append(record)
    return records


def wanted(chosen, numbers=range(4)) -> list[str]:
    return [task.key for task in chosen.wanted([Draw(task=TASKS[i]) for i in numbers])]


def test_lessons_by_hand():
    chosen = guide(episodes=2)
    assert isinstance(chosen, LessonGuide)
    chosen.observe(episodes({0: [False, False], 1: [False, True], 2: [False]}))
    assert wanted(chosen) == ["walk/0", "walk/2"]  # task 1 was solved by one copy
    chosen.shown(episodes({0: [True], 2: [False]}))
    assert chosen.lesson() is None and wanted(chosen) == []  # one demonstration; the expert did not solve task 2
    chosen.observe(episodes({3: [False]}))
    chosen.shown(episodes({3: [True]}))
    lesson = chosen.lesson()
    assert [lesson.names["group"][g] for g in lesson.group[lesson.first]] == ["walk/0", "walk/3"]
    assert (lesson.score[lesson.first] == 1).all() and len(lesson) == 6
    assert chosen.lesson() is None and wanted(chosen) == []  # they must fail again first
    chosen.observe(episodes({0: [False]}))
    assert wanted(chosen) == ["walk/0"]


@pytest.mark.parametrize("seed", range(5))
def test_lessons_are_those_of_a_slow_account(seed):
    rng = np.random.default_rng(seed)
    chosen = guide(episodes=3, patience=2)
    solved, failed = episodes({0: [True], 1: [True], 2: [True], 3: [True]}), episodes({i: [False] for i in range(4)})
    fails, waiting = [0] * 4, []
    for _ in range(25):
        batch = sorted(rng.choice(4, size=2, replace=False).tolist())
        due = [i for i in batch if fails[i] >= 2 and i not in waiting]
        assert wanted(chosen, batch) == [TASKS[i].key for i in due]
        chosen.shown([solved[i] for i in due])
        waiting += due
        won = {i: bool(rng.random() < 0.3) for i in batch}
        chosen.observe([solved[i] if one else failed[i] for i, one in won.items()])
        for i, one in won.items():
            fails[i] = 0 if one else fails[i] + 1
        lesson = chosen.lesson()
        assert (lesson is not None) == (len(waiting) >= 3)
        if lesson is not None:
            assert [lesson.names["group"][g] for g in lesson.group[lesson.first]] == [TASKS[i].key for i in waiting]
            for i in waiting:
                fails[i] = 0
            waiting = []


def test_a_state_goes_on():
    chosen, other = guide(), guide()
    chosen.observe(episodes({0: [False], 1: [False]}))
    chosen.shown(episodes({0: [True]}))
    other.load_state_dict(chosen.state_dict())
    assert wanted(other) == wanted(chosen) == ["walk/1"]
    for name, column in chosen.buffer["walk/0"].columns.items():
        np.testing.assert_array_equal(other.buffer["walk/0"].columns[name], column)
