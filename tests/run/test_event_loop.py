"""An interrupted event loop ends every task, and says nothing about them."""

import asyncio
import gc

import pytest

from agentrl.run.event_loop import ROUNDS, Loop


async def nested(width: int, depth: int, leaf) -> None:
    """As rollouts await their chains: cancelled ones are waited for."""
    if depth == 0:
        await leaf()
        return
    jobs = [asyncio.ensure_future(nested(width, depth - 1, leaf)) for _ in range(width)]
    try:
        await asyncio.gather(*jobs)
    except BaseException:
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        raise


@pytest.mark.fault
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_an_interrupt_in_a_task_leaves_no_task_behind(depth, caplog, capfd):
    count = 0

    async def leaf() -> None:
        nonlocal count
        count += 1
        if count == 2:
            raise KeyboardInterrupt(15)
        await asyncio.sleep(60)

    with pytest.raises(KeyboardInterrupt), Loop() as loop:
        loop.run(nested(4, depth, leaf))
    del loop
    gc.collect()
    assert caplog.text == "" and capfd.readouterr().err == ""


@pytest.mark.fault
def test_a_task_that_does_not_end_is_left_after_a_while(caplog, monkeypatch):
    monkeypatch.setattr("agentrl.run.event_loop.PATIENCE_S", 0.01)
    cancelled = 0

    async def deaf() -> None:
        nonlocal cancelled
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled += 1

    async def start() -> None:
        tasks.append(asyncio.ensure_future(deaf()))
        await asyncio.sleep(0)

    tasks: list[asyncio.Future] = []
    with Loop() as loop:
        loop.run(start())
    tasks.clear()
    del loop
    gc.collect()
    assert cancelled == ROUNDS and caplog.text == ""
