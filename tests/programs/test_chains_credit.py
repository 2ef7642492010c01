"""What credit methods make of two episodes of one program, by hand: one succeeds, one does not.

Each episode: main asks, sub-agents a and b answer at the same time, main goes on and ends. The rewards are 1 and 0.
"""

import numpy as np
import pytest

from agentrl.catalogue import names
from agentrl.cli import view
from agentrl.config import resolve
from agentrl.credit import CreditMethod, assign, reward_metrics
from agentrl.graph import StepGraph, expand, paths
from agentrl.programs import share_outcome
from agentrl.rollout import EpisodeRecord, build_graph
from agentrl.types import Status
from tests.programs.test_chains import record
from tests.scoring.stages import OPINIONS, scored, stage

EVEN = 1e-5  # eps of the methods


def played(copy: int, reward: float, *asked: tuple) -> EpisodeRecord:
    found = record(*asked, copy=copy)
    last = found.steps[-1]
    last.reward, last.terminated, found.ending = reward, True, Status.DONE
    last.info = {"success": reward > 0, "signals": {"right": reward}}
    share_outcome(found)
    return found


def two(*asked: tuple) -> StepGraph:
    return build_graph([played(0, 1.0, *asked), played(1, 0.0, *asked)])


SUBS = ("main", 0, 1), ("a", 2, 4), ("b", 3, 5), ("main2", 6, 7, "main")


@pytest.fixture
def graph() -> StepGraph:
    """Rows: main, main2, a, b of the first episode, then of the second."""
    return two(*SUBS)


def advantage(graph: StepGraph, name: str, **options: object) -> list[float]:
    found = assign(resolve(CreditMethod, {"name": name, **options}), graph)
    assert found.assigned.all()
    return found.advantage.tolist()


def signed(*of_the_winner: float) -> list[float]:
    """The second episode has the opposite of the first one's credit."""
    return [*of_the_winner, *(-x for x in of_the_winner)]


def test_an_episode_counts_once_and_each_of_its_chains_succeeded_with_it(graph):
    assert graph.succeeded.tolist() == [True] * 4 + [False] * 4 and graph.score.tolist() == [1.0] * 4 + [0.0] * 4
    assert graph.rollout.tolist() == [0] * 4 + [3] * 4 and not graph.branched
    assert graph.parent.tolist() == [-1, 0, -1, -1, -1, 4, -1, -1]
    assert graph.caller.tolist() == [-1, -1, 0, 0, -1, -1, 4, 4]
    assert reward_metrics(graph) == {"signal_right": 0.5}  # of two episodes, not of six chains; its name is always this


def test_the_list_of_episodes_says_who_called(graph):
    lines = [line.split("done")[-1].strip() for line in view.table(graph).splitlines()[1:]]
    called = "t (agent/called, called by episode {}, turn 0)"
    assert lines == ["t (agent)", *[called.format(0)] * 2, "t (agent)", *[called.format(3)] * 2]
    assert [one["caller"] for one in view.episodes(graph)] == [None, [0, 0], [0, 0], None, [3, 0], [3, 0]]


def test_grpo_compares_episodes_and_each_chain_has_the_advantage_of_its_episode(graph):
    """Scores 1, 0, mean 1/2, sample deviation sqrt(1/2): 0.7071. The six chains would have sqrt(0.3)."""
    half = 0.5 / np.sqrt(1 / 2)
    assert advantage(graph, "grpo") == pytest.approx(signed(half, half, half, half), abs=EVEN)
    assert advantage(graph, "tree_grpo") == pytest.approx(signed(half, half, half, half), abs=EVEN)
    assert advantage(graph, "rloo") == pytest.approx(signed(1, 1, 1, 1))


def test_m_grpo_aligns_the_called_chains(graph):
    """The population deviation of the two main chains is 1/2, so 1 everywhere. Two calls per rollout stay two."""
    for align in (2, "off"):
        assert advantage(graph, "m_grpo", align=align) == pytest.approx(signed(1, 1, 1, 1), abs=EVEN)


def test_gigpo_sees_the_return_of_the_main_chain_without_the_calls_between(graph):
    """Returns with gamma 0.5: main 1/2, main2 1, a 1, b 1 (of the loser 0). Each state was met once per episode, so the
    step term is half the difference over sqrt(difference^2 / 2): 0.7071. As one chain, main's return was 1/8."""
    half = 0.5 / np.sqrt(1 / 2)
    found = assign(resolve(CreditMethod, {"name": "gigpo", "gamma": 0.5}), graph)
    assert found.parts["step_return"].tolist() == [0.5, 1, 1, 1, 0, 0, 0, 0]
    assert found.advantage.tolist() == pytest.approx(signed(2 * half, 2 * half, 2 * half, 2 * half), abs=1e-4)


