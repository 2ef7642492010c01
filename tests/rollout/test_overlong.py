"""Tasks whose first prompt leaves no token for an answer: left out, counted, and too many of them stop a run."""

import asyncio
import pickle
from dataclasses import replace

import pytest

from agentrl.config import resolve
from agentrl.env import Limits, make_pool, tasks_of
from agentrl.evaluate import compare, evaluate
from agentrl.rollout import (
    BatchPlan,
    Draw,
    Expansion,
    Opening,
    OpeningTurn,
    OverlongTasks,
    PolicyActor,
    Provision,
    build_graph,
    collect,
    lost,
    overlong_counts,
    play,
)
from agentrl.rollout.episode import play_starts
from agentrl.rollout.player import Start
from agentrl.types import Status
from tests.chat.chats import chat
from tests.rollout.playing import entry, play_all, player
from tests.rollout.test_episode import Speaker

SIGNS = "tests.toys.signs"
CONTEXT = 250
REASON = r"the first prompt of task signs/0 has \d+ tokens, the model's context is 250: raise engine.max_context"


def speaking(*, share: float = 1.0, limit: int = CONTEXT, turns: int = 3, text: str = "right", **options):
    """A player, and the environment."""
    on = entry(SIGNS, **options)
    words = chat("plain")
    actor = PolicyActor(Speaker(words, text), words, limit)
    return player(on, make_pool(on, "inline"), actor=actor, limits=Limits(turns=turns, fault_share=share)), on


class InOrder:
    """Draws the tasks of a list, over and over."""

    def __init__(self, tasks):
        self.tasks, self.drawn, self.seen = tasks, 0, []

    def draw(self, count):
        found = [self.tasks[(self.drawn + i) % len(self.tasks)] for i in range(count)]
        self.drawn += count
        return [Draw(task=task) for task in found]

    def observe(self, graph):
        self.seen.append(list(graph.names["group"]))


def plan_of(on, *, tasks: int = 2, rollout: str = "chain", **more) -> BatchPlan:
    sampler = InOrder(tasks_of(on))
    uniform = resolve("sampler", {"name": "uniform"})
    return BatchPlan(
        sampler=sampler,
        sampler_entry=uniform,
        tasks=tasks,
        copies=2,
        rollout=resolve("rollout", {"name": rollout}),
        **more,
    )


@pytest.mark.fault
def test_a_task_whose_first_prompt_does_not_fit_is_left_out_and_its_siblings_play():
    by, on = speaking(share=0.5)
    records = play_all(by, tasks_of(on), copies=2)
    assert [record.ending for record in records[:4]] == [Status.OVERLONG_PROMPT] * 2 + [Status.DONE] * 2
    assert all(not record.steps and lost(record) for record in records if record.ending == Status.OVERLONG_PROMPT)
    (reason, count), *_ = overlong_counts(records).items()
    assert count == 2 and reason.startswith("the first prompt of task signs/0 has ")
    assert {name.partition("#")[0] for name in build_graph(records).names["episode"]} == {"signs/1", "signs/3"}


def test_more_of_them_than_the_limit_allows_are_one_sentence():
    by, on = speaking(share=0.4)
    with pytest.raises(ValueError, match=r"first prompts of 2 of 4 episodes .* 40% \(limits.fault_share\).*signs/2"):
        play_all(by, tasks_of(on))
    assert len(asyncio.run(play(by, tasks_of(on), overlong=0.5))) == 4


def test_another_group_takes_the_place_of_such_a_task():
    by, on = speaking(count=5, long=3)  # signs/0 and signs/3
    plan = plan_of(on)
    batch = asyncio.run(collect(by, plan, iteration=0))
    assert batch.graph.names["group"] == ("signs/1", "signs/2") and plan.sampler.seen == [["signs/1", "signs/2"]]
    assert [record.task.key for record in batch.left_out] == ["signs/0"] * 2
    assert (batch.metrics["groups_played"], batch.metrics["groups_dropped"]) == (3, 1)
    assert batch.metrics["overlong_prompt_share"] == pytest.approx(2 / 6) and batch.metrics["env_error_share"] == 0
    assert "overlong_prompt_share" not in asyncio.run(collect(speaking(long=0)[0], plan_of(on), iteration=0)).metrics


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_batch_in_which_no_prompt_fits_is_one_sentence(tasks):
    by, on = speaking(long=1)
    with pytest.raises(ValueError, match=rf"groups of one batch were left out, .* {REASON[:30]}"):
        asyncio.run(collect(by, plan_of(on, tasks=tasks), iteration=0))
    with pytest.raises(ValueError, match="groups of one batch were left out"):
        asyncio.run(Provision().batch(by, plan_of(on, tasks=tasks, provision=2.0), iteration=0, version=0))


