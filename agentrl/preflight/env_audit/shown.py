"""Is a right answer shown before it was given?

The walks are episodes with a wrong answer, by the key of their task; the answers are the right ones, by the same keys.
"""

import re
from collections.abc import Iterator, Mapping

from agentrl.gym import Walk


def shown(walks: Mapping[str, Walk], answers: Mapping[str, str]) -> list[tuple[str, int, int]]:
    """How often the first observation contains its own right answer, and one of another task: (name, times, tries)."""
    own = other = others = 0
    for key, walk in walks.items():
        seen = walk.observations[0]
        text = f"{seen.task}\n{seen.text}"
        own += key in answers and answers[key] in text
        rest = [one for name, one in answers.items() if name != key and one != answers.get(key)]
        other, others = other + sum(one in text for one in rest), others + len(rest)
    return [("its own right answer", own, len(walks)), ("the right answer of another task", other, others)]


def marked(walks: Mapping[str, Walk], answers: Mapping[str, str]) -> Iterator[str]:
    """Findings on answers behind a word such as `answer:`, in a state key, in a key, and in `info` before the end.

    A place is a finding if it has the right answer of each of several tasks with different answers.
    """
    places: dict[str, list[str]] = {}
    for key in sorted(walks.keys() & answers.keys()):
        for place in sorted(_places(walks[key], answers[key])):
            places.setdefault(place, []).append(key)
    for place, keys in places.items():
        if len(set(answers.values())) > 1 and len(keys) > 1 and len(keys) == len(walks.keys() & answers.keys()):
            yield f"the right answer is {place} of each task, such as {keys[0]}"


def _places(walk: Walk, answer: str) -> set[str]:
    """Where the right answer is shown while the episode still runs."""
    running = [walk.observations[0], *(r.observation for r in walk.results if not (r.terminated or r.truncated))]
    behind = re.compile(rf"(answer|solution|gold|target|expected)\W{{0,5}}{re.escape(answer)}(?!\w)", re.IGNORECASE)
    found = set()
    if any(behind.search(f"{seen.task}\n{seen.text}") for seen in running):
        found.add("behind a word such as `answer` in an observation")
    if any(seen.state_key == answer for seen in running):
        found.add("the state key")
    if walk.task.key == answer:
        found.add("the key")
    for result in walk.results:
        if not (result.terminated or result.truncated):
            found |= {f"`{name}` in the info of a step" for name, value in result.info.items() if value == answer}
    return found
