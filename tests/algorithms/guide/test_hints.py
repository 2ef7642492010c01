"""Hints: who gets one, which tier, and the prompt without it behind which the chain is trained."""

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from agentrl.chat import Chat
from agentrl.config import resolve
from agentrl.env import Limits, make_pool, tasks_of
from agentrl.rollout import BatchPlan, Draw, Expansion, build_graph, collect, play
from agentrl.rollout.baselines import ExpertActor
from agentrl.rollout.hints import OtherTurns, reprompt
from agentrl.types import Status
from tests.rollout.playing import entry, player, right
from tests.toys.runs import tiny_model

TEXTS = ["You are at 0, 1, 2, 3, 4, the goal is 4.", "left", "right", "Hint:"]


def guide(**options):
    found = resolve("guide", {"name": "hints", **options})
    return found.hooks.make(found.config, 0)


def outcome(won, words="", key="walk/0", actions=("a", "b", "c", "d", "e", "f")):
    """Chains of one group as a guide sees them."""
    steps = [SimpleNamespace(action=action, rewrites=False) for action in actions]
    return [
        SimpleNamespace(
            task=SimpleNamespace(key=key), group=0, kind=0, ending=Status.DONE, success=one, words=words,
            guided=bool(words), steps=steps, own=[1],
        )
        for one in won
    ]  # fmt: skip


def test_tiers_by_hand():
    # a solution of six actions: tier 1 tells ceil(0.34 * 6) = 3, tier 2 ceil(0.67 * 6) = 5, tier 3 all six
    chosen = guide()
    chosen.observe(outcome([True]))
    draw, told = Draw(task=SimpleNamespace(key="walk/0")), []
    for alone, helped in (([0, 0], [0, 0]), ([0], [0, 0]), ([0], [0, 1]), ([0], [1, 1]), ([0, 1], None), ([0], [0, 0])):
        more = chosen.again(draw, outcome(alone))
        told.append(None if more is None else len(more.words.splitlines()) - 1)
        assert more is None or more.copies == 2
        chosen.observe(outcome(alone) + ([] if helped is None else outcome(helped, words="Hint:")))
    assert told == [3, 5, 6, 5, None, 3]


@pytest.mark.parametrize("seed", range(4))
def test_tiers_are_those_of_a_slow_account(seed):
    rng = np.random.default_rng(seed)
    patience, rise = int(rng.integers(1, 4)), float(rng.choice([0.5, 1.0]))
    chosen = guide(patience=patience, rise=rise, tiers=[0.2, 0.5, 0.9, 1.0])
    chosen.observe(outcome([True]))
    draw, tier, fails = Draw(task=SimpleNamespace(key="walk/0")), 1, 0
    for _ in range(60):
        alone = [bool(x) for x in rng.random(3) < 0.15]
        more = chosen.again(draw, outcome(alone))
        fails = 0 if any(alone) else fails + 1
        assert (more is not None) == (fails >= patience)
        records = outcome(alone)
        if more is not None:
            assert len(more.words.splitlines()) - 1 == int(np.ceil([0.2, 0.5, 0.9, 1.0][tier - 1] * 6))
            helped = [bool(x) for x in rng.random(2) < 0.4]
            records += outcome(helped, words=more.words)
            tier = min(4, tier + 1) if not any(helped) else max(1, tier - 1) if sum(helped) / 2 >= rise else tier
        chosen.observe(records)
        state = json.loads(json.dumps(chosen.state_dict()))
        chosen = guide(patience=patience, rise=rise, tiers=[0.2, 0.5, 0.9, 1.0])
        chosen.load_state_dict(state)


def test_failed_groups_get_hinted_chains_beside_their_own():
    on = entry(goal=4, count=2)
    by = player(on, make_pool(on, "inline"), limits=Limits(turns=3, fault_share=1))
    asked = []

    async def demonstrate(tasks):
        asked.extend(task.key for task in tasks)
        return await play(player(on, make_pool(on, "inline"), policy=right(), limits=Limits(turns=4)), tasks)

    found = resolve("sampler", {"name": "uniform"})
    draws = found.hooks.make(found.config, tasks_of(on), 0)
    plan = BatchPlan(sampler=draws, sampler_entry=found, tasks=2, copies=3, guide=guide(source="expert"))
    batch = asyncio.run(collect(by, plan, iteration=0, demonstrate=demonstrate))
    assert sorted(asked) == ["walk/0", "walk/1"]
    hinted = [r for r in batch.records if r.words]
    assert len(hinted) == 4 and len(batch.records) == 10
    assert {r.words for r in hinted} == {"Hint:\nright\nright"}  # ceil(0.34 * 4) = 2 of the expert's four actions
    assert all(r.steps[0].asked[0].content.endswith("Hint:\nright\nright") for r in hinted)
    assert sorted(r.copy for r in batch.records if r.group == 0) == [0, 1, 2, 3, 4]
    assert batch.metrics["guided_share"] == 0.4 and batch.metrics["success"] == 0.0
    words = batch.graph.texts["words"]
    assert [bool(word) for word in words] == batch.graph.column("guided").tolist()


