"""ALFWorld: household tasks in text, by a native engine equal to the genuine one.

The genuine engine is TextWorld; the native engine writes the same texts in every game that it plays. Games are
generated when they are needed, or read from the published data or from files of your own; see the option `source`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentrl.env import Env, Expert
from agentrl.envs.alfworld.check import check
from agentrl.envs.alfworld.env import AlfworldEnv
from agentrl.envs.alfworld.experts import EXPERTS, make_expert
from agentrl.envs.alfworld.prompts import Compact, Instruct, InstructListed, Terse, VerlAgent
from agentrl.envs.alfworld.situation import situation
from agentrl.envs.alfworld.tasks import Config, Opener, benchmark, entities, find, kind, played, tasks
from agentrl.envs.alfworld.verbs import about, write

__all__ = [
    "ERRING",
    "EXPERTS",
    "GYMNASIUM_IDS",
    "HEAVY",
    "HELD_OUT_OPTIONS",
    "Config",
    "benchmark",
    "check",
    "commands",
    "entities",
    "expert",
    "find",
    "kind",
    "make",
    "played",
    "prompt",
    "situation",
    "tasks",
]

# The native engine takes microseconds per step: episodes stay in the process.
ERRING = {"wander": 2, "stray": 2, "expert-noisy": 1}
HEAVY = False
LANGUAGE_PROMPTS: Mapping[str, type[VerlAgent] | type[Instruct]] = {
    "verl_agent": VerlAgent,
    "instruct": Instruct,
    "instruct_listed": InstructListed,
}
SMALL_PROMPTS: Mapping[str, type[Compact]] = {"compact": Compact, "terse": Terse}
SMALL_MODEL: Mapping[str, Any] = {"prompt": "compact"}
HELD_OUT_OPTIONS: Mapping[str, Any] = {"split": "valid_unseen"}
GYMNASIUM_IDS: Mapping[str, Mapping[str, Any]] = {"agentrl/ALFWorld-v0": {}}
commands: Mapping[str, Callable[[Sequence[str]], int]] = {"": about, "write": write}


def make(config: Config) -> AlfworldEnv:
    """An instance; any number of them share compiled games."""
    return AlfworldEnv(
        Opener(config.game_engine, config.trust),
        state_key=config.state_key,
        max_steps=config.max_steps,
        success_reward=config.success_reward,
        subgoal_reward=config.subgoal_reward,
        alias_put=config.alias_put,
    )


def prompt(config: Config) -> VerlAgent | Compact:
    """The prompt: how the environment speaks to a model."""
    if config.prompt in LANGUAGE_PROMPTS:
        return LANGUAGE_PROMPTS[config.prompt](config.require_admissible)
    return SMALL_PROMPTS[config.prompt](config.require_admissible, config.word_order == "object_first")


def expert(env: Env, name: str, seed: int) -> Expert:
    """The player called `name` for this instance; see `agentrl.envs.alfworld.experts`."""
    return make_expert(env, name, seed)
