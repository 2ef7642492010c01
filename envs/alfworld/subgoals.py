"""Sub-goals of the six task types, read from what the agent sees: an optional reward on the way to the goal.

Each sub-goal is counted once per episode, in order, when it first holds. The reward is the difference of a potential
(the number counted so far), so undoing a sub-goal and doing it again earns nothing. Winning counts all sub-goals that
are left. So every win of a game earns the same, and a loss earns at most the reward of all sub-goals except the last.
Success does not depend on sub-goals.
"""

from collections.abc import Sequence
from typing import NamedTuple

from agentrl.envs.alfworld.facts import Facts
from agentrl.envs.alfworld.goal import Wanted
from agentrl.envs.alfworld.memory import kind

# take: hold an object of the kind asked for; after `place`, an object that was not placed yet. change: hold it clean,
# hot or cool. reach: stand with it where it belongs, door open; or beside the lamp. place: see it lie there. win: the
# goal.
_SIMPLE = ("take", "reach", "win")
_CHANGED = ("take", "change", "reach", "win")
SUBGOALS = {
    "pick_and_place_simple": _SIMPLE,
    "look_at_obj_in_light": _SIMPLE,
    "pick_clean_then_place_in_recep": _CHANGED,
    "pick_heat_then_place_in_recep": _CHANGED,
    "pick_cool_then_place_in_recep": _CHANGED,
    "pick_two_obj_and_place": ("take", "reach", "place", "take", "reach", "win"),
}


class Progress(NamedTuple):
    """How many sub-goals were counted, and which objects lay in place when the first object was placed."""

    done: int = 0
    placed: frozenset[str] = frozenset()


def subgoals(wanted: Wanted) -> tuple[str, ...]:
    """The sub-goals of a goal, in order.

    Raises:
        ValueError: the goal is of none of the six task types.
    """
    if wanted.kind not in SUBGOALS:
        raise ValueError(
            f"subgoal_reward knows the six ALFWorld task types, and this game's goal is none of them ({wanted}): "
            "set subgoal_reward=0"
        )
    return SUBGOALS[wanted.kind]


def advance(progress: Progress, wanted: Wanted, facts: Facts, actions: Sequence[str], won: bool) -> Progress:
    """Count the sub-goals that hold now.

    Args:
        progress: the sub-goals counted so far.
        wanted: what the goal asks for.
        facts: the agent-visible state.
        actions: the admissible commands.
        won: whether the goal holds.
    """
    order = subgoals(wanted)
    done, placed = progress
    if won:
        return Progress(len(order), placed)
    while done < len(order) and _holds(order[done], wanted, facts, actions, placed):
        if order[done] == "place":
            placed = frozenset(_lying(wanted, facts))
        done += 1
    return Progress(done, placed)


def _holds(subgoal: str, wanted: Wanted, facts: Facts, actions: Sequence[str], placed: frozenset[str]) -> bool:
    held = kind(facts.held) == wanted.object and facts.held not in placed
    match subgoal:
        case "take":
            return held
        case "change":
            return held and wanted.condition in facts.condition
        case "reach" if wanted.lamp:
            # A lamp inside a closed drawer is in reach too; the admissible commands say so.
            return held and any(action.startswith(f"use {wanted.lamp} ") for action in actions)
        case "reach":
            ready = held and (not wanted.condition or wanted.condition in facts.condition)
            return ready and any(kind(one.name) == wanted.receptacle and one.door != "closed" for one in facts.here)
        case "place":
            return bool(_lying(wanted, facts))
    return False  # the last sub-goal is the goal itself; `advance` knows from `won` whether it holds


def _lying(wanted: Wanted, facts: Facts) -> list[str]:
    """Objects of the kind asked for that are seen where they belong."""
    return [
        name
        for one in facts.here
        if kind(one.name) == wanted.receptacle
        for name in one.contents
        if kind(name) == wanted.object
    ]
