"""Rewards of continuations, by hand."""

from agentrl.evaluate import with_run_rewards
from agentrl.graph import PROBE
from agentrl.rollout import build_graph
from tests.rollout.test_records import A, B, episode, step


def test_the_rewards_of_called_agents_stay_with_their_steps():
    shared, asks, paid = step(A, "go"), step(B, "ask", reward=1.0), step(B, "stay", reward=2.0)
    called = step(A, "answer", reward=0.25)
    first = episode(0, 0, shared, asks, inherited=1, kind=PROBE)
    first.called.append(episode(0, 0, called, agent="helper", caller=asks, kind=PROBE))
    second = episode(0, 1, shared, paid, inherited=1, kind=PROBE)
    graph = with_run_rewards(build_graph([first, second]), [first, second], [])
    assert graph.reward.tolist() == [0.0, 1.0, 0.25, 2.0]
    assert [one.reward for one in (shared, asks, called, paid)] == [0.0, 1.0, 0.25, 2.0]
