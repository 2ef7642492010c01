"""Agents that call agents: one rollout, several chains; failures stay with the chain they belong to."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from agentrl.chat import Chat
from agentrl.config import resolve
from agentrl.engines import HfEngine, Sampling
from agentrl.env import Limits, PastTurn, make_pool, prompt_of, tasks_of
from agentrl.rollout import Ask, History, Player, Point, PolicyActor, Random, Scripted, TooManyFaults, build_graph, play
from agentrl.rollout.branch import go_back
from agentrl.types import AgentReply, Status
from tests.rollout.playing import FAULTY, WALK, entry
from tests.toys.boss import ACTIONS, Boss
from tests.toys.runs import tiny_model

BOSS = "tests.toys.boss"
SUM = {"walker": WALK, "faulty": FAULTY, "boss": BOSS}


def crew(
    script: list[str], *, depth: int = 2, actor=None, where: str = "inline", admissible: bool = False, **limits
) -> Player:
    """A boss who reads a script, a walker who goes right, a broken walker, and the boss again."""
    context = resolve("context", {"name": "full"})
    given = Limits(**{"turns": 4, "fault_share": 1.0, "retries": 0, "depth": depth, **limits})
    agents: dict[str, Player] = {}

    def one(name: str, texts: list[str]) -> Player:
        on = entry(SUM[name])
        return Player(
            actor=actor(on) if actor else PolicyActor(Scripted(texts), None, None),
            pool=make_pool(on, where, 1),
            prompt=prompt_of(on),
            context=context,
            limits=given,
            admissible=admissible,
            agent=name,
            agents=agents,
        )

    agents |= {"walker": one("walker", ["right"]), "faulty": one("faulty", ["right"]), "boss": one("boss", script)}
    return agents["boss"]


def run(player: Player, copies: int = 1, tasks: int = 1):
    """The records of some tasks."""
    try:
        return asyncio.run(play(player, tasks_of(entry(BOSS))[:tasks], copies=copies))
    finally:
        for one in player.agents.values():
            one.pool.close()


@pytest.mark.parametrize("where", ["inline", "processes"])
def test_an_errand_is_a_chain_of_its_own_and_its_reply_the_callers_next_observation(where):
    (record,) = run(crew(["walk", "done"], where=where))
    # task 0 has its goal at 1: the walker needs one step and earns 1, which `done` then pays out
    assert [step.action for step in record.steps] == ["walk", "done"]
    assert record.steps[1].observation.text == "done right"
    assert record.score == 1.0 and record.success
    (walk,) = record.called
    assert (walk.agent, walk.ending, walk.score) == ("walker", Status.DONE, 1.0)
    assert walk.caller is record.steps[0]
    assert record.actions == 3  # the boss's two actions and the walker's one


def test_called_chains_share_rollout_and_group_and_name_the_step_that_called_them():
    records = run(crew(["both", "walk", "done"]), copies=2, tasks=2)
    graph = build_graph(records)
    assert len(graph) == 4 * 3 + 3 * (1 + 1 + 2 + 2)  # bosses; walkers of task 0 take one step, of task 1 two
    agents = np.array([graph.names["agent"][a] for a in graph.agent])
    called = graph.caller >= 0
    assert (agents[called] == "walker").all() and (agents[~called] == "boss").all()
    assert (agents[graph.caller[called]] == "boss").all()
    np.testing.assert_array_equal(graph.group[called], graph.group[graph.caller[called]])
    np.testing.assert_array_equal(graph.rollout[called], graph.rollout[graph.caller[called]])
    assert len(np.unique(graph.rollout)) == 4 and len(np.unique(graph.group)) == 2
    assert len(np.unique(graph.episode)) == 4 + 4 * 3
    turns_that_called = graph.turn[graph.caller[called & graph.first]]
    assert sorted(turns_that_called.tolist()) == [0] * 8 + [1] * 4
    assert graph.names["group"] == ("boss/0", "boss/1")


def test_a_failing_agent_is_told_to_its_caller_who_goes_on_and_is_scored():
    (record,) = run(crew(["broken", "walk", "done"]))
    assert record.steps[1].observation.text == "failed"
    assert record.ending == Status.DONE and record.score == 1.0
    graph = build_graph([record])
    failed = graph.failed()
    agents = np.array([graph.names["agent"][a] for a in graph.agent])
    assert failed[agents == "faulty"].all() and not failed[agents != "faulty"].any()


def test_chains_that_a_failed_agent_called_are_in_no_statistic_either():
    (record,) = run(crew(["boss", "walk", "done"]))
    inner = record.called[0]
    inner.ending = Status.ENV_ERROR
    graph = build_graph([record])
    row = {id(step): i for i, step in enumerate(s for chain in record.chains() for s in chain.steps)}
    lost = {row[id(step)] for chain in inner.chains() for step in chain.steps}
    np.testing.assert_array_equal(np.flatnonzero(graph.failed()), sorted(lost))


def test_faults_of_called_agents_count_towards_the_share_that_stops_a_run():
    with pytest.raises(TooManyFaults, match="1 of 2 episodes"):
        run(crew(["broken", "done"], fault_share=0.4))


def test_a_call_loop_ends_at_the_depth_limit_with_its_own_status():
    (record,) = run(crew(["boss"], depth=2))
    chain, depth = record, 0
    while chain.called:
        chain, depth = chain.called[0], depth + 1
    assert depth == 2
    assert chain.ending == Status.DEPTH_LIMIT and chain.steps[-1].truncated
    assert record.ending == Status.TURN_LIMIT  # its own agent was answered each time and went on
    assert record.steps[1].observation.text.startswith("turn_limit")


def test_an_errand_too_long_for_the_called_agents_context_is_told_to_the_caller():
    """The caller wrote it, so it is the caller's to hear of, and ends neither the episode nor the run."""
    player = crew(["walk", "done"])
    own = player.agents["walker"].context
    wordy = own._replace(hooks=replace(own.hooks, ask=lambda *_: Ask((), np.zeros(100, np.int64), 100)))
    narrow = PolicyActor(Scripted(["right"]), None, 50)  # 100 tokens of prompt, a context of 50
    player.agents["walker"] = replace(player.agents["walker"], context=wordy, actor=narrow)
    (record,) = run(player)
    assert record.ending == Status.DONE and record.steps[1].observation.text == "token_limit "
    (walk,) = record.called
    assert walk.ending == Status.TOKEN_LIMIT and not walk.steps
    assert len(build_graph([record])) == 2


