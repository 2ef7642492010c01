"""The expert of a tool environment whose class has a method `_expert`."""

import random

import numpy as np

from agentrl.env import Env, Move, random_share
from agentrl.tool import random_action
from agentrl.tool_env.choices import canonical
from agentrl.tool_env.instance import ToolEnv
from agentrl.tool_env.rewards import pick, takes
from agentrl.types import Observation, Task

EXPERTS = ("expert", "careless", "random")  # names of experts if the class has `_expert`


class OwnExpert:
    """Plays the actions that the method `_expert` of the environment's class returns, or random actions.

    `expert` takes the method's actions. `careless:0.3` takes a random action instead with probability 0.3 per turn;
    cloning imitates these random actions too. `random` takes random actions only.

    Args:
        env: an instance of the tool environment.
        name: `expert`, `careless`, `careless:P` with a probability P, or `random`.
        seed: with the task's key, the seed of the random choices.

    Raises:
        ValueError: the name is none of these.
    """

    def __init__(self, env: Env, name: str, seed: int) -> None:
        inner = getattr(env, "inner", env)  # the environment inside an `agentrl.tool_env.Listed`
        assert isinstance(inner, ToolEnv)
        self._env, self._seed = inner, seed
        self._slips = random_share(name, inner.setup.env_name, EXPERTS)
        self._rng = random.Random(seed)

    def reset(self, task: Task) -> None:
        """Begin an episode."""
        self._rng = random.Random(f"{self._seed} {task.key}")

    def act(self, observation: Observation) -> Move:
        """The next move."""
        if self._slips and self._rng.random() < self._slips:
            if observation.actions:
                return Move(self._rng.choice(observation.actions))
            return Move(random_action(observation, np.random.default_rng(self._rng.getrandbits(32))))
        method = self._env.instance._expert
        asked = {"observation": observation.text, "rng": self._rng}
        written = method(**pick(takes(method), asked, f"{type(self._env.instance).__name__}._expert"))
        return Move(canonical(written, observation.tools, "_expert"))
