"""A small kitchen written by hand, in every published form of the rules."""

import json
from pathlib import Path
from typing import Any

import agentrl.envs.alfworld as package
from agentrl.envs.alfworld.compiler import compile_game
from agentrl.envs.alfworld.engine import Engine
from agentrl.envs.alfworld.formats import HELP

RULES = Path(package.__file__).parent

# Two cabinets share a viewpoint; the drawer has one with nothing else; the agent starts away from everything.
FACTS = """
atLocation agent1 loc_bar_0
receptacleType Fridge_bar_1 FridgeType          receptacleAtLocation Fridge_bar_1 loc_bar_1
receptacleType Microwave_bar_1 MicrowaveType    receptacleAtLocation Microwave_bar_1 loc_bar_2
receptacleType Sink_bar_1_bar_SinkBasin SinkBasinType
receptacleAtLocation Sink_bar_1_bar_SinkBasin loc_bar_3
receptacleType CounterTop_bar_1 CounterTopType  receptacleAtLocation CounterTop_bar_1 loc_bar_4
receptacleType Cabinet_bar_1 CabinetType        receptacleAtLocation Cabinet_bar_1 loc_bar_5
receptacleType Cabinet_bar_2 CabinetType        receptacleAtLocation Cabinet_bar_2 loc_bar_5
receptacleType Drawer_bar_1 DrawerType          receptacleAtLocation Drawer_bar_1 loc_bar_6
openable Fridge_bar_1       openable Microwave_bar_1    openable Cabinet_bar_2  openable Drawer_bar_1
objectType Apple_bar_1 AppleType                inReceptacle Apple_bar_1 CounterTop_bar_1
objectType Apple_bar_2 AppleType                inReceptacle Apple_bar_2 Fridge_bar_1
objectType Knife_bar_1 KnifeType                inReceptacle Knife_bar_1 CounterTop_bar_1
objectType Mug_bar_1 MugType                    inReceptacle Mug_bar_1 Cabinet_bar_1
objectType Spoon_bar_1 SpoonType                inReceptacle Spoon_bar_1 Cabinet_bar_1
objectType DeskLamp_bar_1 DeskLampType          inReceptacle DeskLamp_bar_1 Drawer_bar_1
objectAtLocation Apple_bar_1 loc_bar_4          objectAtLocation Apple_bar_2 loc_bar_1
objectAtLocation Knife_bar_1 loc_bar_4          objectAtLocation Mug_bar_1 loc_bar_5
objectAtLocation Spoon_bar_1 loc_bar_5          objectAtLocation DeskLamp_bar_1 loc_bar_6
pickupable Apple_bar_1  pickupable Apple_bar_2  pickupable Knife_bar_1  pickupable Mug_bar_1
pickupable Spoon_bar_1
cleanable Apple_bar_1   cleanable Apple_bar_2   cleanable Mug_bar_1     cleanable Knife_bar_1
heatable Apple_bar_1    heatable Apple_bar_2    heatable Mug_bar_1
coolable Apple_bar_1    coolable Apple_bar_2    coolable Mug_bar_1
sliceable Apple_bar_1   sliceable Apple_bar_2   toggleable DeskLamp_bar_1
isReceptacleObject Mug_bar_1                    inReceptacleObject Spoon_bar_1 Mug_bar_1
"""
_ARITY = {
    "atLocation": 2,
    "receptacleType": 2,
    "receptacleAtLocation": 2,
    "objectType": 2,
    "objectAtLocation": 2,
    "inReceptacle": 2,
    "inReceptacleObject": 2,
    "canContain": 2,
}
_KINDS = ("Apple", "Knife", "Mug", "Spoon", "DeskLamp")
_PLACES = ("Fridge", "Microwave", "SinkBasin", "CounterTop", "Cabinet", "Drawer")

APPLE_IN_FRIDGE = "(inReceptacle ?o ?r) (objectType ?o AppleType) (receptacleType ?r FridgeType)"


def bring(conditions: str = APPLE_IN_FRIDGE) -> str:
    """A goal about one object and one receptacle."""
    return f"(exists (?r - receptacle) (exists (?o - object) (and {conditions})))"


