"""Monte Carlo values from probes."""

from itertools import pairwise

import numpy as np
import pytest

from agentrl.credit import assign
from agentrl.env import Limits
from agentrl.graph import PLAYED, PROBE
from agentrl.rollout import build_graph
from agentrl.types import Status
from tests.rollout.expanding import expand, expansion, walks
from tests.rollout.playing import FAULTY
from tests.toys import faulty
from tests.toys.entries import credit_method


def grown(tasks, *, turns=5, copies=2, seed=0, **options):
    batch = expansion(tasks=tasks, limits=Limits(turns=turns, fault_share=1.0), seed=seed)
    return expand("vine", batch, copies, **options), batch


def test_each_state_is_probed_and_probes_are_no_part_of_credit():
    records, batch = grown(walks(1, goal=2), probes=3)
    chains = [r for r in records if r.kind == PLAYED]
    probes = [r for r in records if r.kind == PROBE]
    assert len(chains) == 2 and len(probes) == 3 * sum(len(r.steps) for r in chains)
    graph = build_graph(records)
    assert len(graph) == batch.actions == sum(len(r.own) for r in records)
    played = graph.kind == PLAYED
    assert np.isnan(graph.column("value")[~played]).all() and not np.isnan(graph.column("value")[played]).any()
    assert played[: played.sum()].all()  # played rows first
    credit = assign(credit_method("vine_ppo"), graph)
    assert credit.assigned[played].all() and not credit.assigned[~played].any()
    # A_t = r_t + V_{t+1} - V_t, with V the mean return of the three probes that leave at t
    row = 0
    for record in chains:
        own = [p for p in probes if p.inherited and p.steps[0] is record.steps[0]]
        for turn, step in enumerate(record.steps[1:], 1):
            returns = [sum(s.reward for s in p.own) for p in own if p.inherited == turn]
            assert len(returns) == 3 and step.value == pytest.approx(np.mean(returns))
        for turn, (now, following) in enumerate(pairwise([*record.steps, None])):
            after = 0.0 if following is None else following.value
            assert credit.advantage[row] == pytest.approx(now.reward + after - now.value), turn
            row += 1


def test_the_value_of_a_state_is_its_chance_of_success():
    # A random walk on -1, 0, ..., 3 from 0 with goal 3 and 3 turns: only right, right, right wins, chance 1/8.
    records, _ = grown(walks(1, goal=3), turns=3, copies=1, probes=1200)
    assert records[0].steps[0].value == pytest.approx(1 / 8, abs=4 * np.sqrt(7 / 64 / 1200))


def test_states_in_between_get_no_advantage_of_their_own():
    records, _ = grown(walks(1, goal=9), turns=5, copies=1, probes=2, every=2, unfinished=-1.0)
    values = [step.value for step in records[0].steps]
    # All rewards are 0 and every probe ends at the turn limit: probed states have -1, turn 1 has V(turn 2) = -1.
    assert values == [-1.0] * 5
    assert sum(r.kind == PROBE for r in records) == 2 * 3


def test_a_chain_whose_probes_all_fail_is_lost_and_one_failed_probe_is_left_out():
    # First every episode but the first fails at turn 2, then the second that gets to turn 1.
    options = {"limits": Limits(turns=3, fault_share=1.0, retries=0)}
    faulty.reached.clear()
    broken = expand("vine", expansion(FAULTY, [faulty.task(8, "later", 2)], **options), 1, probes=2)
    assert broken[0].ending == Status.ENV_ERROR and "all probes of turn 2 were lost: KeyError" in broken[0].fault
    faulty.reached.clear()
    records = expand("vine", expansion(FAULTY, [faulty.task(8, "second", 1)], **options), 1, probes=2)
    lost = [r for r in records if r.ending == Status.ENV_ERROR]
    assert len(lost) == 1 and lost[0].kind == PROBE and records[0].ending == Status.TURN_LIMIT
    assert not np.isnan([s.value for s in records[0].steps]).any()
