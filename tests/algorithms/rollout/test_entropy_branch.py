"""ARPO's sampling: where copies are made, and what the budget buys."""

from dataclasses import replace

import numpy as np
import pytest

from agentrl.env import Limits, prompt_of
from agentrl.rollout import Random, build_graph
from tests.rollout.expanding import expand, expansion, walks
from tests.rollout.playing import entry


class Unsure(Random):
    """Random answers of 25 tokens; token i of turn t has entropy `rise[t]` for i < 20, 9 beyond."""

    def __init__(self, rise):
        super().__init__(prompt_of(entry()))
        self.rise = rise

    async def generate(self, request):
        answer = await super().generate(request)
        if self.rise is None:
            return answer
        told = np.r_[np.full(20, self.rise[min(request.noise_key[-1], len(self.rise) - 1)]), np.full(5, 9.0)]
        return replace(answer, entropy=told)


def grown(rise, copies, *, turns=4, tasks=1, seed=0, **options):
    batch = expansion(
        tasks=walks(tasks, goal=99), policy=Unsure(rise), limits=Limits(turns=turns, fault_share=1.0), seed=seed
    )
    return expand("entropy_branch", batch, copies, **options), batch


def test_copies_of_copies_by_hand():
    # threshold 1: a copy wherever there is room. Turn 0: 0 -> 1. Turn 1: 0 -> 2, 1 -> 3. Turn 2: 0 -> 4, 1 -> 5, full.
    records, batch = grown([0.0], 6, initial=1, threshold=1.0)
    assert [(r.copy, r.inherited) for r in records] == [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (5, 3)]
    for child, parent in ((1, 0), (2, 0), (3, 1), (4, 0), (5, 1)):
        same = records[child].inherited
        assert all(a is b for a, b in zip(records[child].steps[:same], records[parent].steps[:same], strict=True))
    assert batch.actions == len(build_graph(records)) == 4 + 3 + 2 + 2 + 1 + 1
    assert {r.tree for r in records} == {0}


def test_without_copies_a_fresh_chain_follows_each_that_ended():
    # threshold 0: u <= 0 has no chance. 2 of 5 are begun at once, then one at a time when nothing is going on.
    records, batch = grown([0.0], 5, threshold=0.0)
    assert [(r.inherited, r.tree) for r in records] == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4)]
    assert batch.actions == 5 * 4


def test_a_rise_of_entropy_by_hand():
    # H_0 = 20 * 0.1 = 2; H_1 = 20 * 0.4 = 8, so at turn 1 u - 0.2 * 6 = u - 1.2 < 0 always copies, and the five tokens
    # beyond the 20th do not count. H_2 = 0: u + 0.4 <= 0.5 copies with chance 0.1; turn 0 copies with chance 0.5.
    counts = np.zeros(4)
    for seed in range(60):
        records, _ = grown([0.1, 0.4, 0.0, 0.0], 2, initial=1, seed=seed)
        counts[records[1].inherited] += 1
    assert counts[0] == counts[3] == 0  # after turn 0, else after turn 1, without fail
    assert counts[1] + counts[2] == 60 and abs(counts[1] - 30) < 4 * np.sqrt(60 / 4)


def test_a_fall_of_entropy_makes_copies_rare():
    # Turn 0 aside, u + 0.2 * (H_0 - H_t) = u + 0.4 <= 0.5 has chance 0.1; over 2 more turns 0.19. No copy: 0.5 * 0.81.
    fresh = sum(grown([0.1, 0.0], 2, initial=1, seed=s)[0][1].inherited == 0 for s in range(80))
    assert abs(fresh - 80 * 0.405) < 4 * np.sqrt(80 * 0.405 * 0.595)


def test_every_task_gets_its_budget_and_the_same_seed_the_same_copies():
    def told():
        records, _ = grown([0.1, 0.15, 0.12], 8, tasks=3, beam=3)
        assert [r.group for r in records] == [g for g in range(3) for _ in range(8)]
        return [(r.copy, r.tree, r.inherited, [s.action for s in r.steps]) for r in records]

    assert told() == told()


def test_a_policy_without_entropies_is_told_so():
    with pytest.raises(ValueError, match="needs the entropy of each token"):
        grown(None, 4)
