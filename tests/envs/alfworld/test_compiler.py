"""From a game file to a compiled game: what is recognised, what is refused, and with which words."""

import itertools
import random
import re

import pytest

from agentrl.envs.alfworld.compiler import compile_game, demangle
from agentrl.envs.alfworld.engine import Engine
from agentrl.envs.alfworld.game import TASK_TYPES
from agentrl.envs.alfworld.generate import Keys, make
from agentrl.envs.alfworld.pddl import NotNative, parse_problem
from tests.envs.alfworld.small import (
    HOT_APPLE,
    LOOK_AT_MUG,
    TWO_APPLES,
    bring,
    engine,
    kitchen,
)


def test_names_are_numbered_downwards_in_the_order_of_ids():
    ids = ["mug_bar__plus_01", "mug_bar__minus_01", "sink_bar_1_bar_sinkbasin", "sink_bar_2", "agent1"]
    assert demangle(ids) == {
        "agent1": "agent1 ",
        "mug_bar__minus_01": "mug 2",
        "mug_bar__plus_01": "mug 1",
        "sink_bar_1_bar_sinkbasin": "sinkbasin 1",
        "sink_bar_2": "sink 1",
    }


@pytest.mark.parametrize(
    ("goal", "kind", "condition", "count"),
    [
        (bring(), "pick_and_place_simple", "", 1),
        (HOT_APPLE, "pick_heat_then_place_in_recep", "hot", 1),
        (HOT_APPLE.replace("isHot", "isCool"), "pick_cool_then_place_in_recep", "cool", 1),
        (HOT_APPLE.replace("isHot", "isClean"), "pick_clean_then_place_in_recep", "clean", 1),
        (TWO_APPLES, "pick_two_obj_and_place", "", 2),
    ],
)
def test_the_goal_tells_the_task_type(goal, kind, condition, count):
    game = engine(goal).game
    assert (game.kind, game.wanted.condition, game.wanted.count) == (kind, condition, count)
    assert (game.wanted.object, game.wanted.lamp) == ("apple", "")


def test_the_goal_of_looking_names_lamp_and_object():
    wanted = engine(LOOK_AT_MUG).game.wanted
    assert (wanted.kind, wanted.object, wanted.lamp) == ("look_at_obj_in_light", "mug", "desklamp")


def test_goals_of_other_shapes_are_played_without_a_task_type():
    sliced = HOT_APPLE.replace("(isHot ?o)", "(isHot ?o) (isSliced ?o)")
    assert engine(sliced).game.kind == ""


@pytest.mark.parametrize("form", ["move", "put", "patched"])
def test_every_published_release_is_recognised_whatever_the_task_and_the_line_ends(form):
    data = kitchen(form=form, task="put some apple on fridge")
    other = kitchen(form=form, task="please bring me a cold one, would you?")
    other["grammar"] = other["grammar"].replace("\n", "\r\n")
    other["pddl_domain"] = "; mine\n" + other["pddl_domain"].replace("\n", "  \r\n")
    assert compile_game(data, key="a").form == compile_game(other, key="b").form
    assert compile_game(other, key="b").task == "please bring me a cold one, would you?."


@pytest.mark.parametrize(
    ("part", "old", "new", "why"),
    [
        ("grammar", "You pick up", "You grab", "its rules are none of the published ones"),
        ("grammar", "Your task is to:", "Your mission is:", "states the task 0 times"),
        ("grammar", "put some apple on fridge", "put #task# on fridge", "mean something to the grammar"),
        ("pddl_domain", "(pickupable ?o)", "", "its rules are none of the published ones"),
        ("pddl_problem", "agent1 - agent", "agent1 agent2 - agent", "one agent at one place"),
        ("pddl_problem", "(:init", "(:init (holds agent1 Mug_bar_1)", "which is not expected"),
        ("pddl_problem", "(:init", "(:init (openable nothing)", "which is not expected"),
        ("pddl_problem", "(:init", "(:init (or (openable a))", "more than plain facts"),
        ("pddl_problem", "(:goal", "(:aim", "no (:goal ...) part"),
        ("pddl_problem", "(inReceptacle ?o ?r)", "(isOn ?o) (inReceptacle ?o ?r)", "'ison'"),
        ("pddl_problem", "(inReceptacle ?o ?r)", "(inReceptacle ?x ?r)", "outside its quantifier"),
        ("pddl_problem", "(inReceptacle ?o ?r)", "(not (inReceptacle ?o ?r))", "does not know"),
    ],
)
def test_what_is_not_known_exactly_is_left_to_the_genuine_engine(part, old, new, why):
    data = kitchen()
    assert old in data[part]
    data[part] = data[part].replace(old, new, 1)
    with pytest.raises(NotNative, match=re.escape(why)) as caught:
        compile_game(data, key="mine")
    assert str(caught.value).startswith("mine: ")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({}, "no text under 'pddl_domain'"),
        ({**kitchen(), "grammar": 3}, "no text under 'grammar'"),
        (kitchen(bring("(inReceptacle ?o ?r) (objectType ?o SpoonType) (isHot ?o)")), "can never hold"),
        (kitchen(less="pickupable Mug_bar_1", goal=LOOK_AT_MUG), "can never hold"),
    ],
)
def test_what_is_no_game_is_refused(data, why):
    with pytest.raises(ValueError, match=why) as caught:
        compile_game(data, key="mine")
    assert not isinstance(caught.value, NotNative)