HOT_APPLE = bring(f"(heatable ?o) {APPLE_IN_FRIDGE} (isHot ?o)")
MUG_ON_COUNTER = bring("(inReceptacle ?o ?r) (objectType ?o MugType) (receptacleType ?r CounterTopType)")
TWO_APPLES = """(exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 AppleType)
    (receptacleType ?r CounterTopType) (inReceptacle ?o1 ?r) (exists (?o2 - object) (and (not (= ?o1 ?o2))
    (objectType ?o2 AppleType) (receptacleType ?r CounterTopType) (inReceptacle ?o2 ?r))))))"""
LOOK_AT_MUG = """(exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and
    (objectType ?ot DeskLampType) (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l)
    (atLocation ?a ?l) (inReceptacle ?ot ?r)))
    (exists (?o - object ?a - agent) (and (objectType ?o MugType) (holds ?a ?o)))"""


def rules(form: str = "move") -> tuple[str, str]:
    """(domain, grammar) of a release: `move` is today's, `put` that up to 0.3.5, `patched` one between."""
    domain, grammar = ((RULES / name).read_text() for name in ("alfred.pddl", "alfred.twl2"))
    if form == "move":
        return domain, grammar
    old = grammar[: grammar.index("action help {")].rstrip() + "\n"
    old = old.replace("You arrive at {r.name}.", "You arrive at {lend.name}.")
    old = old.replace("move {o} to {r}", "put {o} in/on {r}")
    old = old.replace("You move the {o.name} to the {r.name}.", "You put the {o.name} in/on the {r.name}.")
    if form == "put":
        return domain[: domain.index("(:action help")].rstrip() + "\n)\n", old
    patched = old.replace("You arrive at {lend.name}.", "You arrive at {r.name}.")
    patched = patched.replace("put {o} in/on {r}", "move {o} to {r}")
    patched = patched.replace("You put the {o.name} in/on the {r.name}.", "You move the {o.name} to the {r.name}.")
    return domain, f'{patched}\naction help {{\n    template :: "help";\n    feedback :: "\n{HELP}";\n}}\n'


def facts_of(text: str) -> list[str]:
    """The facts of a text without parentheses, each predicate followed by its arguments."""
    words, found = text.split(), []
    while words:
        size = _ARITY.get(words[0], 1) + 1
        found.append(f"({' '.join(words[:size])})")
        words = words[size:]
    return found


def kitchen(
    goal: str = bring(),
    *,
    task: str = "put some apple on fridge",
    form: str = "move",
    more: str = "",
    less: str = "",
) -> dict[str, Any]:
    """The contents of a game file: the kitchen with some facts more or less."""
    domain, grammar = rules(form)
    facts = [fact for fact in facts_of(FACTS) if fact not in facts_of(less)] + facts_of(more)
    facts += [f"(canContain {place}Type {kind}Type)" for place in _PLACES for kind in _KINDS if kind != "DeskLamp"]
    names = {word for fact in facts for word in fact.strip("()").split()[1:]}
    kinds = {"loc": "location", **dict.fromkeys((*_PLACES, "Sink"), "receptacle")}
    declared = [
        f"{name} - {kinds.get(name.split('_')[0], 'object')}"
        for name in sorted(names)
        if "_bar_" in name or name.endswith("_bare")
    ]
    declared += [f"{kind}Type - otype" for kind in _KINDS] + [f"{place}Type - rtype" for place in _PLACES]
    problem = "\n".join(
        [
            "(define (problem kitchen)\n(:domain alfred)\n(:objects agent1 - agent",
            *declared,
            ")\n(:init",
            *facts,
            f")\n(:goal (and {goal})))",
        ]
    )
    grammar = grammar.replace("UNKNOWN GOAL", task)
    return {
        "pddl_domain": domain,
        "grammar": grammar,
        "pddl_problem": problem,
        "solvable": True,
        "walkthrough": [],
    }


def engine(*arguments: Any, **options: Any) -> Engine:
    """A native engine on the kitchen."""
    return Engine(compile_game(kitchen(*arguments, **options), key="kitchen"))


def save(folder: Path, data: dict[str, Any], kind: str = "pick_and_place_simple") -> Path:
    """Write a game as the published data has them; returns the game file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "traj_data.json").write_text(json.dumps({"task_id": folder.name, "task_type": kind}))
    (folder / "game.tw-pddl").write_text(json.dumps(data))
    return folder / "game.tw-pddl"
