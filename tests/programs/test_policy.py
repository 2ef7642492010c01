"""Episodes of programs that agentrl did not start."""

import asyncio

from agentrl.chat import Chat
from agentrl.env import Limits
from agentrl.graph import read_graph
from agentrl.programs.requests import ChatRequest
from agentrl.programs.served import Guests
from agentrl.rollout import PolicyActor
from agentrl.types import Message
from tests.programs.test_endpoint import Told
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
        await recorder.answer(ChatRequest((Message("user", "2 + 2?"),)))
        late = asyncio.create_task(recorder.answer(ChatRequest((Message("user", "2 + 3?"),))))
        await asyncio.sleep(0)
        assert guests.end("a", {"task": "sum", "reward": 1.0}) == {"task": "sum", "steps": 1}
        policy.gate.set()
        await late
        assert len(recorder.steps) == 2

    asyncio.run(play())
    assert guests.store(tmp_path / "episodes.safetensors") == 1
    graph = read_graph(tmp_path / "episodes.safetensors")
    assert graph.reward.tolist() == [1.0] and graph.terminated.tolist() == [True]


def test_sub_agents_at_the_same_time_are_called_agents_of_the_episode_in_any_order_of_the_answers(tmp_path):
    """Two copies of a task: the answers to the second's sub-agents come in the other order."""
    tokenizer = language_model().tokenizer

    class Turned(Told):
        """Says a word of the prompt; the answer to the prompt named `last` waits until the other has come."""

        last = ""

        async def generate(self, request):
            words = request.messages[-1].content
            if words == self.last:
                await self.other.wait()
            self.texts.append(words)
            found = await super().generate(request)
            if words in ("left", "right"):
                self.other.set()
            return found

    policy = Turned(tokenizer)
    guests = Guests(PolicyActor(policy, Chat(tokenizer), 512), Limits(turns=9, turn_tokens=8))

    async def play(key, last, reward):
        policy.other, policy.last = asyncio.Event(), last
        recorder = guests.admit(key)
        main = (Message("user", "four"),)
        (said,) = await recorder.answer(ChatRequest(main))
        asked = [ChatRequest((Message("user", words),)) for words in ("right", "left")]
        await asyncio.gather(*map(recorder.answer, asked))
        await recorder.answer(ChatRequest((*main, said.message, Message("user", "five"))))
        assert [step.action for step in recorder.steps][1:3] == (
            ["left", "right"] if last == "right" else ["right", "left"]
        )
        assert guests.end(key, {"task": "sum", "reward": reward}) == {"task": "sum", "steps": 4}

    asyncio.run(play("a", "right", 1.0))
    asyncio.run(play("b", "left", 0.0))
    assert guests.store(tmp_path / "episodes.safetensors") == 2
    graph = read_graph(tmp_path / "episodes.safetensors")
    assert list(graph.texts["answer"]) == ["four", "five", "left", "right"] * 2
    assert graph.caller.tolist() == [-1, -1, 0, 0, -1, -1, 4, 4] and graph.parent.tolist()[:4] == [-1, 0, -1, -1]
    assert graph.score.tolist() == [1.0] * 4 + [0.0] * 4 == graph.succeeded.tolist()
    assert graph.names["agent"] == ("agent", "agent/called") and len(set(graph.rollout.tolist())) == 2
