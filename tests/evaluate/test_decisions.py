"""Decisions by situation, counted by hand; the rule for decisions that became certain too early."""

import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from agentrl.evaluate import SituationRow, certain_too_early, pooled, situation_rows
from agentrl.evaluate.decisions import kind_of_action
from agentrl.exchange import steps_graph

# Two copies of one task. Both begin in A. The first takes there, walks to B, walks back to A, walks to B and wins; the
# second takes at once, then stays in C by looking, and loses.
FIRST = [("A", "go to b", "B"), ("B", "go to a", "A"), ("A", "go to b", "B"), ("B", "take key", "end")]
SECOND = [("A", "take mug", "C"), ("C", "look", "C")]


def graph(*episodes, group="g", **more):
    lines = []
    for number, (steps, won) in enumerate(episodes):
        for turn, (state, action, following) in enumerate(steps):
            row = {"group": group, "episode": number, "turn": turn, "state": state, "action": action}
            ending = turn == len(steps) - 1
            row |= {"next_state": following, "reward": float(won and ending), "terminated": ending, **more}
            lines.append(json.dumps(row))
    return steps_graph(lines)


def by_name(rows):
    return {row.situation: row for row in rows}


def test_situations_by_hand():
    rows = by_name(situation_rows(graph((FIRST, True), (SECOND, False), entropy=0.5), 7))
    # `go` is decided in A twice and in B once, by the first copy. In A the second copy takes, so the group varies in
    # it; so does the first copy itself in B. Steps 1 and 2 of the first copy lead back to A and B, so 2 of its 3 walks
    # are revisits. Where decisions differ, in A and B: three walks, whose episode is won, two takes, one of them won.
    assert rows["go"] == SituationRow(
        situation="go", iteration=7, decisions=3, entropy=0.5, episodes=1, won=1, others=1, others_won=0,
        groups=1, varied=1, chosen=3, chosen_won=3, instead=2, instead_won=1, revisits=2,
    )  # fmt: skip
    # `take` is decided in A by the second copy and in B by the first, which both have another decision beside them.
    take = rows["take"]
    assert (take.decisions, take.episodes, take.won, take.others, take.groups, take.varied) == (2, 2, 1, 0, 1, 1)
    # C is decided in once: nothing can be compared there. Looking leaves the state unchanged.
    look = rows["look"]
    assert (look.groups, look.varied, look.revisits, look.others_won) == (0, 0, 1, 1)


def test_steps_without_a_state_are_not_decisions_in_one_state():
    told = graph(([("A", "go", "B")], True), ([("A", "take", "C")], False))
    assert [(row.groups, row.varied, row.chosen) for row in situation_rows(told, 0)] == [(1, 1, 1)] * 2
    unknown = replace(told, columns={**told.columns, "state": np.full(2, -1), "next_state": np.full(2, -1)})
    assert [(row.groups, row.varied, row.revisits) for row in situation_rows(unknown, 0)] == [(0, 0, 0)] * 2


def test_copies_that_all_decide_alike_do_not_vary():
    alike = [("A", "take mug", "B")], True
    (row,) = situation_rows(graph(alike, alike, ([("A", "take key", "B")], False)), 0)
    assert (row.groups, row.varied, row.episodes, row.won) == (1, 0, 3, 2)  # two things, one kind of decision


def test_an_environments_situation_replaces_the_kind_of_action():
    seen = []

    def situation(observation, action):
        seen.append((observation.state_key, action))
        return f"{observation.state_key.lower()}: {action[:2]}"

    rows = by_name(situation_rows(graph((SECOND, False)), 0, situation))
    assert set(rows) == {"a: ta", "c: lo"}
    assert seen == [("A", "take mug"), ("C", "look")]


