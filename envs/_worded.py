"""Common parts of `desk` and `sql`: observations in plain text, prompts with one line per turn, imperfect players."""

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from agentrl.env import Parsed, PastTurn
from agentrl.tool import Call, Calls, Malformed, action as tool_action
from agentrl.tool_env import Listed
from agentrl.types import Observation, Status, Task

CACHED_CHARS = 400  # the words of shorter actions are cached, because listed actions are shorter and occur again


class Worded(Listed):
    """A listing environment whose prompts `instruct` and `compact` write the results of tools themselves.

    Attributes:
        config: the options; `config.prompt` names the prompt.
    """

    config: Any

    def restore(self, snapshot: Any) -> Observation:
        """Go back to a snapshot."""
        return self._worded(super().restore(snapshot))

    def _worded(self, observation: Observation) -> Observation:
        """Under the prompts `instruct` and `compact`, the observation without its chat messages.

        These prompts write the text of the results themselves, so that a word is the same token everywhere.
        """
        return observation if self.config.prompt == "chat" else replace(observation, messages=())


class OneLine:
    """Prompt with one line per turn, for language models. A subclass has `first`, `answer` and `parse`."""

    rewords = True

    def first(self, observation: Observation) -> str:
        """The first words."""
        return observation.text

    def turn(self, observation: Observation) -> str:
        """What came back."""
        return observation.text

    def window(self, first: Observation, past: Sequence[PastTurn], done: int, observation: Observation) -> str:
        """The first words and the last actions with their results."""
        seen = [*(p.observation.text for p in past[1:]), observation.text][: len(past)]
        lines = [f"> {self.answer(p.action)}\n{text}" for p, text in zip(past, seen, strict=True)]
        return "\n".join([self.first(first), *lines])

    def answer(self, action: str) -> str:
        """The action in words."""
        raise NotImplementedError


def written(action: str, verb: str, call: Callable[[Call], str]) -> str:
    """An action in words: `verb` and the answer, or the words of its calls, joined by semicolons."""
    turn = tool_action.read(action)
    if turn.answer is not None:
        return f"{verb} {' '.join(turn.answer.split())}".strip()
    return "; ".join(item.message if isinstance(item, Malformed) else call(item) for item in turn.items)


def cached(brief: Callable[[str], str]) -> Callable[[str], str]:
    """The function `brief`, which writes an action in few words, with a cache for short actions."""
    kept = functools.lru_cache(maxsize=100_000)(brief)
    return lambda action: (kept if len(action) <= CACHED_CHARS else brief)(action)


def unread(why: str) -> Parsed:
    """The reply that cannot be read, with the reason for the model."""
    return Parsed(tool_action.write(Calls(items=(Malformed(message=why),))), False, Status.PARSE_ERROR)


class Careless:
    """A player that slips with probability `slips` at each step. A subclass has `act`.

    Args:
        env: the environment that it plays.
        seed: seed of its slips, which also depend on the task.
        slips: probability of a slip.
        knows: it knows what the task does not tell.
    """

    def __init__(self, env: Any, seed: int, slips: float, *, knows: bool) -> None:
        self._env, self._seed, self._slips, self._knows = env, seed, slips, knows
        self._rng = random.Random(seed)

    def reset(self, task: Task) -> None:
        """Seed by the task."""
        self._rng = random.Random(f"{self._seed} {task.key}")

    def _slipped(self) -> bool:
        return bool(self._slips) and self._rng.random() < self._slips