def test_an_object_declared_twice_is_refused():
    data = kitchen()
    data["pddl_problem"] = data["pddl_problem"].replace("(:objects", "(:objects Mug_bar_1 - object", 1)
    with pytest.raises(ValueError, match=r"'mug_bar_1' is declared twice.*leave the game out"):
        compile_game(data, key="mine")


def test_costs_and_remarks_in_a_problem_are_skipped():
    data = kitchen()
    costs = "(:init ; (openable x)\n (= (total-cost) 0) (= (distance loc_bar_1 loc_bar_2) 3)"
    noisy = data["pddl_problem"].replace("(:init", costs)
    assert parse_problem(noisy) == parse_problem(data["pddl_problem"])


class Facts:
    """An engine's state as plain facts, and a goal evaluator that tries every binding of every variable."""

    def __init__(self, game: Engine, problem: str) -> None:
        parsed = parse_problem(problem)
        self.goal, self.types = parsed.goal, parsed.types
        changing = {"atlocation", "inreceptacle", "objectatlocation"}
        true = {fact for fact in parsed.facts if fact[0] not in changing}
        state, objects = game.state, game.game.objects
        for number, contents in enumerate(state.contents):
            true |= {("inreceptacle", (objects[one].id, game.game.receptacles[number].id)) for one in contents}
        for name in ("clean", "hot", "cool", "sliced", "toggled"):
            true |= {(f"is{name}", (objects[one].id,)) for one in getattr(state, name)}
        if state.holding >= 0:
            true.add(("holds", ("agent1", objects[state.holding].id)))
        places = sorted(name for name, of in parsed.types.items() if of == "location")
        used = [one for one in places if any(one in arguments for _, arguments in parsed.facts)]
        true.add(("atlocation", ("agent1", used[state.place])))
        self.true = true

    def hold(self, part, bound):
        match part:
            case ["and", *parts]:
                return all(self.hold(one, bound) for one in parts)
            case ["not", one]:
                return not self.hold(one, bound)
            case ["exists", declared, inner]:
                names, kinds = declared[::3], declared[2::3]
                every = [[one for one, of in self.types.items() if of == kind] for kind in kinds]
                return any(
                    self.hold(inner, {**bound, **dict(zip(names, values, strict=True))})
                    for values in itertools.product(*every)
                )
            case ["=", left, right]:
                return bound[left] == bound[right]
            case [predicate, *arguments]:
                return (predicate, tuple(bound.get(one, one) for one in arguments)) in self.true


@pytest.mark.parametrize("task", TASK_TYPES)
def test_the_goal_tree_agrees_with_trying_every_binding(task):
    made = make(Keys("small", "train", tasks=(task,), seed=3)[0])
    game, rng = Engine(made.game), random.Random(1)
    problem = drop_idle(made.data["pddl_problem"])
    seen = set()
    for command in (*made.data["walkthrough"], *[""] * 12):
        admissible = game.admissible()
        game.step(command or rng.choice([one for one in admissible if not one.startswith("go")]))
        facts = Facts(game, problem)
        assert game.won == facts.hold(facts.goal, {})
        seen.add(game.won)
    assert seen == {False, True}


def drop_idle(problem: str) -> str:
    """The problem without the kinds that are declared as objects and never used: they only cost time here."""
    return re.sub(r"\n\s+\w+(?<!_)\b - object(?=\n)", lambda one: one[0] if "_bar_" in one[0] else "", problem)
