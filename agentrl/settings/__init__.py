"""A recipe, resolved; no torch is imported."""

from agentrl.settings.agents import POLICY, agent_sections, resolve_agents
from agentrl.settings.recipe import Settings
from agentrl.settings.requirements import fillers

__all__ = [
    "POLICY",
    "Settings",
    "agent_sections",
    "fillers",
    "resolve_agents",
]
