"""The situation of a household task in which a decision was made, for `agentrl report --diagnose`."""

import re

from agentrl.envs.alfworld.experts import task_words
from agentrl.envs.alfworld.explorer import Errand, read_task
from agentrl.envs.alfworld.memory import kind
from agentrl.envs.alfworld.rooms import LOOK
from agentrl.types import Observation

_HOLDING = " | holding "
_NAME = re.compile(r"[\w-]+ \d+")
_NEEDS = {
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "hot",
    "pick_cool_then_place_in_recep": "cool",
}


def situation(observation: Observation, action: str) -> str:
    """The agent's situation in its task, a colon, and what the agent did. "It" is a thing that the task asks for.

    "The goal" is the receptacle to which that thing must be brought. "nothing here: go" is a walk away from a place
    where no thing is in sight; "only other things here: take another thing" takes a thing that the task does not need.

    The situation is read from the state key of `state_key = "facts"` and the words of the task. Without these, the
    result is the verb of the action.
    """
    here, found, held = observation.state_key.rpartition(_HOLDING)
    try:
        errand = read_task(task_words(observation))
    except ValueError:
        return _verb(action, "")
    if not found or "\n" in observation.state_key:
        return _verb(action, "")
    where = _empty_handed(here, errand) if held == "nothing" else _holding(here, held, errand)
    return f"{where}: {_verb(action, errand.target)}"


def _empty_handed(here: str, errand: Errand) -> str:
    """What an agent without an object sees here. An object that lies where it belongs counts as another thing."""
    others = False
    for one in _receptacles(here):
        name, _, contents = one.partition(":")
        for item in _NAME.findall(contents):
            if kind(item) == errand.target and kind(name) != errand.to:
                return "it is here"
            others = True
    if others:
        return "only other things here"
    return "a closed door here" if "(closed)" in here else "nothing here"


def _holding(here: str, held: str, errand: Errand) -> str:
    *condition, item, _ = held.split()
    if item != errand.target:
        return "holding another thing"
    needed = _NEEDS.get(errand.task, "")
    if needed and needed not in condition:
        return f"holding it, not yet {needed}"
    if errand.task == LOOK:
        return "holding it"
    goals = [one for one in _receptacles(here) if kind(one) == errand.to]
    if not goals:
        return "holding it, elsewhere"
    return "holding it, at the closed goal" if all("(closed)" in one for one in goals) else "holding it, at the goal"


def _receptacles(here: str) -> list[str]:
    return [] if here == "middle of the room" else here.split("; ")


def _verb(action: str, target: str) -> str:
    verb, _, rest = action.partition(" ")
    if verb == "take" and target:
        return "take it" if kind(rest) == target else "take another thing"
    return verb
