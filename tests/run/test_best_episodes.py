"""Of a player who wins by chance only the best episodes are cloned."""

import numpy as np
import pytest

from agentrl.rollout import EpisodeRecord
from agentrl.rollout.records import StepRecord
from agentrl.run.rollouts import _leave_the_best
from agentrl.types import Generation, Observation, Status, Task


def episode(reward: float, **info: bool) -> EpisodeRecord:
    """Two steps, of which the last one is rewarded."""
    steps = [
        StepRecord(
            observation=Observation(text="o"),
            added=np.zeros(0, np.int64),
            continues=False,
            generation=Generation(text="a"),
            action="a",
            valid=True,
            status=Status.OK,
            reward=reward * last,
            info=info,
        )
        for last in (0, 1)
    ]
    return EpisodeRecord(task=Task(key="t", env="e", seed=0), group=0, copy=0, steps=steps)


@pytest.mark.parametrize(
    ("episodes", "cloned", "won_share"),
    [
        ([episode(1.0), episode(0.0), episode(0.5)], [0, 2], 2 / 3),  # success is a positive return
        ([episode(1.0, success=False), episode(0.0, success=True)], [1], 1 / 2),  # unless the environment says it
        ([episode(-float(r)) for r in range(20)], [0, 1, 2], 0.0),  # down to the return that a tenth lies above
        ([episode(-1.0)] * 5 + [episode(-9.0)], [0, 1, 2, 3, 4], 0.0),  # ties
        ([episode(-3.0) for _ in range(12)], [], 0.0),  # all alike: nothing is any better
    ],
)
def test_what_is_cloned(episodes, cloned, won_share):
    fresh = [episode(one.score, **one.steps[-1].info) for one in episodes]
    shares = _leave_the_best(fresh)
    for number, one in enumerate(fresh):
        assert [step.generation.weight for step in one.steps] == [float(number in cloned)] * 2
    assert shares == {"won_share": won_share, "cloned_share": len(cloned) / len(fresh)}
