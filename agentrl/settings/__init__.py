"""Reads and resolves recipes. No torch is imported."""

from agentrl.settings import recipe_parts
from agentrl.settings.agents import POLICY, agent_sections, resolve_agents
from agentrl.settings.changes import accepts, is_given, value_of
from agentrl.settings.defaults import clone_episodes_of, turns_of
from agentrl.settings.explain import absent_comments, chosen_comments, explained, known_keys, meanings
from agentrl.settings.fits import fillers
from agentrl.settings.recipe import Settings
from agentrl.settings.refused_pairs import RefusedPair, check_pairs
from agentrl.settings.shipped import find as find_recipe, needs_of, shipped as shipped_recipes
from agentrl.settings.trust import EVALUATED, checked, code_in, completing, stored_recipe, values_in, without_engine

__all__ = [
    "EVALUATED",
    "POLICY",
    "RefusedPair",
    "Settings",
    "absent_comments",
    "accepts",
    "agent_sections",
    "check_pairs",
    "checked",
    "chosen_comments",
    "clone_episodes_of",
    "code_in",
    "completing",
    "explained",
    "fillers",
    "find_recipe",
    "is_given",
    "known_keys",
    "meanings",
    "needs_of",
    "recipe_parts",
    "resolve_agents",
    "shipped_recipes",
    "stored_recipe",
    "turns_of",
    "value_of",
    "values_in",
    "without_engine",
]
