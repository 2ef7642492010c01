"""Conversations of every environment, in every prompt, under chat templates of every kind.

Each prompt must begin with the tokens of the prompt and the answer before it (else a packed path would not be what the
model saw), and the tokens must say what the template writes for the messages.
"""

import asyncio
import itertools
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from transformers import AutoTokenizer

from agentrl import catalogue
from agentrl.chat import Chat
from agentrl.config import resolve
from agentrl.env import EnvironmentFile, Limits, continues, make_pool, tasks_of
from agentrl.rollout import Actor, ExpertActor, PlayerFactory, PolicyActor, Random, play
from agentrl.settings import agent_sections, resolve_agents
from agentrl.types import Generation, Message
from tests.chat.chats import chat

REAL = Path("models/smollm2")
TOYS = ("default_system", "tight", "thinking", "tool_role")
TEMPLATE_SYSTEM = "You are a helpful AI assistant named SmolLM"
OPTIONS: dict[str, dict[str, Any]] = {
    "alfworld": {"max_steps": 5},
    "webshop": {"num_products": 100},
    "sokoban": {"level": "hard"},
}
SLOW = ("textworld",)  # starts a process with the game's own engine
ONE_TURN = ("desk_user",)  # has nothing to continue
SANDBOXED = ("code_math", "code_pair", "code_repair", "code_repo", "code_test")  # start a sandbox per episode


def prompts(name: str) -> tuple[str, ...]:
    """The prompts that an environment offers; one empty name if it has no choice."""
    field = catalogue.load(EnvironmentFile, name).config.model_fields.get("prompt")
    return get_args(field.annotation) if field else ("",)


FOREIGN = ("inspect_ai", "openenv", "reasoning_gym", "textarena", "verifiers")  # need a package: tests/envs/foreign
CASES = [(name, prompt) for name in catalogue.names("envs") if name not in FOREIGN for prompt in prompts(name)]


def slow(name: str, prompt: str) -> bool:
    """Is the conversation left to the slow tests?"""
    return name in SLOW or (name in SANDBOXED and prompt == "compact")


PARAMETERS = [pytest.param(*case, marks=pytest.mark.slow if slow(*case) else ()) for case in CASES]


class Recorder(Actor):
    """Answers as another actor does, with a thought before each answer, and keeps requests and answers by session."""

    def __init__(self, inner: Actor, words: Chat, prompt: Any, thought: str) -> None:
        self.inner, self.chat, self.prompt, self.thought = inner, words, prompt, thought
        self.name, self.context_limit = inner.name, None
        self.heard: dict[int, list[tuple[Any, np.ndarray]]] = {}

    async def answer(self, request, handle):
        text = self.thought + (await self.inner.answer(request, handle)).text
        ids = self.chat.answer(text, end=not continues(self.prompt))
        self.heard.setdefault(request.session, []).append((request, ids))
        return Generation(text=text, token_ids=ids, logprobs=np.zeros(len(ids)))


def conversations(name: str, prompt: str, words: Chat, thought: str = "") -> list[Recorder]:
    """What each agent of one episode heard and said."""
    options = {**OPTIONS.get(name, {}), **({"prompt": prompt} if prompt else {})}
    entry = resolve(EnvironmentFile, {"name": name, **options}, "env")
    limits = Limits(turns=4, turn_tokens=4000)
    agents = resolve_agents(entry, resolve("context", {"name": "full"}), limits, "expert", agent_sections(entry, {}))
    pools = {agent: make_pool(one.env, timeout_s=120) for agent, one in agents.items()}
    try:
        crew = PlayerFactory(agents, pools, admissible=False, seed=0)
        actors = {}
        for agent, one in agents.items():
            expert = ExpertActor("expert", one.prompt, words)
            plays = one.env.hooks.experts is not None
            inner = expert if plays else PolicyActor(Random(one.prompt), words, None)
            actors[agent] = Recorder(inner, words, one.prompt, thought)
        asyncio.run(play(crew.player(actors), [tasks_of(entry)[0]]))
        return [recorder for recorder in actors.values() if recorder.heard]
    finally:
        for pool in pools.values():
            pool.close()


def as_the_template_takes_them(words: Chat, messages: list[Message]) -> list[Message]:
    """Messages of tools go into one user message where the template has no role for tools."""
    if words.has_tool_role:
        return list(messages)
    out: list[Message] = []
    for tool, group in itertools.groupby(messages, key=lambda m: m.role == "tool"):
        alike = list(group)
        out += [Message("user", "\n".join(m.content for m in alike))] if tool else alike
    return out


def check(recorder: Recorder, template: Chat) -> int:
    """Number of prompts that continue an earlier one, all of which say what the template writes."""
    words, continued = recorder.chat, 0
    for turns in recorder.heard.values():
        path = np.zeros(0, np.int64)
        for request, answer in turns:
            np.testing.assert_array_equal(request.token_ids[: len(path)], path)
            continued += len(path) > 0
            path = np.concatenate([request.token_ids, answer])
            if not continues(recorder.prompt):
                messages = as_the_template_takes_them(template, request.messages)
                said = words.tokenizer.decode(request.token_ids, clean_up_tokenization_spaces=False)
                assert said == template.render(messages, reply=True)
    return continued


@pytest.mark.parametrize(("name", "prompt"), PARAMETERS)
def test_every_prompt_continues_the_one_before_it_and_says_what_the_template_says(name, prompt):
    for template in TOYS[:1] if name in SANDBOXED else TOYS:
        keeps = chat("plain" if template == "thinking" else template)  # what was sampled is kept, thoughts too
        found = conversations(name, prompt, chat(template))
        continued = sum(check(recorder, keeps) for recorder in found)
        assert bool(continued) == (name not in ONE_TURN)
        if template == "default_system":
            for recorder in found:
                check_system(recorder)


def check_system(recorder: Recorder) -> None:
    """There is one system message: the environment's, or else the template's own."""
    for turns in recorder.heard.values():
        request, _ = turns[0]
        text = recorder.chat.tokenizer.decode(request.token_ids)
        assert text.count("<|im_start|>system") == 1
        assert (TEMPLATE_SYSTEM in text) == (request.messages[0].role != "system")


@pytest.mark.parametrize(("name", "prompt"), PARAMETERS)
@pytest.mark.pretrained
def test_so_it_is_with_the_tokenizer_of_a_pretrained_model(name, prompt):
    if not REAL.is_dir():
        pytest.skip("agentrl model fetch smollm2")
    words = Chat(AutoTokenizer.from_pretrained(REAL))
    found = conversations(name, prompt, words, thought="<think>The 2nd one, naturally.</think> ")
    for recorder in found:
        check(recorder, words)
        check_system(recorder)
