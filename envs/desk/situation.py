"""The situation of a conversation in which a decision was made, for `agentrl report --diagnose`."""

from agentrl.envs.desk.prompts import brief
from agentrl.types import Observation


def situation(observation: Observation, action: str) -> str:
    """What was known of the customer, and what the agent did: "identified, open: ask order"."""
    lines = dict(line.partition(" ")[::2] for line in observation.state_key.splitlines() if " " in line)
    words = brief(action).split()
    told = " ".join(words[:2]) if words[:1] == ["ask"] else " ".join(words[:1])
    return f"{lines.get('customer', 'unknown')}, {lines.get('change', 'open')}: {told}"
