"""Tree-GRPO's sampling: how many chains, where they leave, what is shared, what is kept."""

from collections import Counter

import numpy as np
import pytest

from agentrl.env import Limits
from agentrl.graph import paths
from agentrl.rollout import build_graph
from agentrl.types import Status
from tests.rollout.expanding import expand, expansion, walks
from tests.rollout.playing import FAULTY, WALK
from tests.toys import faulty


def grown(name: str = WALK, tasks=None, *, turns: int = 6, seed: int = 0, **options):
    """(records, the expansion) of one tree rollout by a random policy."""
    batch = expansion(name, tasks, limits=Limits(turns=turns, fault_share=1.0), seed=seed)
    return expand("tree", batch, **options), batch


def test_the_published_setting_gives_six_leaves_and_stores_each_step_once():
    records, batch = grown(tasks=walks(2, goal=9))  # out of reach: every chain has 6 steps
    assert [(r.group, r.tree) for r in records] == [(g, t) for g in (0, 1) for t in (0, 1) for _ in range(3)]
    graph = build_graph(records)
    on = paths(graph)
    assert on.leaf.max() + 1 == 12 and (np.bincount(on.leaf) == 6).all()
    assert batch.actions == len(graph) == 12 * 6 - sum(r.inherited for r in records)
    assert batch.actions == sum(r.actions for r in records) and len(batch.played) == 12
    assert len(np.unique(graph.tree)) == 4 and len(np.unique(graph.rollout)) == 12
    row = {(int(e), int(t)): n for n, (e, t) in enumerate(zip(graph.episode, graph.turn, strict=True))}
    for number, record in enumerate(records):
        if record.inherited:  # its first row continues the very step that the trunk played
            above = graph.parent[row[number, record.inherited]]
            assert graph.turn[above] == record.inherited - 1 and graph.tree[above] == graph.tree[row[number, 5]]
            assert graph.next_state[above] == graph.state[row[number, record.inherited]]


@pytest.mark.parametrize(("nodes", "rounds"), [(1, 1), (3, 2), (1, 4), (2, 0)])
def test_a_tree_has_one_leaf_more_than_it_was_expanded(nodes, rounds):
    whole = 1 + nodes * rounds
    records, batch = grown(tasks=walks(1, goal=9), nodes=nodes, rounds=rounds, leaves=whole, trees=3)
    assert Counter(r.tree for r in records) == {0: whole, 1: whole, 2: whole}
    assert len(build_graph(records)) == batch.actions


def test_nodes_are_drawn_uniformly_from_the_root_and_all_that_are_no_leaves():
    # Chains of 4 steps: the root and nodes 1, 2, 3, so a branch inherits 0, 1, 2 or 3 steps with chance 1/4 each.
    # 2000 draws: the standard deviation of a count is sqrt(2000 * 3/16) = 19.4.
    records, _ = grown(tasks=walks(1, goal=9), turns=4, trees=20, nodes=100, leaves=101)
    left = Counter(r.inherited for r in records if r.copy >= 20)
    assert sum(left.values()) == 2000 and set(left) == {0, 1, 2, 3}
    assert all(abs(count - 500) < 80 for count in left.values())


def test_later_rounds_branch_from_branches_too():
    # Trunk of 4 steps, one branch: leaving at turn b it adds the nodes b+1 .. 3 to the trunk's root, 1, 2, 3. A second
    # branch leaves the first branch's own nodes with chance (3 - b) / (7 - b).
    records, _ = grown(tasks=walks(1, goal=9), turns=4, trees=400, nodes=1, rounds=2, leaves=3)
    deep = expected = 0.0
    for tree in range(400):
        trunk, first, second = (r for r in records if r.tree == tree)
        expected += (3 - first.inherited) / (7 - first.inherited)
        own = {id(step) for step in first.own}
        deep += any(id(step) in own for step in second.steps[: second.inherited])
        assert trunk.inherited == 0
    assert expected > 60 and abs(deep - expected) < 4 * np.sqrt(expected)


def test_pruning_keeps_whole_paths_and_drops_what_leads_nowhere():
    records, batch = grown(tasks=walks(1, goal=9), trees=30, nodes=3, leaves=2)
    graph = build_graph(records)
    on = paths(graph)
    assert len(records) == 60 and (np.bincount(on.leaf) == 6).all() and on.leaf.max() + 1 == 60
    assert len(graph) < batch.actions  # what was pruned was paid for
    assert sorted(r.ending for r in records) == [Status.TURN_LIMIT] * 60
    assert any(r.inherited and graph.parent[graph.episode == n][0] < 0 for n, r in enumerate(records))  # trunk dropped


def test_the_same_seed_gives_the_same_trees_and_another_does_not():
    def told(seed):
        records, _ = grown(tasks=walks(3), seed=seed, rounds=2, leaves=4)
        return [(r.group, r.tree, r.inherited, [s.action for s in r.steps]) for r in records]

    assert told(1) == told(1) != told(2)


def test_a_fault_in_one_branch_leaves_its_siblings_untouched():
    # The environment fails at turn 3 of the second episode that gets there, and of no other: a branch is lost (no
    # retries), and everything else is as if it had not been.
    whole, _ = grown(FAULTY, [faulty.task(8)], turns=5, leaves=3, trees=1)
    assert [len(r.steps) for r in whole] == [5, 5, 5]
    faulty.reached.clear()
    batch = expansion(FAULTY, [faulty.task(8, "second", 3)], limits=Limits(turns=5, fault_share=1.0, retries=0))
    cut = expand("tree", batch, leaves=3, trees=1)
    lost = [r for r in cut if r.ending == Status.ENV_ERROR]
    assert len(cut) == 3 and len(lost) == 1 and "second" in lost[0].fault
    for record in cut:
        if record is not lost[0]:
            same = next(r for r in whole if r.copy == record.copy)
            assert [s.action for s in same.steps] == [s.action for s in record.steps]
    graph = build_graph(cut)
    assert (~graph.failed()).sum() == sum(len(r.own) for r in cut if r is not lost[0])


def test_more_leaves_than_a_tree_has_are_refused():
    with pytest.raises(ValueError, match=r"leaves is 4, a tree has 1 \+ nodes \* rounds = 3: lower leaves"):
        grown(leaves=4)
