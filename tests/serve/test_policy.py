"""Episodes of programs that agentrl did not start."""

import asyncio

from agentrl.chat import Chat
from agentrl.env import Limits
from agentrl.graph import read_graph
from agentrl.rollout import PolicyActor
from agentrl.rollout.program.protocol import Asked
from agentrl.serve.policy import Guests
from agentrl.types import Message
from tests.rollout.program.test_endpoint import Told
from tests.toys.language_model import language_model


class Slow(Told):
    """A policy whose last answer waits."""

    gate: asyncio.Event

    async def generate(self, request):
        if len(self.texts) == 1:
            await self.gate.wait()
        return await super().generate(request)


def test_an_answer_that_comes_after_the_end_is_no_step_of_the_episode(tmp_path):
    tokenizer = language_model().tokenizer
    policy = Slow(tokenizer, "four", "five")
    guests = Guests(PolicyActor(policy, Chat(tokenizer), 512), Limits(turns=9, turn_tokens=8))

    async def play():
        policy.gate = asyncio.Event()
        recorder = guests.admit("a")
        await recorder.answer(Asked((Message("user", "2 + 2?"),)))
        late = asyncio.create_task(recorder.answer(Asked((Message("user", "2 + 3?"),))))
        await asyncio.sleep(0)
        assert guests.end("a", {"task": "sum", "reward": 1.0}) == {"task": "sum", "steps": 1}
        policy.gate.set()
        await late
        assert len(recorder.steps) == 2

    asyncio.run(play())
    assert guests.store(tmp_path / "episodes.safetensors") == 1
    graph = read_graph(tmp_path / "episodes.safetensors")
    assert graph.reward.tolist() == [1.0] and graph.terminated.tolist() == [True]
