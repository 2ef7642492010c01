"""The vocabulary of a new model: the words of expert episodes in its agents' environments."""

from agentrl.chat import CHAT_TEMPLATE
from agentrl.env import Prompt, Shown
from agentrl.types import Observation


def opening(prompt: Prompt, observation: Observation) -> str:
    """Everything the template may write before an episode's first answer: system message, tools, first message."""
    from transformers.utils.chat_template_utils import render_jinja_template

    shown = prompt.show(observation, None) if hasattr(prompt, "show") else Shown(prompt.system)
    tools = list(observation.tools) if shown.system != prompt.system else None
    said = {"system": shown.system, "user": prompt.first(observation)}
    chat = [{"role": role, "content": words} for role, words in said.items() if words]
    rendered, _ = render_jinja_template([chat], tools=tools, chat_template=CHAT_TEMPLATE)
    text: str = rendered[0]
    return text
