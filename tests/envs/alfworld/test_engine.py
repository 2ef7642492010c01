"""The native engine on a kitchen small enough to be worked by hand."""

import json
import pickle
import random
import subprocess
import sys
import tracemalloc

import pytest

from agentrl.envs.alfworld.compiler import compile_game
from agentrl.envs.alfworld.engine import Engine
from agentrl.envs.alfworld.generate import Keys, make_game
from tests.envs.alfworld.small import HOT_APPLE, LOOK_AT_MUG, MUG_ON_COUNTER, TWO_APPLES, engine, kitchen


def play(game: Engine, *commands: str) -> str:
    """The last answer."""
    return [game.step(command) for command in commands][-1]


def test_the_opening_lists_receptacles_with_numbers_running_down():
    # Ids in order: cabinet_bar_1, cabinet_bar_2, countertop_bar_1, ...; the first cabinet is number 2.
    assert engine().reset() == (
        "-= Welcome to TextWorld, ALFRED! =-\n\n"
        "You are in the middle of a room. Looking quickly around you, you see a cabinet 2, a cabinet 1, "
        "a countertop 1, a drawer 1, a fridge 1, a microwave 1, and a sinkbasin 1.\n\n"
        "Your task is to: put some apple on fridge."
    )


def test_a_game_by_hand():
    game = engine(HOT_APPLE)
    assert game.admissible() == [
        "go to cabinet 1",
        "go to cabinet 2",
        "go to countertop 1",
        "go to drawer 1",
        "go to fridge 1",
        "go to microwave 1",
        "go to sinkbasin 1",
        "help",
        "inventory",
        "look",
    ]
    assert game.step("inventory") == "You are not carrying anything."
    assert game.step("go to countertop 1") == (
        "You arrive at countertop 1. On the countertop 1, you see a apple 2, and a knife 1."
    )
    assert game.step("take apple 2 from countertop 1") == "You pick up the apple 2 from the countertop 1."
    assert game.step("inventory") == "You are carrying: a apple 2."
    assert game.step("go to microwave 1") == "You arrive at microwave 1. The microwave 1 is closed."
    assert game.step("heat apple 2 with microwave 1") == "You heat the apple 2 using the microwave 1."
    assert game.step("examine apple 2") == "This is a hot apple 2."
    assert game.step("go to fridge 1") == "You arrive at fridge 1. The fridge 1 is closed."
    assert "move apple 2 to fridge 1" not in game.admissible()
    assert game.step("open fridge 1") == "You open the fridge 1. The fridge 1 is open. In it, you see a apple 1."
    assert (game.won, game.score) == (False, 0)
    assert game.step("move apple 2 to fridge 1") == "You move the apple 2 to the fridge 1."
    assert (game.won, game.score) == (True, 1)


def test_a_won_game_goes_on_and_may_be_unwon():
    game = engine()
    assert game.won  # an apple is in the fridge from the start
    play(game, "go to fridge 1", "open fridge 1")
    assert game.won
    assert game.step("take apple 1 from fridge 1") == "You pick up the apple 1 from the fridge 1."
    assert not game.won
    game.step("move apple 1 to fridge 1")
    assert game.won


@pytest.mark.parametrize(
    "command",
    ["", "   ", "LOOK", "go to", "go to shelf 1", "go  to fridge 1", "take apple 2 from countertop 1"],
)
def test_what_is_not_admissible_changes_nothing(command):
    game = engine()
    before = game.state
    assert game.step(command) == "Nothing happens."
    assert game.state is before


def test_blanks_around_a_command_are_ignored():
    assert engine().step("  go to fridge 1\n") == "You arrive at fridge 1. The fridge 1 is closed."


def test_one_cannot_walk_to_where_one_stands_nor_to_a_receptacle_beside_it():
    game = engine()
    game.step("go to cabinet 1")
    walks = [command for command in game.admissible() if command.startswith("go to")]
    assert "go to cabinet 1" not in walks
    assert "go to cabinet 2" not in walks
    assert game.step("look") == "You are facing the cabinet 2, and cabinet 1. Next to it, you see nothing."


def test_looking_around_at_the_start_shows_nothing():
    assert engine().step("look") == ("You are in the middle of a room. Looking quickly around you, you see nothing.")


def test_what_moves_between_receptacles_of_one_place_lies_beside_them():
    game = engine()
    play(game, "go to cabinet 1", "open cabinet 1", "take spoon 1 from cabinet 2", "move spoon 1 to cabinet 1")
    assert game.step("look") == "You are facing the cabinet 2, and cabinet 1. Next to it, you see a spoon 1."
    play(game, "take spoon 1 from cabinet 1", "move spoon 1 to cabinet 2")
    # It is back where it was first, and now counts as removed from the other one.
    assert game.step("look") == "You are facing the cabinet 2, and cabinet 1. Next to it, you see a spoon 1."


def test_only_the_held_object_can_be_examined():
    game = engine()
    play(game, "go to countertop 1")
    assert game.step("examine knife 1") == "Nothing happens."
    game.step("take knife 1 from countertop 1")
    assert game.step("examine knife 1") == "There's nothing special about knife 1."


