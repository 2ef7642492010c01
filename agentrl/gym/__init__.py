"""Core environments as Gymnasium environments, and a checker of environments.

Importing this package registers our Gymnasium ids; see `agentrl.gym.environment`.
"""

from agentrl.gym.env_check import (
    LawResult,
    Untried,
    branches_by,
    check_env,
    check_laws,
    difference_when_repeated,
    spread,
    try_law,
)
from agentrl.gym.environment import GymEnv, register
from agentrl.gym.walk import Walk, difference, timed

__all__ = [
    "GymEnv",
    "LawResult",
    "Untried",
    "Walk",
    "branches_by",
    "check_env",
    "check_laws",
    "difference",
    "difference_when_repeated",
    "register",
    "spread",
    "timed",
    "try_law",
]
