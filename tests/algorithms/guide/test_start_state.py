"""Start states: chains that begin at a point of a success, which moves backwards as success rises."""

import asyncio
import json
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from agentrl.config import resolve
from agentrl.env import Limits, make_pool, tasks_of
from agentrl.rollout import BatchPlan, Draw, Opening, OpeningTurn, build_graph, collect, play
from agentrl.rollout.successes import Success
from agentrl.types import Status
from tests.rollout.playing import entry, player, right
from tests.toys import walk


def guide(**options):
    found = resolve("guide", {"name": "start_state", **options})
    return found.hooks.make(found.config, 0)


def far(goal: int = 4, **options):
    """A corridor that Random hardly solves in `turns`, and how it is played."""
    on = entry(goal=goal, count=2)
    return on, player(on, make_pool(on, "inline"), **{"limits": Limits(turns=goal, fault_share=1), **options})


@cache
def straight(goal: int = 4) -> list:
    on, by = far(goal, policy=right())
    return asyncio.run(play(by, tasks_of(on)))


def gather(by, on, chosen, demonstrate=None, copies: int = 4, iteration: int = 0):
    found = resolve("sampler", {"name": "uniform"})
    draws = found.hooks.make(found.config, tasks_of(on), 0)
    plan = BatchPlan(sampler=draws, sampler_entry=found, tasks=2, copies=copies, guide=chosen)
    return asyncio.run(collect(by, plan, iteration=iteration, demonstrate=demonstrate))


def test_a_chain_begins_in_the_state_to_which_the_opening_leads():
    record = straight()[0]
    opening = Success.of(record).opening(3)
    on, by = far()
    from agentrl.rollout import Expansion

    batch = Expansion(by, [Draw(task=tasks_of(on)[0], opening=opening)])
    (chain,) = asyncio.run(batch.begin(1))
    assert chain.steps[0].observation.text == "You are at 3, the goal is 4."
    assert chain.replayed == 3 and len(chain.steps) == 1 and chain.guided  # limits.turns counts the opening
    graph = build_graph([chain])
    assert graph.turn.tolist() == [3] and graph.parent.tolist() == [-1] and graph.column("guided").all()


def test_the_prompt_is_the_one_of_the_success():
    # the messages that a chain sees at its start are those that the success saw there, for every context policy
    for context in ("full", "last_k"):
        on, by = far(policy=right(), context=context)
        first = asyncio.run(play(by, tasks_of(on)))[0]
        opening = Success.of(first).opening(2)
        from agentrl.rollout import Expansion

        chain = asyncio.run(Expansion(by, [Draw(task=first.task, opening=opening)]).begin(1))[0]
        assert [m.content for m in chain.steps[0].asked] == [m.content for m in first.steps[2].asked]
        assert [s.observation for s in chain.steps] == [s.observation for s in first.steps[2:]]


def test_another_state_is_an_env_error_that_says_so():
    on, by = far()
    from agentrl.rollout import Expansion

    opening = Opening(turns=[OpeningTurn("right", (), "You are at 0, the goal is 4.")], state="You are at 2.")
    batch = Expansion(by, [Draw(task=tasks_of(on)[0], opening=opening)])
    (chain,) = asyncio.run(batch.begin(1))
    assert chain.ending == Status.ENV_ERROR and chain.attempts == 1
    assert "need an environment whose steps are deterministic" in chain.fault


def outcome(key: str, won: list[bool], opening=(), turns: int = 5):
    """Chains of one group as a guide sees them."""
    return [
        SimpleNamespace(
            task=SimpleNamespace(key=key), group=0, kind=0, ending=Status.DONE, success=one, opening=opening,
            called=[], caller=None, steps=straight(turns)[0].steps if one else [], own=[1],
        )
        for one in won
    ]  # fmt: skip


