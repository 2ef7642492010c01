"""Writes a furnished room as a game in the official format: a PDDL problem, and a grammar with the task."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from agentrl.envs.alfworld.draw import Draw
from agentrl.envs.alfworld.rooms import LOOK, Goal, Room
from agentrl.envs.alfworld.scenes import lore

_INDENT = "\n        "


def sentence(goal: Goal, draw: Draw) -> str:
    """The task in words, by one of ALFRED's templates: "put a hot apple in fridge"."""
    to = goal.to.lower()
    return draw.choice(lore().goal_words[goal.task]).format(obj=goal.target.lower(), recep=to, toggle=to)


def game_data(room: Room, goal: Goal, name: str, words: str) -> dict[str, object]:
    """The object a `game.tw-pddl` file holds, still without its walkthrough."""
    return {
        "pddl_domain": _text("alfred.pddl"),
        "grammar": _text("alfred.twl2").replace("UNKNOWN GOAL", words),
        "pddl_problem": problem(room, goal, name),
    }


def problem(room: Room, goal: Goal, name: str) -> str:
    """PDDL text, its parts in the order of the original's files."""
    places = sorted({spot.place for spot in room.spots} | {thing.place for thing in room.things} | {room.start})
    objects = [
        *(f"{thing.id} - object" for thing in sorted(room.things, key=lambda thing: thing.id)),
        *(f"{spot.id} - receptacle" for spot in room.spots),
        *(f"{one} - location" for one in places),
    ]
    return (
        f"\n(define (problem plan_{name})\n(:domain alfred)\n(:objects\nagent1 - agent{_kinds()}\n"
        f"{_INDENT}{_INDENT.join(objects)}\n        )\n\n(:init\n"
        f"{_INDENT}{_INDENT.join(_facts(room))}\n        )\n\n{_goal(goal)}"
    )


def _facts(room: Room) -> list[str]:
    known = lore()
    things = sorted(room.things, key=lambda thing: thing.kind)
    carried = [thing for thing in things if thing.kind in known.carried]
    facts = [f"(receptacleType {spot.id} {spot.kind}Type)" for spot in room.spots]
    facts += [f"(objectType {thing.id} {thing.kind}Type)" for thing in things]
    facts += _can_contain(frozenset(s.kind for s in room.spots), frozenset(thing.kind for thing in carried))
    facts += [f"(pickupable {thing.id})" for thing in carried]
    facts += [f"(isReceptacleObject {thing.id})" for thing in carried if thing.kind in known.containers]
    facts += [f"(openable {spot.id})" for spot in room.spots if spot.kind in known.openable]
    facts += [f"(atLocation agent1 {room.start})"]
    for quality in ("cleanable", "heatable", "coolable", "toggleable", "sliceable"):
        facts += [f"({quality} {thing.id})" for thing in things if thing.kind in known.affords[quality]]
    facts += [f"(inReceptacle {thing.id} {room.spots[thing.spot].id})" for thing in things if thing.spot >= 0]
    facts += [f"(inReceptacleObject {room.things[i].id} {room.things[o].id})" for i, o in room.inside]
    facts += [f"(receptacleAtLocation {spot.id} {spot.place})" for spot in room.spots]
    facts += [f"(objectAtLocation {thing.id} {thing.place})" for thing in things]
    return facts


def _can_contain(spots: frozenset[str], kinds: frozenset[str]) -> Iterable[str]:
    fits = lore().fits
    for spot in sorted(spots):
        yield from (f"(canContain {spot}Type {kind}Type)" for kind in sorted(kinds & fits.get(spot, frozenset())))


def _goal(goal: Goal) -> str:
    names = {"{obj}": goal.target, "{toggle}" if goal.task == LOOK else "{recep}": goal.to, "#": "-"}
    text = lore().goal_pddl[goal.task]
    for mark, name in names.items():
        text = text.replace(mark, name)
    return text


@cache
def _kinds() -> str:
    """The declarations every problem begins with: one bare word per kind of object, then the kinds."""
    known = lore()
    return _INDENT + _INDENT.join(
        [
            *(f"{kind} - object" for kind in known.objects),
            *(f"{kind}Type - otype" for kind in known.objects),
            *(f"{kind}Type - rtype" for kind in known.receptacles),
        ]
    )


@cache
def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
