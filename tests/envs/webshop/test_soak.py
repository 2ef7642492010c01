"""A hundred thousand resets and a million random actions: no exception, flat memory."""

import random
from pathlib import Path

import pytest

from agentrl.envs import webshop

ODD = ("search[<r>]", "search[<q> green tea]", "search[<c> beauty]", "search[ ]", "no", "search[search_results rug]")


def resident_mb():
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_resets_and_random_actions_leave_memory_flat():
    env = webshop.make(webshop.Config(max_steps=None, observation="text_rich", split="all"))
    tasks = webshop.tasks(webshop.Config(split="all"))
    rng = random.Random(0)
    bought = 0

    def act(steps):
        nonlocal bought
        observation = env.reset(tasks[0])
        for _ in range(steps):
            clicks = observation.actions
            if rng.random() < 0.05 or not clicks:
                action = rng.choice(ODD)
            elif rng.random() < 0.02:
                action = f"search[{' '.join(rng.choices(observation.text.split(), k=4))}]"
            else:
                action = rng.choice(clicks)
            observation, _, done, *_ = env.step(action)
            bought += done
            if done and rng.random() < 0.9:
                observation = env.reset(tasks[rng.randrange(len(tasks))])

    for i in range(20_000):
        env.reset(tasks[i % len(tasks)])
    act(200_000)
    before = resident_mb()
    for i in range(80_000):
        env.reset(tasks[i % len(tasks)])
    act(800_000)
    growth = resident_mb() - before
    print(f"100,000 resets, 1,000,000 actions, {bought:,} purchases: {before:.0f} MB, then {growth:+.1f} MB")
    assert bought > 10_000
    assert growth < 20
