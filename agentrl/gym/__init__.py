"""Core environments as Gymnasium environments, and a checker of environments.

Importing this package registers our Gymnasium ids; see `agentrl.gym.environment`.
"""

from agentrl.gym.env_check import branches_by, check_env, difference_when_repeated
from agentrl.gym.environment import GymEnv, register

__all__ = [
    "GymEnv",
    "branches_by",
    "check_env",
    "difference_when_repeated",
    "register",
]
