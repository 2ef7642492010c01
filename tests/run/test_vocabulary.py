"""The vocabulary of a new model knows what its environments say: hardly a token that it reads is unknown to it."""

from dataclasses import replace
from typing import Any

import pytest

from agentrl.chat import Chat, build_word_tokenizer
from agentrl.env import RANDOM, pool_within, tasks_of
from agentrl.graph import StepGraph
from agentrl.rollout import Crew, build_graph, expert_actor, play
from agentrl.run.event_loop import Loop
from agentrl.run.vocabulary import vocabularies
from agentrl.settings import Settings
from agentrl.tool import action as tool_action
from agentrl.tool_env import environment

STORIES = {  # as in the recipe calculator-cpu
    "name": "calculator",
    "split": "train",
    "fewest": 1,
    "largest": 20,
    "noise": 1,
    "brief": True,
    "told": "lines",
    "display": 2,
    "prompt": "compact",
}


def settings_of(env: dict[str, Any], held_out: dict[str, Any], **new: Any) -> Settings:
    return Settings({"env": env, "eval": {"env": held_out}, "model": {"new": new}})


def played(settings: Settings, expert: str, tasks: int = 12) -> tuple[StepGraph, Chat]:
    """Episodes of held-out tasks as a new model reads them, and its tokenizer."""
    (policy, found), *_ = vocabularies(settings).items()
    new = settings.policies[policy].model.new
    assert new is not None
    chat = Chat(build_word_tokenizer(found.texts, found.entities, entity_pattern=new.entity_pattern))
    agent = next(iter(settings.agents.values()))
    agent = replace(agent, expert=expert or agent.expert)
    pool = pool_within(settings.eval_env, agent.limits, "inline", 1)
    crew = Crew({agent.name: agent}, {agent.name: pool}, admissible=settings.engine.config.actions != "free", seed=5)
    actors = {agent.name: expert_actor(agent, chat, 100_000)}
    try:
        with Loop() as loop:
            listed = tasks_of(settings.eval_env)
            some = [listed[i] for i in range(min(tasks, len(listed)))]
            return build_graph(loop.run(play(crew.player(actors), some))), chat
    finally:
        pool.close()


def unknown_share(graph: StepGraph, chat: Chat) -> float:
    assert graph.tokens is not None
    read = graph.tokens.ids[~graph.tokens.sampled]
    return float((read == chat.tokenizer.unk_token_id).mean())


@pytest.mark.parametrize("expert", ["", RANDOM])
def test_a_tools_answer_is_the_token_that_the_number_has_elsewhere(expert):
    """The story says "Ann has 12.", the calculator answers "12": with and without a space before it."""
    graph, chat = played(settings_of(STORIES, {"split": "test"}, entity_pattern=r"\d+"), expert)
    assert unknown_share(graph, chat) == 0
    # Nothing but numbers with the space before them: a second form would be another word for the same number.
    assert chat.tokenizer.convert_tokens_to_ids("12") == chat.tokenizer.unk_token_id
    assert chat.tokenizer.convert_tokens_to_ids(" 12") != chat.tokenizer.unk_token_id


class Twins:
    """Two tools, called in one turn: the text of the observation is "left: 71...", the messages are "71" and "82"."""

    def reset(self, id: int) -> str:
        return "look at both"

    def left(self) -> int:
        """The left one."""
        return 71

    def right(self) -> int:
        """The right one."""
        return 82

    def reward(self, answer: str) -> float:
        return 1.0

    def _expert(self, observation: str) -> str:
        return tool_action.calls([("left", {}), ("right", {})]) if observation.startswith("look") else "done"


Config, make, tasks, prompt = environment(Twins, rows=[{"id": i} for i in range(20)])


def test_answers_of_several_tools_are_read_one_by_one():
    graph, chat = played(settings_of({"name": __name__, "split": "train"}, {"split": "test"}), "")
    assert unknown_share(graph, chat) == 0
    assert chat.tokenizer.convert_tokens_to_ids("71") != chat.tokenizer.unk_token_id
