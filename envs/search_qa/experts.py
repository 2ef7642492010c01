"""The named players of search_qa on the embedded world: demonstrators to clone, baselines to compare with.

expert: reads like a person: looks up the thing the question names, finds the fact asked for in the passages, looks up
    what it leads to, and answers. It knows nothing but what it has read.
careless:0.3: the imperfect demonstrator: at each step, with that probability, a random listed search or answer.
    Everything that it does is cloned, failures included.
oracle: follows the question's known chain of names, then answers; it sees the world.
random: each listed action with the same probability.
"""

import random

from agentrl.env import Env, Expert, Move, random_share
from agentrl.envs.search_qa.env import SearchQA
from agentrl.envs.search_qa.questions import also_known, read, understand
from agentrl.types import Observation, Task

EXPERTS = ("expert", "careless", "oracle", "random")


def make_expert(env: Env, name: str, seed: int) -> Expert:
    """The player of that name.

    Raises:
        ValueError: no such player, a number that is no probability, or an environment without a world.
    """
    share = random_share(name, "search_qa", EXPERTS)
    assert isinstance(env, SearchQA)
    if not env.config.level:
        raise ValueError(f"{name} plays the embedded world only: unset data, or evaluate a model")
    return Oracle() if name == "oracle" else Reader(env, seed, share)


def _search(query: str) -> str:
    return f"<search>{query}</search>"


def _answer(words: str) -> str:
    return f"<answer>{words}</answer>"


class Reader:
    """Follows the question's chain through what it has read; takes a random listed action with probability `slips`."""

    def __init__(self, env: SearchQA, seed: int, slips: float) -> None:
        self._env, self._seed, self._slips = env, seed, slips
        self._rng = random.Random(seed)

    def reset(self, task: Task) -> None:
        """Start the stream of this task."""
        self._rng = random.Random(f"{self._seed} {task.key}")

    def act(self, observation: Observation) -> Move:
        """The next search or the answer."""
        if observation.actions and self._rng.random() < self._slips:
            return Move(self._rng.choice(observation.actions))
        action = self._think(observation.task)
        if self._env.config.prompt != "search_r1" and observation.actions and action not in observation.actions:
            # A small model may take listed actions only, and so may its demonstrator, which gives up here.
            action = next(one for one in reversed(observation.actions) if one.startswith("<answer>"))
        return Move(action)

    def _think(self, words: str) -> str:
        state = self._env.state
        understood = understand(words)
        if understood is None:
            return _answer(words)
        chain, name = understood
        for noun in chain:
            found = self._look(name, noun)
            if found is None:
                tries = [name, f"{name} {noun}", f"also known as {name}"]
                untried = [query for query in tries if query not in state.queries]
                out_of_turns = state.turn >= self._env.config.max_turns
                return _answer(name) if out_of_turns or not untried else _search(untried[0])
            name = found
        return _answer(name)

    def _look(self, name: str, noun: str) -> str | None:
        """What the passages seen say of a fact of a thing, by either of its names."""
        seen = self._env.state.seen
        titles = {p.title.strip('"') for p in seen if also_known(p.text) == name} | {name}
        for passage in seen:
            if passage.title.strip('"') in titles:
                found = read(noun, passage.text)
                if found is not None:
                    return found
        return None


class Oracle:
    """Searches each name of the chain in turn and answers with its end."""

    def __init__(self) -> None:
        self._rest: list[str] = []

    def reset(self, task: Task) -> None:
        """Lay out the chain."""
        path = [str(name) for name in task.params["path"]]
        self._rest = [*map(_search, path[:-1]), _answer(path[-1])]

    def act(self, observation: Observation) -> Move:
        """The next move of the chain."""
        return Move(self._rest.pop(0) if len(self._rest) > 1 else self._rest[0])
