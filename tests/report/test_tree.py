"""The tree of a group's steps, and what tokens were chosen from, against hand-made graphs."""

import numpy as np

from agentrl.graph import CANDIDATE, PROBE, Tokens
from tests.report.pages import data_of, graph_of, household


def chain(episode, moves, reward, **more):
    """A chain that does `moves` one after the other; each leads to the state of its own name."""
    states = ["start", *moves]
    return [
        {"group": "g", "episode": episode, "turn": t, "state": states[t], "action": move, "next_state": move}
        | {"reward": reward if t == len(moves) - 1 else 0.0, "terminated": t == len(moves) - 1}
        | more
        for t, move in enumerate(moves)
    ]


def shape(data):
    """Node -> what was done, by how many, after which node, with which value."""
    (group,) = data.groups
    return [
        (data.actions[data.steps.action[n.steps[0]]], len(n.steps), n.parent, n.called, n.value) for n in group.tree
    ]


def test_copies_share_a_stem_until_they_part_and_its_value_is_the_mean_of_what_follows():
    rows = [*chain("a", ["x", "y"], 1.0), *chain("b", ["x", "z"], 0.0), *chain("c", ["x", "z"], 0.5)]
    assert shape(data_of(graph_of(rows), "grpo")) == [
        ("x", 3, -1, False, 0.5),
        ("y", 1, 0, False, 1.0),
        ("z", 2, 0, False, 0.25),
    ]


def test_a_stored_branch_leaves_the_stem_where_it_began():
    rows = chain("stem", ["x", "y", "z"], 0.0)
    rows += [row | {"parent": ["stem", 0]} if row["turn"] == 1 else row for row in chain("branch", ["x", "w"], 1.0)[1:]]
    found = shape(data_of(graph_of(rows), "grpo"))
    # x: the mean of its two continuations, which end with 0 and 1
    assert found == [
        ("x", 1, -1, False, 0.5),
        ("y", 1, 0, False, 0.0),
        ("z", 1, 1, False, 0.0),
        ("w", 1, 0, False, 1.0),
    ]


def test_a_called_agent_hangs_under_the_step_that_called_it():
    rows = [row | {"agent": "planner"} for row in chain("plan", ["ask", "say"], 1.0)]
    rows += [row | {"agent": "searcher", "caller": ["plan", 0]} for row in chain("look", ["find"], 0.0)]
    found = {done: (parent, called) for done, _, parent, called, _ in shape(data_of(graph_of(rows), "grpo"))}
    assert found == {"ask": (-1, False), "say": (0, False), "find": (0, True)}


def test_candidates_have_no_value_and_probes_their_own():
    rows = [*chain("a", ["x", "y"], 1.0), *chain("b", ["p"], 0.25), *chain("c", ["k"], 0.0)]
    graph = graph_of(rows)
    kind = graph.kind.copy()
    kind[2], kind[3] = PROBE, CANDIDATE
    values = {done: value for done, _, _, _, value in shape(data_of(graph.with_columns(kind=kind), "grpo"))}
    assert values == {"x": 1.0, "y": 1.0, "p": 0.25, "k": None}


def test_steps_without_a_state_share_no_node_and_every_step_is_in_one():
    rows = [{"group": "g", "episode": e, "turn": t, "reward": 0.0} for e in "ab" for t in range(2)]
    data = data_of(graph_of(rows), "grpo")
    assert sorted(i for n in data.groups[0].tree for i in n.steps) == [0, 1, 2, 3] and len(data.groups[0].tree) == 4
    whole = data_of(graph_of(household()), "grpo")
    assert sorted(i for n in whole.groups[0].tree for i in n.steps) == list(range(12))


def with_tokens(allowed):
    """The household, each step with one token that it read and one that it sampled; [N] allowed sets of the latter."""
    graph = graph_of(household())
    n = len(graph)
    sizes = np.array([size for one in allowed for size in (0, len(one))])
    tokens = Tokens(
        offsets=np.arange(0, 2 * n + 1, 2),
        ids=np.tile([7, 1], n),
        sampled=np.tile([False, True], n),
        logprobs=np.tile([0.0, -0.5], n),
        allowed_offsets=np.concatenate([[0], np.cumsum(sizes)]),
        allowed_ids=np.array([i for one in allowed for i in one], np.int64),
        context=np.full(n, -1),
        context_tokens=np.zeros(n, np.int64),
    )
    return type(graph)(columns=graph.columns, names=graph.names, texts=graph.texts, tokens=tokens)


def test_tokens_name_the_members_of_their_allowed_sets_each_set_once():
    graph = with_tokens([[], [1, 3], [1, 3], *[list(range(100))] * 9])
    data = data_of(graph, "grpo", decode=lambda ids: [f"w{i}" for i in ids])
    assert [tuple(row[0]) for row in data.steps.tokens[:4]] == [
        ("w1", -0.5, -1),
        ("w1", -0.5, 0),
        ("w1", -0.5, 0),
        ("w1", -0.5, 1),
    ]
    few, many = data.allowed
    assert (few.size, few.words) == (2, ["w1", "w3"])
    assert many.size == 100 and len(many.words) == 60  # the page lists so many and says how many more there are
    assert data_of(graph, "grpo").allowed[0].words == ["1", "3"]  # without a tokenizer: the ids


def test_numbers_of_groups_are_told_from_sizes():
    gigpo, grpo = data_of(graph_of(household()), "gigpo", "grpo").methods
    assert gigpo.ids == ["step_group"] and grpo.ids == []
