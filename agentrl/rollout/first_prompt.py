"""The first prompt of an episode, written without playing it."""

from agentrl.chat import Chat
from agentrl.config import Entry
from agentrl.env import Prompt
from agentrl.rollout.context import Ask, ContextPolicy, History
from agentrl.types import Observation


def first_prompt(policy: Entry[ContextPolicy], prompt: Prompt, chat: Chat | None, observation: Observation) -> Ask:
    """The prompt that a context writes for the first observation of an episode.

    Args:
        policy: the context.
        prompt: the environment's rules for prompts.
        chat: the tokenizer with its chat template; with None the prompt has messages and no token ids.
        observation: what the environment shows after its reset.
    """
    ask: Ask = policy.hooks.ask(policy.config, prompt, History(chat=chat, first=observation, now=observation))
    return ask
