"""Graph methods on forests that hypothesis draws, with networkx as the other opinion."""

from collections import defaultdict
from statistics import mean, stdev

import networkx as nx
import numpy as np
from hypothesis import given, settings, strategies as st

from tests.algorithms.credit.steps import Row, advantage, credit_of

REWARD = st.sampled_from([0.0, 0.5, 1.0, -1.0])
STEP = st.tuples(st.sampled_from("stu"), st.sampled_from("xy"), REWARD)
QUICK = settings(max_examples=40, deadline=None)


@st.composite
def forests(draw: st.DrawFn, branches: bool) -> list[Row]:
    """Episodes of 1 to 4 steps in two groups and two trees; with `branches`, later ones may go on from a step of an
    earlier one of their tree that is not its last."""
    rows: list[Row] = []
    for number in range(draw(st.integers(1, 7))):
        group, tree = f"g{draw(st.integers(0, 1))}", f"t{draw(st.integers(0, 1))}"
        inner = [r for r in rows if (r["group"], r["tree"]) == (group, tree) and not r["end"]] if branches else []
        above = draw(st.none() | st.sampled_from(inner)) if inner else None
        steps = draw(st.lists(STEP, min_size=1, max_size=4))
        for k, (state, action, reward) in enumerate(steps):
            row = {"group": group, "episode": f"e{number}", "turn": k + (above["turn"] + 1 if above else 0)}
            row |= {"reward": reward, "state": state, "action": action, "tree": tree, "end": k == len(steps) - 1}
            rows.append(row | ({"parent": [above["episode"], above["turn"]]} if above and not k else {}))
        rows[-1]["terminated"] = True
    return rows


def tree_of(rows: list[Row]) -> nx.DiGraph:
    """Steps below the step they follow, first steps below their prompt, ("root", group, tree)."""
    at = {(r["group"], r["episode"], r["turn"]): i for i, r in enumerate(rows)}
    graph = nx.DiGraph()
    for i, row in enumerate(rows):
        episode, turn = row.get("parent", (row["episode"], row["turn"] - 1))
        graph.add_edge(at.get((row["group"], episode, turn), ("root", row["group"], row["tree"])), i)
    return graph


def apart(x: float, others: list[float]) -> float:
    """x against its group of two or more, as GRPO does it."""
    return (x - mean(others)) / (stdev(others) + 1e-6) if len(others) > 1 and max(others) > min(others) else 0.0


@QUICK
@given(forests(branches=True))
def test_tree_grpo_sums_over_the_leaves_below(rows):
    graph = tree_of(rows)
    roots = [node for node in graph if isinstance(node, tuple)]
    score, groups, trees = {}, defaultdict(list), defaultdict(list)
    for root in roots:
        for leaf in (n for n in nx.descendants(graph, root) if not graph.out_degree(n)):
            score[leaf] = sum(rows[n]["reward"] for n in nx.shortest_path(graph, root, leaf)[1:])
            groups[root[1]].append(score[leaf])
            trees[root].append(score[leaf])
    expected = []
    for i, row in enumerate(rows):
        leaves = [n for n in {i, *nx.descendants(graph, i)} if n in score]
        prompt = ("root", row["group"], row["tree"])
        expected.append(sum(apart(score[n], groups[row["group"]]) + apart(score[n], trees[prompt]) for n in leaves))
    np.testing.assert_allclose(advantage("tree_grpo", rows), expected, atol=1e-8)


@QUICK
@given(forests(branches=True))
def test_segment_values_rise_from_the_leaves(rows):
    graph, value = tree_of(rows), {}
    for node in reversed(list(nx.topological_sort(graph))):
        below = [value[n] for n in graph.successors(node)]
        value[node] = mean(below) if below else rows[node]["reward"]
    expected = [value[i] - value[next(graph.predecessors(i))] for i in range(len(rows))]
    np.testing.assert_allclose(advantage("segment_tree", rows), expected, atol=1e-9)


def merged(rows: list[Row]) -> nx.MultiDiGraph:
    """One node a state of a group, one edge a step; an episode's last step leads to success or failure."""
    graph, score = nx.MultiDiGraph(), defaultdict(float)
    for row in rows:
        score[row["group"], row["episode"]] += row["reward"]
    for i, row in enumerate(rows):
        won = score[row["group"], row["episode"]] > 0
        after = ("end", won) if row["end"] else rows[i + 1]["state"]
        graph.add_edge((row["group"], row["state"]), (row["group"], after), key=i, action=row["action"])
    return graph


@QUICK
@given(forests(branches=False))
def test_salt_averages_parallel_edges_of_one_action(rows):
    graph, base = merged(rows), advantage("grpo", rows)
    out = credit_of("salt", rows)
    for u, v, i, action in graph.edges(keys=True, data="action"):
        same = [j for j, data in graph[u][v].items() if data["action"] == action]
        np.testing.assert_allclose(out["advantage"][i], np.mean(base[same]), atol=1e-9)
        assert out["merged"][i] == (len(same) > 1)


@QUICK
@given(forests(branches=False))
def test_distances_are_shortest_paths_to_success(rows):
    graph, out = merged(rows).reverse(), credit_of("graph_gpo", rows)
    for group in {row["group"] for row in rows}:
        goal = (group, ("end", True))
        found = nx.single_source_shortest_path_length(graph, goal) if goal in graph else {}
        far = max(found.values(), default=0) + 1
        for i, row in enumerate(rows):
            if row["group"] == group:
                assert out["distance"][i] == found.get((group, row["state"]), far)


@QUICK
@given(forests(branches=False), st.sampled_from([0.0, 0.5, 1.0]))
def test_gigpo_step_groups_are_the_nodes(rows, gamma):
    graph = merged(rows)
    out = credit_of("gigpo", rows, gamma=gamma)
    for node in graph:
        members = [i for _, _, i in graph.out_edges(node, keys=True)]
        togo = [out["step_return"][i] for i in members]
        assert len({out["step_group"][i] for i in members}) <= 1
        np.testing.assert_allclose(
            [out["step_advantage"][i] for i in members], [apart(x, togo) for x in togo], atol=1e-6
        )


@QUICK
@given(forests(branches=False))
def test_main_and_sub_agents_are_compared_with_their_kind(rows):
    """m_grpo as given, by a loop: population std over the episodes of a group and agent."""
    rows = [row | {"agent": "main" if row["episode"] < "e3" else "sub"} for row in rows]
    score, kinds = defaultdict(float), defaultdict(set)
    for row in rows:
        score[row["group"], row["episode"]] += row["reward"]
        kinds[row["group"], row["agent"]].add(row["episode"])
    expected = []
    for row in rows:
        own = [score[row["group"], episode] for episode in kinds[row["group"], row["agent"]]]
        spread = np.std(own) if max(own) > min(own) else 0.0
        expected.append((score[row["group"], row["episode"]] - np.mean(own)) / (spread + 1e-6) if spread else 0.0)
    np.testing.assert_allclose(advantage("m_grpo", rows, align="off"), expected, atol=1e-8)
