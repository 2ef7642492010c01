"""Core environments as Gymnasium environments, such as `gymnasium.make("agentrl.gym:agentrl/ALFWorld-v0")`.

Importing this module registers the `GYMNASIUM_IDS` of every catalogue environment. Gymnasium does not find these ids by
itself, because since version 1.0 it no longer calls the entry points of installed packages. So name the module in front
of the id, as above: Gymnasium imports the module first. After `import agentrl.gym`, the id `agentrl/ALFWorld-v0` is
enough.
"""

import copy
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium

from agentrl import catalogue
from agentrl.config import Entry, resolve
from agentrl.env import Env, EnvironmentFile, checked_observation, checked_result, panel_tasks, tasks_of
from agentrl.gym.text_space import UnicodeText
from agentrl.types import Observation, Task

OBSERVATION_CHARS = 16384
ACTION_CHARS = 4096


class GymEnv(gymnasium.Env[str, str]):
    """One core environment, text in and text out.

    `info` holds `task` (the key of the task), `actions` (the admissible actions), `state_key`, `instruction`, `tools`
    if there are any, and the entries of the environment's own info. `reset(seed=...)` draws a task with that seed, so
    the seed decides the task; `reset(options={"task": key})` names the task; a plain `reset()` draws a random task. An
    episode is limited by the environment itself and by `gymnasium.make(..., max_episode_steps=...)`.

    Attributes:
        core: the core environment, for `snapshot` and `restore` if it has them.
        task: the task of the current episode; None before the first `reset`.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 4}  # type: ignore[misc]

    def __init__(
        self,
        env: str | Entry[EnvironmentFile],
        *,
        render_mode: str | None = None,
        observation_chars: int = OBSERVATION_CHARS,
        action_chars: int = ACTION_CHARS,
        **options: Any,  # gymnasium.make passes its keyword arguments to this method
    ) -> None:
        """Make the core environment and its spaces.

        Args:
            env: name in the catalogue, dotted path, or an entry with its options.
            render_mode: None or "ansi".
            observation_chars: largest number of characters of an observation, as the observation space declares it.
            action_chars: largest number of characters of an action, as the action space declares it.
            options: options of the environment's Config.

        Raises:
            ValueError: no such environment or option.
        """
        self._entry = env if isinstance(env, Entry) else resolve(EnvironmentFile, {"name": env, **options}, "env")
        self.core: Env = self._entry.hooks.make(self._entry.config)
        self.render_mode = render_mode
        self.observation_space = UnicodeText(observation_chars)
        self.action_space = UnicodeText(action_chars)
        self.task: Task | None = None
        self._tasks: Sequence[Task] | None = None
        self._last_text, self._chars = "", observation_chars

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start a task; ValueError if `options` names no task of this environment."""
        super().reset(seed=seed)
        unknown = sorted(set(options or {}) - {"task"})
        if unknown:
            raise ValueError(f"reset has no option {unknown[0]!r}: give {{'task': key}}")
        key = (options or {}).get("task")
        self.task = self._draw() if key is None else panel_tasks(self._entry, [key])[0]
        observation = checked_observation(self.core.reset(self.task))
        return self._text(observation), self._info(observation, {})

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out one action."""
        if self.task is None:
            raise gymnasium.error.ResetNeeded("no task was started: call reset() first")
        result = checked_result(self.core.step(action))
        observation, reward, terminated, truncated, info = result
        return self._text(observation), reward, terminated, truncated, self._info(observation, dict(info))

    def render(self) -> str | None:  # type: ignore[override]
        """The last observation, in mode "ansi"."""
        return self._last_text if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Release the environment."""
        self.core.close()

    def _draw(self) -> Task:
        if self._tasks is None:
            self._tasks = tasks_of(self._entry)
        return self._tasks[int(self.np_random.integers(len(self._tasks)))]

    def _text(self, observation: Observation) -> str:
        if observation.text not in self.observation_space:
            raise ValueError(
                f"the observation has {len(observation.text)} characters, the space holds {self._chars}: "
                "give a larger observation_chars=... to gymnasium.make"
            )
        self._last_text = observation.text
        return observation.text

    def _info(self, observation: Observation, env_info: dict[str, Any]) -> dict[str, Any]:
        assert self.task is not None
        info = {
            **copy.deepcopy(env_info),  # the caller keeps this dict, the environment may reuse its own
            "task": self.task.key,
            "actions": observation.actions,
            "state_key": observation.state_key or observation.text,
            "instruction": observation.task,
        }
        if observation.tools:
            info["tools"] = copy.deepcopy(observation.tools)
        return info


def register() -> None:
    """Register the Gymnasium ids of every catalogue environment; ids that are already registered stay as they are.

    An environment whose module cannot be imported is left out with a warning.
    """
    for name in catalogue.names("envs"):
        try:
            file = catalogue.load(EnvironmentFile, name)
        except Exception as error:  # noqa: BLE001  one broken package must not stop the others
            warnings.warn(f"environment {name} is not registered with Gymnasium: {error!r}", stacklevel=2)
            continue
        for gymnasium_id, options in file.gymnasium_ids.items():
            if gymnasium_id not in gymnasium.registry:
                gymnasium.register(gymnasium_id, "agentrl.gym:GymEnv", kwargs={"env": name, **options})


register()
