"""A Gymnasium environment in words: its observations and actions as text, and mistakes in its options as errors."""

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from agentrl.catalogue import nearest
from agentrl.envs.gymnasium_text.config import Config
from agentrl.types import Observation, Status, StepResult, Task

MOST_NUMBERS = 1000  # largest number of entries of a Box that is put in words
SUPPORTED = f"Text, Discrete, MultiDiscrete, MultiBinary, Box of at most {MOST_NUMBERS} numbers, Tuple or Dict of these"
_COLOURED = re.compile(r"\x1b\[[\d;]*m(.*?)\x1b\[0?m", re.DOTALL)


def _uncoloured(picture: str) -> str:
    """A picture for a terminal, without its colour codes: coloured text is put in square brackets."""
    # For each start code the expression searches for an end code. Behind the last end code, each of these searches
    # would read the whole rest, so the rest is left out.
    end = max(picture.rfind(code) + len(code) if code in picture else 0 for code in ("\x1b[0m", "\x1b[m"))
    return _COLOURED.sub(r"[\1]", picture[:end]) + picture[end:]


def _open(config: Config) -> Any:
    """Make the Gymnasium environment; ValueError, with one sentence, for every mistake in the options."""
    if config.id.startswith("agentrl/"):
        raise ValueError(f"env.id = {config.id!r} is an environment of ours: name it directly, see agentrl envs")
    options = dict(config.options)
    if config.max_steps is not None:
        options["max_episode_steps"] = config.max_steps
    package, colon, name = config.id.rpartition(":")
    try:
        if colon:
            importlib.import_module(package)
        spec = gymnasium.spec(name)
        renders = config.picture and "render_mode" not in options and "ansi" in _render_modes(spec)
        if renders:
            options["render_mode"] = "ansi"
        return gymnasium.make(name, disable_env_checker=True, **options)
    except gymnasium.error.DependencyNotInstalled as error:
        raise ValueError(f"env.id = {config.id!r} cannot be made: {_line(error)}") from None
    except gymnasium.error.UnregisteredEnv:
        raise ValueError(f"unknown Gymnasium environment {config.id!r}{_like(config.id)}") from None
    except gymnasium.error.Error as error:
        raise ValueError(f"env.id = {config.id!r}: {_line(error)}{_like(config.id)}") from None
    except (ImportError, TypeError, ValueError) as error:
        raise ValueError(f"env.id = {config.id!r} cannot be made with {options}: {_line(error)}") from None


def _render_modes(spec: Any) -> Sequence[str]:
    """The render modes that the environment's class states; no instance is made."""
    entry = spec.entry_point
    creator = gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    modes: Sequence[str] = getattr(creator, "metadata", {}).get("render_modes", ())
    return modes


def _like(name: str) -> str:
    """The end of the error message for an unknown id: similar ids, or how to list all ids."""
    known = [one for one in gymnasium.registry if not one.startswith("agentrl/")]
    meant = nearest(name, known)
    return meant if "did you mean" in meant else ": gymnasium.registry lists what is installed; write package:Name-v0"


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