def test_the_start_moves_back_by_hand():
    # a success of 5 turns; first = 1: turn 4; each rise of 1 turn; at 4 turns left the next move withdraws the help
    task = walk.Task(key="w", env="walk")
    chosen = guide(first=1, step=1, rise=0.5)
    chosen._add(outcome("w", [True])[0])
    starts = []

    def start() -> int | None:
        opening = chosen.begin([Draw(task=task)])[0].opening
        return None if opening is None else len(opening.turns)

    starts.append(start())  # it has not failed
    chosen.observe(outcome("w", [False, False]))
    for won in ([False, True], [False, False], [True, True], [True, True], [True, True]):
        starts.append(start())
        opening = chosen.begin([Draw(task=task)])[0].opening
        chosen.observe(outcome("w", won, opening.turns))
    starts.append(start())  # withdrawn
    chosen.observe(outcome("w", [False, False]))
    starts.append(start())  # where it was
    assert starts == [None, 4, 3, 3, 2, 1, None, 1]


def test_a_success_of_one_turn_has_no_later_start():
    chosen = guide(first=1, step=1, rise=0.5)
    chosen.successes["w"] = Success(Success.of(outcome("w", [True])[0]).turns[:1])
    for _ in range(4):
        chosen.observe(outcome("w", [False, False]))
    assert chosen.begin([Draw(task=walk.Task(key="w", env="walk"))])[0].opening is None


@pytest.mark.parametrize("seed", range(4))
def test_starts_are_those_of_a_slow_account(seed):
    rng = np.random.default_rng(seed)
    step, patience, rise = int(rng.integers(1, 4)), int(rng.integers(1, 3)), float(rng.choice([0.25, 0.5, 1.0]))
    task = walk.Task(key="w", env="walk")
    chosen = guide(step=step, patience=patience, rise=rise)
    chosen._add(outcome("w", [True], turns=6)[0])
    position, fails = 5, 0  # the turn at which a helped chain begins; batches failed in a row
    for _ in range(40):
        opening = chosen.begin([Draw(task=task)])[0].opening
        helped = fails >= patience
        assert (0 if opening is None else len(opening.turns)) == (position if helped else 0)
        won = [bool(x) for x in rng.random(4) < 0.4]
        chosen.observe(outcome("w", won, () if opening is None else opening.turns, turns=6))
        if not helped:
            fails = 0 if any(won) else fails + 1
        elif sum(won) / 4 >= rise:
            if position - step <= 0:
                fails = 0
            else:
                position -= step


def test_the_expert_shows_what_fails_and_statistics_leave_help_out():
    on, by = far(goal=5)
    asked = []

    async def demonstrate(tasks):
        asked.extend(task.key for task in tasks)
        return await play(player(on, make_pool(on, "inline"), policy=right(), limits=Limits(turns=5)), tasks)

    chosen = guide(source="expert")
    first = gather(by, on, chosen, demonstrate)
    assert first.metrics["success"] == 0 and "guided_share" not in first.metrics and not asked
    second = gather(by, on, chosen, demonstrate, iteration=1)
    assert sorted(asked) == ["walk/0", "walk/1"]
    assert second.metrics["guided_share"] == 1 and "success" not in second.metrics
    assert second.metrics["guided_success"] > 0.2  # one step from the goal, at random
    assert (second.graph.turn == 4).all()
    state = json.loads(json.dumps(chosen.state_dict()))
    other = guide(source="expert")
    other.load_state_dict(state)
    assert other.state_dict() == chosen.state_dict()
    draws = [Draw(task=task) for task in tasks_of(on)]
    ours, theirs = ([draw.opening.turns for draw in one.begin(draws)] for one in (chosen, other))
    assert ours == theirs


def test_a_sampler_learns_nothing_from_helped_chains():
    on, by = far()
    chosen = guide()
    for record in straight():
        chosen._add(record)
    chosen.failed = {"walk/0": 1}
    found = resolve("sampler", {"name": "posterior", "pool": 1})
    draws = found.hooks.make(found.config, tasks_of(on), 0)
    plan = BatchPlan(sampler=draws, sampler_entry=found, tasks=2, copies=4, guide=chosen)
    batch = asyncio.run(collect(by, plan, iteration=0))
    assert {r.task.key for r in batch.records if r.guided} == {"walk/0"}
    assert [*draws.state_dict()["counts"]] == ["walk/1"]
    assert batch.metrics["guided_share"] == 0.5
