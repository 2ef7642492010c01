"""A recipe, resolved; no torch is imported."""

from agentrl.settings.agents import POLICY, agent_sections, resolve_agents
from agentrl.settings.explain import absent_comments, chosen_comments, explained
from agentrl.settings.recipe import Settings
from agentrl.settings.requirements import fillers

__all__ = [
    "POLICY",
    "Settings",
    "absent_comments",
    "agent_sections",
    "chosen_comments",
    "explained",
    "fillers",
    "resolve_agents",
]
