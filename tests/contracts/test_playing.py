"""Every rollout method, context policy and sampler against the contract of its catalogue."""

import copy
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from agentrl import catalogue
from agentrl.env import Limits, PastTurn, Plain, prompt_of
from agentrl.graph import PLAYED, StepGraph
from agentrl.rollout import Ask, History, Random, build_graph, lost
from agentrl.types import Message, Observation, Status, Task
from tests.algorithms.credit.steps import chain, graph_of
from tests.chat.chats import chat
from tests.contracts.every import entry
from tests.rollout.expanding import expand, expansion, walks
from tests.rollout.playing import entry as environment, script

ROLLOUT, CONTEXT, SAMPLER = (catalogue.names(kind) for kind in ("rollout", "context", "sampler"))


class Unsure(Random):
    """Random actions, whose tokens have an entropy that is a function of the turn."""

    async def generate(self, request):
        answer = await super().generate(request)
        return replace(answer, entropy=np.full(3, 0.1 * request.noise_key[-1]))


# Options that keep the batch small, and still let the method do what it is for.
FEW = {"candidates": {"candidates": 2}, "vine": {"probes": 2}}


def grown(name: str, copies: int = 3):
    """What the method makes of two corridors whose goals lie two and four steps away."""
    tasks = [walks(1, goal=2)[0], replace(walks(2, goal=4)[1], seed=1)]
    policy = Unsure(prompt_of(environment()))
    batch = expansion(tasks=tasks, policy=policy, limits=Limits(turns=5, fault_share=1.0), seed=3)
    return expand(name, batch, copies, **FEW.get(name, {})), batch


@pytest.mark.parametrize("copies", [1, 4])
@pytest.mark.parametrize("name", ROLLOUT)
def test_leaves_is_the_number_of_scored_episodes_of_each_task(name, copies):
    chosen = entry("rollout", name, **FEW.get(name, {}))
    records, _ = grown(name, copies)
    scored = Counter(record.group for record in records if record.kind == PLAYED and not lost(record))
    assert scored == dict.fromkeys((0, 1), chosen.hooks.leaves(chosen.config, copies))


@pytest.mark.parametrize("name", ROLLOUT)
def test_a_rollout_gives_valid_steps_and_a_graph_with_its_columns(name):
    records, batch = grown(name)
    for record in records:
        assert 0 <= record.inherited <= len(record.steps) and record.own
        assert record.ending in (Status.DONE, Status.TURN_LIMIT, Status.OK)
        assert record.kind != PLAYED or record.ending != Status.OK, "an executed episode goes to its end"
        assert not record.points, "branch points are dropped when the batch is finished"
        for before, step in zip([None, *record.steps], record.steps, strict=False):
            assert step.valid and step.status == Status.OK and step.action in step.observation.actions
            assert before is None or not (before.terminated or before.truncated), "no step follows an end"
    assert {id(record) for record in records} <= {id(record) for record in batch.played}
    graph = build_graph(records)
    steps = {id(step) for record in records for step in record.steps}
    assert len(graph) == len(steps), "a shared step is one row"
    for column in set(catalogue.load("rollout", name).fills) & set(graph.columns):
        x = graph.columns[column][graph.kind == PLAYED]
        assert np.isfinite(x).all() and (x >= 0).all(), column


@pytest.mark.parametrize("name", ROLLOUT)
def test_a_rollout_is_a_function_of_the_players_seed(name):
    (first, _), (second, _) = grown(name), grown(name)
    assert [script(record) for record in first] == [script(record) for record in second]
    assert [(r.group, r.tree, r.kind, r.inherited) for r in first] == [
        (r.group, r.tree, r.kind, r.inherited) for r in second
    ]


# So small that these short observations are rewritten.
TIGHT = {"summary": {"max_tokens": 150, "summary_tokens": 8}, "memory": {"chunk_tokens": 12, "memory_tokens": 8}}
ROOMS = [Observation(text=f"Room {i}.", task="Find the key.", actions=("look", "open")) for i in range(4)]


def seen(history: History) -> tuple[object, ...]:
    """All that a policy may read, as a value."""
    lists = [history.past, history.messages, history.path.tolist()]
    rest = [history.first, history.now, history.memory, history.rewrites, history.since, history.read]
    return (*copy.deepcopy(lists), *copy.deepcopy(rest))


def check_ask(asked: Ask, history: History) -> None:
    """The ids are those of the path and the added ones, or of a prompt of its own."""
    assert asked.messages and all(isinstance(message, Message) for message in asked.messages)
    size = len(asked.token_ids)
    if history.chat is None:
        assert size == asked.added == 0
        return
    assert asked.token_ids.dtype == np.int64 and 0 < asked.added <= size
    if asked.added < size:
        assert asked.token_ids[: size - asked.added].tolist() == history.path.tolist()
    else:
        assert asked.token_ids.tolist() == history.chat.start(asked.messages).tolist()
    assert asked.max_tokens is None or asked.max_tokens > 0


