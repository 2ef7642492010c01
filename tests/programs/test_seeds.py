"""The seed that a program gets."""

from types import SimpleNamespace

from agentrl.env import Limits
from agentrl.programs import Program
from agentrl.programs.episode import ProgramEpisode


def seed(*key):
    start = SimpleNamespace(point=None, turns=None, opening=None, words=(), tokens=None, session=0, temperature=None)
    player = SimpleNamespace(limits=Limits(), prompt=None, actor=SimpleNamespace(chat="a chat"))
    return ProgramEpisode(Program(lockstep=False), player, None, None, start, key).seed


def test_each_episode_and_each_try_has_its_own_seed():
    keys = [
        (run, stage, episode, attempt)
        for run in (0, 1)
        for stage in (0, 7)
        for episode in range(99)
        for attempt in (0, 1)
    ]
    seeds = [seed(*key) for key in keys]
    assert len(set(seeds)) == len(seeds) and seed(*keys[0]) == seeds[0]
    assert min(seeds) >= 0 and max(seeds) < 1 << 31