def test_gae_goes_from_turn_to_turn_of_one_chain(graph):
    """gamma 0.9, lam 0.5, V(main) 0.5, V(main2) 0.6, V(a) 0.4, V(b) 0.3.

    The winner: main2 1 - 0.6 = 0.4; main 0.9 * 0.6 - 0.5 + 0.45 * 0.4 = 0.22; a 0.6; b 0.7.
    The loser: main2 -0.6; main 0.04 + 0.45 * -0.6 = -0.23; a -0.4; b -0.3.
    """
    valued = graph.with_columns(value=np.array([0.5, 0.6, 0.4, 0.3] * 2))
    found = advantage(valued, "turn_ppo", gamma=0.9, lam=0.5)
    assert found == pytest.approx([0.22, 0.4, 0.6, 0.7, -0.23, -0.6, -0.4, -0.3])


def test_several_answers_to_one_prompt():
    """Of three answers the first is continued; the two others are called chains with the episode's outcome."""
    graph = two(("main.0", 0, 1), ("main.1", 0, 2), ("main.2", 0, 3), ("main2", 4, 5, "main.0"))
    half = 0.5 / np.sqrt(1 / 2)
    assert advantage(graph, "grpo") == pytest.approx(signed(half, half, half, half), abs=EVEN)


def test_called_chains_are_compared_with_episodes_that_called_none():
    """The loser called no agent: the winner's called chains have the winner's advantage."""
    graph = build_graph([played(0, 1.0, *SUBS), played(1, 0.0, ("main", 0, 1))])
    half = 0.5 / np.sqrt(1 / 2)
    assert advantage(graph, "grpo") == pytest.approx([half, half, half, half, -half], abs=EVEN)
    assert graph.peers.tolist() == [0] * 5 and graph.lead.tolist() == [0, 0, 0, 0, 4]
    assert graph.counted.tolist() == [True, True, False, False, True]


def test_five_sub_agents_weigh_as_much_as_one():
    """Scores 1 (five sub-agents at once), 0, 0: mean 1/3, deviation sqrt(1/3). The chains' mean would be 6/8."""
    five = [("main", 0, 1), *((name, 2 + i, 7 + i) for i, name in enumerate("abcde")), ("main2", 12, 13, "main")]
    graph = build_graph([played(0, 1.0, *five), *(played(copy, 0.0, ("main", 0, 1)) for copy in (1, 2))])
    expected = [(2 / 3) / np.sqrt(1 / 3)] * 7 + [-(1 / 3) / np.sqrt(1 / 3)] * 2
    assert advantage(graph, "grpo") == pytest.approx(expected, abs=EVEN)
    assert advantage(graph, "rloo") == pytest.approx([1.0] * 7 + [-0.5] * 2)


def test_the_chain_that_stands_for_a_called_chain_is_found_without_the_relation():
    """`expand` drops `caller`; a called chain whose main chain is not in the graph stands for itself."""
    graph = two(*SUBS)
    assert expand(graph, paths(graph)).lead.tolist() == graph.lead.tolist() == [0] * 4 + [4] * 4
    assert graph.take(np.array([2, 3, 4])).lead.tolist() == [0, 0, 2]


VALUES = {"value": np.linspace(0.1, 0.8, 8), "next_value": np.full(8, np.nan), "value_high": np.linspace(0.2, 0.7, 8)}
OTHER_COLUMNS = {"bilevel_gae", "hiper", "info_gain", "poad", "token_gae"}  # need values of tokens or of segments


@pytest.mark.parametrize("name", sorted({*names("credit")} - OTHER_COLUMNS))
def test_no_method_gives_a_chain_of_the_winner_less_than_the_same_chain_of_the_loser(graph, name):
    """All but the outcome is equal in the two episodes."""
    found = np.array(advantage(graph.with_columns(**{k: np.tile(x[:4], 2) for k, x in VALUES.items()}), name))
    assert np.isfinite(found).all() and (found[:4] >= found[4:] - 1e-9).all()


def test_called_chains_get_the_signals_of_scores_with_their_episode():
    """A score is given to the main chain alone; without its signal a called chain would look like a failure."""
    records = [played(0, 0.0, *SUBS), played(1, 0.0, *SUBS)]
    _, found = scored(stage({"name": OPINIONS}), records)
    signal = found.columns["signal/opinion"]
    assert np.isnan(signal[[0, 4]]).all()
    assert signal[[1, 2, 3]].tolist() == [signal[1]] * 3 and signal[[5, 6, 7]].tolist() == [signal[5]] * 3
