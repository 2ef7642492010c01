"""Several actions from one state, one of them executed."""

import numpy as np
import pytest

from agentrl.algorithms.credit.role_grpo import role
from agentrl.algorithms.credit.tl_grpo import Config as TurnConfig, compared
from agentrl.env import Limits
from agentrl.graph import CANDIDATE, PLAYED
from agentrl.rollout import build_graph
from agentrl.types import Status
from tests.rollout.expanding import expand, expansion, walks


def grown(tasks, *, turns=4, copies=1, seed=0, **options):
    batch = expansion(tasks=tasks, limits=Limits(turns=turns, fault_share=1.0), seed=seed)
    return expand("candidates", batch, copies, **options), batch


def test_each_state_has_its_candidates_and_one_of_them_goes_on():
    records, batch = grown(walks(2, goal=9), copies=2, candidates=3)
    chains = [r for r in records if r.kind == PLAYED]
    assert [(r.group, len(r.steps)) for r in chains] == [(0, 4), (0, 4), (1, 4), (1, 4)]
    assert batch.actions == len(build_graph(records)) == 4 * 4 * 3
    graph = build_graph(records)
    played = np.flatnonzero(graph.kind == PLAYED)
    for row in np.flatnonzero(graph.kind == CANDIDATE):
        rival = [n for n in played if graph.parent[n] == graph.parent[row] and graph.tree[n] == graph.tree[row]]
        assert len(rival) == 1 and graph.turn[rival[0]] == graph.turn[row]
        assert graph.state[rival[0]] == graph.state[row] and graph.group[rival[0]] == graph.group[row]
    assert len(np.unique(graph.tree)) == 4


def test_candidates_are_compared_with_those_of_their_own_state():
    # two chains of a task reach other states: a role is one state of one chain, three actions each
    graph = build_graph(grown(walks(2, goal=9), copies=2, candidates=3)[0])
    for key in (role(graph, "auto"), compared(graph, TurnConfig())):
        assert (np.bincount(key) == 3).all() and len(np.unique(key)) == 4 * 4
        for one in np.unique(key):
            assert len(np.unique(graph.state[key == one])) == 1
    merged = role(graph, ("group", "turn", "agent"))
    assert any(len(np.unique(graph.state[merged == one])) > 1 for one in np.unique(merged))


def test_the_best_is_executed_and_equal_ones_go_to_the_first():
    # Goal 1, four candidates a turn: "right" from place 0 wins (reward 1) and is taken whenever it is among them.
    records, _ = grown(walks(12, goal=1), candidates=4, copies=1)
    for group in range(12):
        chain = next(r for r in records if r.group == group and r.kind == PLAYED)
        others = [r for r in records if r.group == group and r.kind == CANDIDATE]
        for turn, step in enumerate(chain.steps):
            rivals = [r.steps[-1] for r in others if r.inherited == turn]
            assert len(rivals) == 3 and step.reward == max([step.reward, *(r.reward for r in rivals)])
    first, _ = grown(walks(6, goal=9), candidates=3)  # nobody is rewarded
    assert all(r.copy % 3 == 0 for r in first if r.kind == PLAYED and r.ending == Status.TURN_LIMIT)


def test_choosing_the_first_is_a_sample_of_the_policy():
    records, _ = grown(walks(1, goal=1), turns=1, copies=1000, candidates=2, choose="first")
    won = np.mean([r.success for r in records if r.kind == PLAYED])
    assert won == pytest.approx(0.5, abs=4 * np.sqrt(0.25 / 1000))
    best, _ = grown(walks(1, goal=1), turns=1, copies=1000, candidates=2)
    won = np.mean([r.success for r in best if r.kind == PLAYED])
    assert won == pytest.approx(0.75, abs=4 * np.sqrt(0.1875 / 1000))