@pytest.mark.parametrize(
    ("deeds", "told"),
    [
        ("clean", "This is a clean apple 2."),
        ("heat", "This is a hot apple 2."),
        ("cool", "This is a cold apple 2."),
        ("clean heat", "This is a hot and clean apple 2."),
        ("clean cool", "This is a cool and clean apple 2."),
        ("heat cool", "This is a cold apple 2."),
        ("slice", "This is a sliced apple 2."),
        ("slice clean", "This is a clean sliced apple 2."),
        ("slice heat", "This is a hot sliced apple 2."),
        ("slice cool", "This is a cool sliced apple 2."),
        ("slice clean cool heat", "This is a hot and clean sliced apple 2."),
        ("slice clean cool", "This is a cool and clean sliced apple 2."),
    ],
)
def test_every_condition_of_an_object_is_told(deeds, told):
    game = engine()
    game.step("go to countertop 1")
    if "slice" in deeds:
        play(game, "take knife 1 from countertop 1")
        assert game.step("slice apple 2 with knife 1") == "You sliced the apple 2 with the knife 1."
        game.step("move knife 1 to countertop 1")
    game.step("take apple 2 from countertop 1")
    for deed in deeds.replace("slice", "").split():
        tool = {"clean": "sinkbasin 1", "heat": "microwave 1", "cool": "fridge 1"}[deed]
        game.step(f"go to {tool}")
        assert game.step(f"{deed} apple 2 with {tool}") == f"You {deed} the apple 2 using the {tool}."
    assert game.step("examine apple 2") == told


def test_a_container_shows_what_the_file_put_into_it_and_nothing_else():
    game = engine()
    play(game, "go to cabinet 2", "take mug 1 from cabinet 2")
    assert game.step("examine mug 1") == "This is a normal mug 1. In it, you see a spoon 1."


def test_slicing_looks_at_where_things_lie_not_at_closed_doors():
    game = engine()
    play(game, "go to countertop 1", "take knife 1 from countertop 1", "go to fridge 1")
    assert game.step("slice apple 1 with knife 1") == "You sliced the apple 1 with the knife 1."


def test_lamps_are_used_behind_closed_doors_and_stay_on():
    game = engine()
    game.step("go to drawer 1")
    assert game.step("use desklamp 1") == "You turn on the desklamp 1."
    assert game.step("use desklamp 1") == "You turn on the desklamp 1."
    assert "use desklamp 1" in game.admissible()


def test_looking_at_something_under_a_lamp_needs_both_and_the_place():
    game = engine(LOOK_AT_MUG)
    play(game, "go to cabinet 2", "take mug 1 from cabinet 2", "go to drawer 1")
    assert not game.won
    game.step("use desklamp 1")
    assert game.won
    game.step("go to fridge 1")
    assert not game.won


def test_two_objects_are_two():
    game = engine(TWO_APPLES)
    assert not game.won  # one apple is on the countertop
    play(game, "go to fridge 1", "open fridge 1", "take apple 1 from fridge 1", "go to countertop 1")
    game.step("move apple 1 to countertop 1")
    assert game.won


def test_the_older_release_names_places_and_has_no_help():
    game = engine(MUG_ON_COUNTER, form="put")
    assert game.step("help") == "Nothing happens."
    # Seven places, loc_bar_0 to loc_bar_6, numbered downwards: loc_bar_5 is loc 2.
    assert game.step("go to cabinet 2").startswith("You arrive at loc 2. On the cabinet 2, you see")
    play(game, "take mug 1 from cabinet 2", "go to countertop 1")
    assert "move mug 1 to countertop 1" not in game.admissible()
    assert game.step("put mug 1 in/on countertop 1") == "You put the mug 1 in/on the countertop 1."
    assert game.won


def test_the_patched_files_speak_as_the_newer_release():
    old, new = engine(form="patched"), engine()
    for command in ("help", "go to fridge 1", "open fridge 1", "take apple 1 from fridge 1", "inventory"):
        assert old.step(command) == new.step(command)
    assert new.step("help").endswith("using a sharp object\n")


@pytest.mark.parametrize("seed", range(10))
def test_a_saved_state_is_a_snapshot(seed):
    rng = random.Random(seed)
    game = Engine(make_game(Keys("full", seed=seed)[seed % 6]))
    for _ in range(20):
        game.step(rng.choice(game.admissible()))
    saved, facts, admissible = game.save(), game.facts(), game.admissible()
    commands = [rng.choice(admissible)]
    answers = [game.step(commands[0])]
    for _ in range(20):
        commands.append(rng.choice(game.admissible()))
        answers.append(game.step(commands[-1]))
    game.restore(saved)
    assert (game.facts(), game.admissible()) == (facts, admissible)
    assert [game.step(command) for command in commands] == answers
    revived = pickle.loads(pickle.dumps(game))
    assert (revived.state, revived.admissible(), revived.won) == (game.state, game.admissible(), game.won)


def test_engines_of_one_game_do_not_touch_each_other():
    game = compile_game(kitchen(), key="kitchen")
    one, other = Engine(game), Engine(game)
    play(one, "go to fridge 1", "open fridge 1", "take apple 1 from fridge 1")
    assert other.reset() == Engine(game).reset()
    assert other.admissible() == engine().admissible()


def test_one_more_engine_takes_less_than_20_kb():
    game = make_game(Keys("full")[4])
    Engine(game).reset()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    engines = []
    for seed in range(50):
        rng = random.Random(seed)
        engines.append(Engine(game))
        for _ in range(20):
            engines[-1].step(rng.choice(engines[-1].admissible()))
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert used / 50 < 20_000


def test_the_native_path_needs_neither_textworld_nor_alfworld():
    code = (
        "import sys\n"
        "class Ban:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.split('.')[0] in ('textworld', 'alfworld', 'fast_downward', 'torch'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Ban())\n"
        "import json\n"
        "from agentrl.envs import alfworld\n"
        "config = alfworld.Config()\n"
        "env = alfworld.make(config)\n"
        "print(json.dumps(env.reset(alfworld.tasks(config)[0]).text))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout).startswith("-= Welcome to TextWorld, ALFRED! =-")