def conversation(name: str, with_chat: bool) -> list[tuple[int, Ask, int]]:
    """Four turns in which the model answers `look`, and rewrites when it is asked to: (turn, what was asked, length of
    the path before) of each prompt."""
    chosen = entry("context", name, **TIGHT.get(name, {}))
    policy, config = chosen.hooks, chosen.config
    prompt = Plain() if policy.speak is None else policy.speak(config, Plain())
    history = History(chat=chat("plain") if with_chat else None, first=ROOMS[0], now=ROOMS[0])
    asks = []
    for turn, room in enumerate(ROOMS):
        history.now, history.read = room, 0
        for _ in range(20):
            before = seen(history)
            asked = policy.ask(config, prompt, history)
            assert seen(history) == before, "ask changes the history"
            again = policy.ask(config, prompt, history)
            assert again.token_ids.tolist() == asked.token_ids.tolist() and again._replace(token_ids=None) == (
                asked._replace(token_ids=None)
            )
            check_ask(asked, history)
            asks.append((turn, asked, len(history.path)))
            text = "A note." if asked.rewrites else prompt.answer("look")
            history.messages = [*asked.messages, Message("assistant", text)]
            if history.chat is not None:
                history.path = np.concatenate([asked.token_ids, history.chat.answer(text)])
            if asked.rewrites is None:
                break
            assert policy.rewritten is not None, "a policy that asks for a memory takes it"
            policy.rewritten(config, history, text)
        assert asked.rewrites is None, "a policy that rewrites without end never acts"
        history.past.append(PastTurn(room, "look"))
    return asks


@pytest.mark.parametrize("with_chat", [True, False])
@pytest.mark.parametrize("name", CONTEXT)
def test_a_context_policy_asks_for_what_follows_the_path(name, with_chat):
    asks = conversation(name, with_chat)
    rewrites = catalogue.load("context", name).rewritten is not None  # its memory may stand in the observation's place
    assert [turn for turn, asked, _ in asks if asked.rewrites is None] == [0, 1, 2, 3]
    for turn, asked, _ in asks:
        words = "\n".join(message.content for message in asked.messages)
        assert "Find the key." in words
        assert rewrites or f"Room {turn}." in words


@pytest.mark.parametrize("name", ["full", "plan"])
def test_an_append_only_policy_extends_the_path_on_every_later_turn(name):
    for turn, asked, path in conversation(name, with_chat=True):
        assert len(asked.token_ids) - asked.added == path and (path > 0) == (turn > 0)


@pytest.mark.parametrize("name", sorted(TIGHT))
def test_a_policy_that_rewrites_does_so_here(name):
    assert any(asked.rewrites for _, asked, _ in conversation(name, with_chat=True))


@pytest.mark.parametrize("name", CONTEXT)
def test_the_words_of_a_context_policy(name):
    chosen = entry("context", name)
    if chosen.hooks.words is not None:
        words = chosen.hooks.words(chosen.config)
        assert not isinstance(words, str) and all(isinstance(word, str) and word for word in words)
    if chosen.hooks.speak is not None:
        prompt = chosen.hooks.speak(chosen.config, Plain())
        for action in ROOMS[0].actions:
            assert prompt.parse(prompt.answer(action), ROOMS[0])[:3] == (action, True, Status.OK)
        assert prompt.parse("no such form", ROOMS[0]).status == Status.PARSE_ERROR


TASKS = [Task(key=f"bin{i % 3}/{i}", env="walk", seed=i) for i in range(7)]


def outcome(scores: dict[str, list[float]]) -> StepGraph:
    """Episodes of two steps by the key of their task."""
    rows = [
        row
        for key, won in scores.items()
        for copy_, score in enumerate(won)
        for row in chain(key, f"{key} {copy_}", [0.0, score])
    ]
    return graph_of(rows)


WON = {"bin0/0": [1.0, 1.0], "bin1/1": [0.0, 1.0], "bin2/2": [0.0, 0.0]}


def drawn(made, counts=(4, 3, 9, 1)) -> list[list[str]]:
    return [[draw.task.key for draw in made.draw(count)] for count in counts]


@pytest.mark.parametrize("name", SAMPLER)
def test_a_sampler_draws_as_many_tasks_as_it_is_asked_for_by_its_seed(name):
    chosen = entry("sampler", name)
    keys = drawn(chosen.hooks.make(chosen.config, TASKS, 0))
    assert [len(some) for some in keys] == [4, 3, 9, 1]
    assert {key for some in keys for key in some} <= {task.key for task in TASKS}
    assert drawn(chosen.hooks.make(chosen.config, TASKS, 0)) == keys
    assert drawn(chosen.hooks.make(chosen.config, TASKS, 1)) != keys


@pytest.mark.parametrize("name", SAMPLER)
def test_a_sampler_goes_on_exactly_from_its_state(name):
    chosen = entry("sampler", name)
    ours, theirs = (chosen.hooks.make(chosen.config, TASKS, 5) for _ in range(2))
    drawn(ours)
    ours.observe(outcome(WON))
    theirs.load_state_dict(json.loads(json.dumps(ours.state_dict())))
    assert theirs.state_dict() == ours.state_dict()
    for _ in range(3):
        assert drawn(theirs) == drawn(ours)
        for one in (ours, theirs):
            one.observe(outcome({"bin1/1": [1.0, 1.0]}))
    assert theirs.state_dict() == ours.state_dict()


@pytest.mark.parametrize("name", SAMPLER)
def test_a_sampler_that_keeps_judges_whole_groups_and_gives_up(name):
    chosen = entry("sampler", name)
    if chosen.hooks.keep is None:
        return
    assert chosen.config.max_rounds >= 1
    graph = outcome(WON)
    kept = chosen.hooks.keep(chosen.config, graph)
    assert kept.shape == (len(graph),) and kept.dtype == bool and 0 < kept.sum() < len(graph)
    for group in np.unique(graph.group):
        assert len(set(kept[graph.group == group].tolist())) == 1, "a group is kept or dropped as a whole"