class GymnasiumText:
    """One Gymnasium environment in words.

    A pickle holds the options, the task and the actions so far; unpickling makes a new instance that carries these
    actions out again.
    """

    def __init__(self, config: Config) -> None:
        """Raises ValueError if the environment cannot be made, or its spaces cannot be put in words."""
        self.config = config
        self._env = _open(config)
        self._names = self._action_names()
        odd = next(_unsupported(self._env.observation_space), None)
        if odd is not None:
            raise ValueError(
                f"env.id = {config.id!r} observes {odd}, which is not put in words: supported are {SUPPORTED}"
            )
        self._task: Task | None = None
        self._sent: list[str] = []
        self._last = Observation(text="")
        self._over = False

    def reset(self, task: Task) -> Observation:
        """Start from the task's seed."""
        self._task, self._sent, self._over = task, [], False
        seen, info = self._env.reset(seed=task.seed)
        self._last = self._observe(seen, info)
        return self._last

    def step(self, action: str) -> StepResult:
        """Carry out an action.

        An action that is not in the action space changes nothing: the observation says so, and the turn is paid
        `invalid_reward`.
        """
        self._sent.append(action)
        if self._over:
            return self._words("The episode is over.", terminated=True)
        choice = self._choice(action)
        if choice is None:
            return self._words(self._refusal(action))
        seen, reward, terminated, truncated, info = self._env.step(choice)
        self._over = bool(terminated or truncated)
        self._last = self._observe(seen, info)
        return StepResult(self._last, float(reward), bool(terminated), bool(truncated), _plain(info))

    @property
    def observes_words(self) -> bool:
        """Is some part of an observation a text, not a number?"""
        return any(isinstance(part, spaces.Text) for part in _parts(self._env.observation_space))

    def close(self) -> None:
        """Release what the environment holds."""
        self._env.close()

    def _words(self, text: str, *, terminated: bool = False) -> StepResult:
        info = {} if terminated else {"status": Status.PARSE_ERROR}
        last = self._last
        seen = Observation(text=text, state_key=last.state_key or last.text, actions=last.actions, task=last.task)
        return StepResult(seen, 0.0 if terminated else self.config.invalid_reward, terminated, False, info)

    def _action_names(self) -> tuple[str, ...]:
        """A name for each action of a Discrete space; empty for a Text space."""
        space, config = self._env.action_space, self.config
        if isinstance(space, spaces.Text):
            return ()
        if not isinstance(space, spaces.Discrete):
            raise ValueError(f"env.id = {config.id!r} acts in {space}: supported are Text and Discrete action spaces")
        own = getattr(self._env.unwrapped, "get_action_meanings", None)
        names = config.action_names or (tuple(map(str, own())) if own else ())
        names = names or tuple(str(i) for i in range(int(space.start), int(space.start + space.n)))
        if len(names) != space.n or len(set(names)) != len(names):
            raise ValueError(
                f"env.action_names has {len(names)} names, {config.id} has {space.n} actions: give each a name"
            )
        return names

    def _choice(self, action: str) -> Any:
        """The action for Gymnasium; None if there is no such action."""
        space = self._env.action_space
        if isinstance(space, spaces.Text):
            return action if space.contains(action) else None
        return self._names.index(action) + int(space.start) if action in self._names else None

    def _refusal(self, action: str) -> str:
        space = self._env.action_space
        if isinstance(space, spaces.Text):
            return f"An action is {space.min_length} to {space.max_length} of the characters {space.characters!r:.200}."
        listed = ", ".join(self._last.actions or self._names)
        return f"There is no action {action[:80]!r}; the actions are: {listed}."

    def _observe(self, seen: Any, info: Mapping[str, Any]) -> Observation:
        parts = [in_words(self._env.observation_space, seen)]
        if self.config.picture and getattr(self._env, "render_mode", None) == "ansi":
            picture = self._env.render()
            parts.append(_uncoloured(picture).strip("\n") if isinstance(picture, str) else "")
        return Observation(text="\n".join(p for p in parts if p), actions=self._listed(info), task=self._instruction())

    def _listed(self, info: Mapping[str, Any]) -> tuple[str, ...]:
        """The actions that the observation lists.

        For a Discrete space: those that `info["action_mask"]` allows, or all without a mask. For a Text space: the
        texts that `info` has as admissible_commands, admissible_actions or actions, or none.
        """
        mask = info.get("action_mask")
        if self._names and mask is not None and len(mask) == len(self._names):
            return tuple(name for name, allowed in zip(self._names, mask, strict=True) if allowed)
        for key in ("admissible_commands", "admissible_actions", "actions"):
            given = info.get(key)
            if not self._names and isinstance(given, list | tuple) and all(isinstance(a, str) for a in given):
                return tuple(given)
        return self._names

    def _instruction(self) -> str:
        if self.config.task is not None:
            return self.config.task
        document = inspect.getdoc(type(self._env.unwrapped)) or ""
        prose = [part for part in document.split("\n\n") if part.strip() and not part.lstrip().startswith("#")]
        return " ".join(prose[0].split()) if prose else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (self.config, self._task, tuple(self._sent))


def _revive(config: Config, task: Task | None, sent: Sequence[str]) -> GymnasiumText:
    env = GymnasiumText(config)
    if task is not None:
        env.reset(task)
        for action in sent:
            env.step(action)
    return env


def _parts(space: Any) -> Iterator[Any]:
    """The parts of an observation space that are neither Tuple nor Dict."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for part in space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces:
            yield from _parts(part)
    else:
        yield space


def _unsupported(space: Any) -> Iterator[str]:
    """The parts of an observation space that cannot be put in words, as texts."""
    for part in _parts(space):
        large = isinstance(part, spaces.Box) and int(np.prod(part.shape)) > MOST_NUMBERS
        if large or not isinstance(
            part, spaces.Text | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box
        ):
            yield str(part)


def in_words(space: Any, value: Any) -> str:
    """An observation as text: texts and integers as they are, floats with 4 significant digits, one line per entry of
    a Dict."""
    if isinstance(space, spaces.Dict):
        return "\n".join(f"{name}: {in_words(part, value[name])}" for name, part in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return ", ".join(in_words(part, one) for part, one in zip(space.spaces, value, strict=True))
    if isinstance(space, spaces.Text | spaces.Discrete):
        return str(value)
    array = np.asarray(value)
    return " ".join(f"{x:.4g}" if array.dtype.kind == "f" else str(x) for x in array.ravel().tolist())


def _plain(info: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of `info` that are single values (bool, number or text).

    `is_success` is renamed to `success`, and `status`, which has another meaning in agentrl, to `env_status`.
    """
    kept: dict[str, Any] = {}
    for name, value in info.items():
        plain = value.item() if isinstance(value, np.generic) else value
        if isinstance(name, str) and isinstance(plain, bool | int | float | str):
            kept["env_status" if name == "status" else name] = plain
    success = kept.pop("is_success", kept.get("success"))
    kept.pop("success", None)
    if isinstance(success, bool | int | float):
        kept["success"] = bool(success)
    return kept