def test_groups_in_flight_are_replaced_too():
    by, on = speaking(count=6, long=3)
    plan = plan_of(on, provision=1.5)
    batch = asyncio.run(Provision().batch(by, plan, iteration=0, version=0))
    assert not {"signs/0", "signs/3"} & set(batch.graph.names["group"]) and len(batch.graph.names["group"]) == 2
    assert {record.task.key for record in batch.left_out} <= {"signs/0", "signs/3"} and batch.left_out


@pytest.mark.parametrize("name", ["chain", "tree", "candidates", "vine"])
def test_every_rollout_method_leaves_such_a_task_out(name):
    by, on = speaking(count=2, turns=2, text="left")
    found = resolve("rollout", {"name": name})
    batch = Expansion(by, [Draw(task=task) for task in tasks_of(on)])
    records = asyncio.run(found.hooks.rollout(found.config, batch, 2))
    batch.finish()
    long = [record for record in records if record.task.key == "signs/0"]
    assert long and all(record.ending == Status.OVERLONG_PROMPT and not record.steps for record in long)
    assert all(record.steps and not lost(record) for record in records if record not in long)


def test_words_and_openings_may_make_a_first_prompt_too_long():
    """Both chains are of one task, whose own prompt fits; only the chain with help is left out."""
    by, on = speaking(long=0)
    (task, *_) = tasks_of(on)
    starts = [
        Start(task=task, group=0, copy=0, session=0),
        Start(task=task, group=0, copy=1, session=1, words="right " * 400),
    ]
    records = asyncio.run(play_starts(by, starts))
    assert [record.ending for record in records] == [Status.DONE, Status.OVERLONG_PROMPT]
    ids = tuple(by.actor.chat.answer("left " * 300).tolist())
    turns = (OpeningTurn("left", ids, "You are at 0, the goal is 1."),)
    opening = Opening(turns=turns, state="You are at -1, the goal is 1.")
    (record,) = asyncio.run(play_starts(by, [Start(task=task, group=0, copy=0, session=0, opening=opening)]))
    assert (record.ending, record.steps) == (Status.OVERLONG_PROMPT, [])


def test_an_evaluation_leaves_such_a_task_out_of_every_rate():
    by, on = speaking(share=0.5, count=4)
    report = asyncio.run(evaluate(by, on, tasks_of(on), {}))
    summary = report.summary()
    assert summary["endings"] == {"done": 2, "overlong_prompt": 2} and summary["episodes"] == 2
    assert summary["success_rate"] == 1.0 and summary["env_errors"] == 0
    assert sum(summary["overlong_prompts"].values()) == 2
    stored = {"panel": "p", "benchmark": "b", "outcomes": [vars(one) for one in report.outcomes]}
    assert compare(stored, stored)["episodes"] == 2
    strict, _ = speaking(share=0.25, count=4)
    with pytest.raises(ValueError, match=r"first prompts of 2 of 4 episodes leave no token"):
        asyncio.run(evaluate(strict, on, tasks_of(on), {}))


def test_the_share_is_that_of_all_tasks_of_a_short_list_or_of_measured_tasks():
    by, on = speaking(count=5, long=5)
    records = play_all(by, tasks_of(on))
    long, rest = records[:1], records[1:]
    OverlongTasks(tasks_of(on), False, 0.2).add(rest[:1], long)  # 1 of 5, although it is 1 of 2 drawn
    with pytest.raises(ValueError, match=r"the first prompts of 1 of 5 tasks .* the limit is 19%"):
        OverlongTasks(tasks_of(on), False, 0.19).add(rest[:1], long)
    many = tasks_of(entry(SIGNS, count=1000))
    OverlongTasks(many, True, 0.001).add(rest, long)
    with pytest.raises(ValueError, match=r"of 100 tasks that were drawn, counted as at least 100,"):
        OverlongTasks(many, False, 0.001).add(rest, long)


def test_the_share_goes_on_from_a_checkpoint():
    """A run that stopped counts the tasks that it had left out before, as the run without a stop does."""
    by, on = speaking(count=5, long=5)
    records = play_all(by, tasks_of(on))
    many = tasks_of(entry(SIGNS, count=1000))
    before = OverlongTasks(many, False, 0.01)
    before.add(records[1:], records[:1])
    after = OverlongTasks(many, False, 0.01)
    after.load_state_dict(pickle.loads(pickle.dumps(before.state_dict())))
    after.add(records[1:], records[:1])  # the same task again
    with pytest.raises(ValueError, match="the first prompts of 2 of 100 tasks"):
        after.add([], [replace(records[0], task=replace(records[0].task, key="signs/900"))])