@pytest.mark.parametrize("seed", range(5))
def test_counts_of_all_situations_add_up(seed):
    rng = np.random.default_rng(seed)
    episodes = []
    for _ in range(6):
        walk = [str(s) for s in rng.integers(3, size=5)]
        steps = [(a, f"{rng.choice(['go', 'take', 'look'])} {b}", b) for a, b in pairwise(walk)]
        episodes.append((steps, bool(rng.integers(2))))
    made = graph(*episodes)
    rows = situation_rows(made, 0)
    assert sum(row.decisions for row in rows) == len(made) == 24
    assert all(row.episodes + row.others == 6 and row.varied <= row.groups <= 1 for row in rows)
    assert {row.won + row.others_won for row in rows} == {sum(won for _, won in episodes)}


def test_steps_without_log_probabilities_have_no_entropy():
    assert all(math.isnan(row.entropy) for row in situation_rows(graph((SECOND, False)), 0))


def test_entropy_without_a_column_is_the_mean_surprise_of_the_answers(tmp_path):
    made = graph((SECOND, False), token_value=[0.0, 0.0])
    assert made.tokens is not None
    told = replace(made.tokens, logprobs=np.array([-0.1, -0.2, -0.4, -0.8]))
    rows = by_name(situation_rows(replace(made, tokens=told), 0))
    assert rows["take"].entropy == pytest.approx(0.3)  # 0.1 + 0.2, the two tokens of its answer
    assert rows["look"].entropy == pytest.approx(1.2)


def test_pooled_counts_an_iteration_without_the_situation():
    first, second = situation_rows(graph((FIRST, True)), 0), situation_rows(graph((SECOND, False), (SECOND, True)), 1)
    rows = by_name(pooled([*first, *second]))
    assert (rows["go"].episodes, rows["go"].won, rows["go"].others, rows["go"].others_won) == (1, 1, 2, 1)
    assert (rows["take"].decisions, rows["take"].episodes, rows["take"].won, rows["take"].iteration) == (3, 3, 2, 1)


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ("take mug 1 from desk 2", "take"),
        ("Click[buy now]", "click"),
        ("<search> red shoes </search>", "search"),
        ('{"calls": [{"name": "add", "arguments": {"a": 1}}, {"name": "add", "arguments": {"a": 2}}]}', "add"),
        ('{"calls": [{"error": "no such tool"}]}', "malformed call"),
        ('{"answer": "42"}', "answer"),
        ("{x}", "x"),
        ("", "(no word)"),
        ("...", "(no word)"),
    ],
)
def test_kind_of_action(action, kind):
    assert kind_of_action(action) == kind


def row(iteration, *, varied=1, won=40, groups=4, instead_won=10):
    """128 episodes, 108 of them with the decision; where copies differed, 20 chose it, 5 of them won, 20 did not."""
    return SituationRow(
        situation="take", iteration=iteration, decisions=200, entropy=0.3, episodes=108, won=won, others=20,
        others_won=18, groups=groups, varied=varied, chosen=20, chosen_won=5, instead=20, instead_won=instead_won,
        revisits=0,
    )  # fmt: skip


def run(early, late, **more):
    return [row(i, varied=early if i < 20 else late, **more) for i in range(40)]


def test_a_decision_that_became_certain_while_it_fails_is_found():
    (found,) = certain_too_early(run(3, 0))
    assert (found.rule, found.severity, found.iteration) == ("certain_too_early", "warning", 39)
    # 30 of 40 groups at first, 0 of 40 now; 40 of 108 won now; where copies differed 5 of 20 and 10 of 20.
    for part in (
        '"take"',
        "75% of groups at the start",
        "0% now",
        "37% of its episodes",
        "25% of the episodes",
        "50% of the episodes with an alternative",
    ):
        assert part in found.text


@pytest.mark.parametrize(
    "rows",
    [
        run(3, 1),  # a quarter of the groups still varies
        run(0, 0),  # it never varied: nothing else is possible
        run(3, 0, won=108),  # certain and right
        run(3, 0, instead_won=4),  # it did better than its alternatives
        [replace(one, chosen=1, chosen_won=0) for one in run(3, 0)],  # copies hardly ever differed
        run(3, 0)[:19],  # too short to tell
        run(1, 0, groups=1),  # too few groups can tell
    ],
)
def test_decisions_that_are_open_forced_right_or_unknown_are_not_found(rows):
    assert certain_too_early(rows) == []