def test_an_agent_that_no_recipe_describes_is_named():
    with pytest.raises(ValueError, match=r"calls agent 'nobody'.*\[agents.nobody\]"):
        run(crew(["stranger"]))


def test_an_environment_that_cannot_hear_replies_is_at_fault(monkeypatch):
    monkeypatch.delattr("tests.toys.boss.Boss.returned")
    (record,) = run(crew(["walk"]))
    assert record.ending == Status.ENV_ERROR and "returned(replies)" in record.fault


def test_the_same_seed_gives_the_same_calls():
    def once():
        records = run(crew([], actor=lambda on: PolicyActor(Random(prompt_of(on)), None, None)), copies=3, tasks=2)
        return build_graph(records)

    first, second = once(), once()
    assert (first.caller >= 0).any()
    for name, column in first.columns.items():
        np.testing.assert_array_equal(column, second.columns[name])


def test_replies_are_replayed_on_the_way_back_to_a_branch_point():
    player = crew(["walk", "both", "done"])

    async def there_and_back() -> str:
        handle = player.pool.acquire()
        task = tasks_of(entry(BOSS))[0]
        first = await handle.reset(task)
        reply = AgentReply("right", Status.DONE, 1.0)
        await handle.step("walk")
        now = (await handle.step((reply,))).observation
        history = History(chat=None, first=first, now=now, past=[PastTurn(first, "walk", (reply,))])
        replayed = await go_back(handle, task, Point(history=history, session=0, sampled=0))
        assert replayed == 1
        return (await handle.step("done")).info["answer"]

    assert asyncio.run(there_and_back()) == "worth 1"


def test_errands_in_answer_to_replies_are_the_environments_fault(monkeypatch):
    def again(self, replies):
        return self.step("walk")

    monkeypatch.setattr(Boss, "returned", again)
    (record,) = run(crew(["walk"]))
    assert record.ending == Status.ENV_ERROR and "returned new errands" in record.fault


def test_a_deterministic_engine_shared_by_caller_and_called_does_not_wait_for_itself():
    """Boss and walkers are one model: while a boss waits for its walkers the engine runs without it, and the same seed
    gives the same rollouts."""
    texts = ["What now?", *ACTIONS, "left right done failed turn_limit You are at 0 1 2 3 , the goal is ."]
    loaded = tiny_model(texts)

    def once():
        engine = HfEngine(
            loaded.model,
            loaded.tokenizer,
            Sampling(temperature=1.0),
            max_slots=16,
            max_context=400,
            actions="admissible",
            deterministic=True,
        )
        actor = PolicyActor(engine, Chat(loaded.tokenizer), 400)
        player = crew([], actor=lambda on: actor, admissible=True)
        return build_graph(run(player, copies=4, tasks=2))

    first, second = once(), once()
    assert (first.caller >= 0).any()
    np.testing.assert_array_equal(first.tokens.ids, second.tokens.ids)
    np.testing.assert_array_equal(first.tokens.logprobs, second.tokens.logprobs)