@pytest.mark.parametrize("context", ["full", "last_k"])
def test_without_the_words_a_chain_has_the_prompts_it_would_have_had(context):
    on = entry(goal=4, count=1)
    chat = Chat(tiny_model(TEXTS).tokenizer)
    actor = ExpertActor("straight", player(on, make_pool(on, "inline")).prompt, chat)
    by = replace(player(on, make_pool(on, "inline"), actor=actor, context=context, limits=Limits(turns=3)))
    task = tasks_of(on)[0]
    (plain,) = asyncio.run(Expansion(by, [Draw(task=task)]).begin(1))
    (hinted,) = asyncio.run(Expansion(by, [Draw(task=task, words="Hint:\nright")]).begin(1))
    longer = [len(step.added) for step in hinted.steps]
    assert longer[0] > len(plain.steps[0].added)
    reprompt(hinted, by)
    for ours, theirs in zip(hinted.steps, plain.steps, strict=True):
        np.testing.assert_array_equal(ours.added, theirs.added)
        assert ours.continues == theirs.continues
    np.testing.assert_array_equal(hinted.tail, plain.tail)
    assert hinted.tail_continues == plain.tail_continues
    graph = build_graph([hinted])
    assert graph.column("reprompted").all() and graph.column("guided").all()
    assert not build_graph([plain]).has("reprompted")


def test_a_chain_whose_memory_would_come_in_another_turn_keeps_its_prompts():
    """With the words the chat is too long for the context at once; without them it never was."""
    on = entry(goal=4, count=1)
    chat = Chat(tiny_model(TEXTS).tokenizer)
    actor = ExpertActor("straight", player(on, make_pool(on, "inline")).prompt, chat)
    by = replace(player(on, make_pool(on, "inline"), actor=actor, limits=Limits(turns=3)))
    (chain,) = asyncio.run(Expansion(by, [Draw(task=tasks_of(on)[0])]).begin(1))
    before, tail = [step.added for step in chain.steps], chain.tail
    size = len(before[0]) + sum(len(step.generation.token_ids) + len(step.added) for step in chain.steps)
    by = replace(by, context=resolve("context", {"name": "summary", "max_tokens": size + 4}))
    assert reprompt(chain, by) > 0  # the whole chat fits
    with pytest.raises(OtherTurns):
        reprompt(chain, by, "Hint:" + "\nright" * 20)
    assert len(before) == len(chain.steps) and chain.tail.tolist() == tail.tolist()
    assert all(one.tolist() == step.added.tolist() for one, step in zip(before, chain.steps, strict=True))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("not JSON", "line 2"),
        ('{"task": "a"}', "line 2"),
        ('{"task": "a", "hints": []}', "line 2"),
        ('{"task": "a", "hints": [1]}', "line 2"),
    ],
)
def test_a_file_of_hints_that_is_wrong_is_told(line, told, tmp_path):
    path = tmp_path / "hints.jsonl"
    path.write_text('{"task": "walk/0", "hints": ["go right", "right"]}\n' + line + "\n")
    with pytest.raises(ValueError, match=told):
        guide(source="file", path=str(path))


def test_hints_of_a_file(tmp_path):
    path = tmp_path / "hints.jsonl"
    path.write_text('{"task": "walk/0", "hints": ["go right", "right"]}\n')
    chosen = guide(source="file", path=str(path))
    draw = Draw(task=SimpleNamespace(key="walk/0"), words="Be brief.")
    assert chosen.again(draw, outcome([False])).words == "Be brief.\nHint:\ngo right"
    chosen.observe(outcome([False]) + outcome([False], words="Hint:"))
    assert chosen.words("walk/0") == "Hint:\nright"
    assert chosen.again(Draw(task=SimpleNamespace(key="x")), outcome([False], key="x")) is None
    with pytest.raises(ValueError, match="file of hints"):
        guide(source="file", path=str(tmp_path / "none.jsonl"))
    with pytest.raises(ValueError, match="or neither"):
        guide(source="file")
    with pytest.raises(ValueError, match="ascending"):
        guide(tiers=[0.5, 0.2])
