"""TextWorld games through the genuine engine: generated, from files, and what cannot be played."""

import json
import pickle
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest

from agentrl.config import resolve
from agentrl.env import tasks_of
from agentrl.envs.textworld import HELD_OUT, game_path, tidy, typed
from agentrl.gym import check_env

pytestmark = pytest.mark.skipif(find_spec("textworld") is None, reason="needs textworld")
SMALL = {"rooms": 2, "objects": 3, "quest_length": 2}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A folder with the compiled games of seeds 0 and 1, a few seconds each."""
    return tmp_path_factory.mktemp("games")


def entry(cache, **options):
    return resolve("envs", {"name": "textworld", "cache": str(cache), **SMALL, **options})


@pytest.fixture
def played(cache):
    on = entry(cache)
    env = on.hooks.make(on.config)
    seen = env.reset(tasks_of(on)[0])
    yield env, seen
    env.close()


def quest(cache, task):
    """The commands of the game's own quest, as its file states them."""
    game = json.loads(game_path(entry(cache).config, task).with_suffix(".json").read_text())
    return [command for q in game["quests"] for command in q["commands"]] or game["metadata"]["walkthrough"]


def test_a_generated_game_is_words_and_commands(played):
    env, seen = played
    assert seen.task and seen.text.startswith(seen.task[:20])
    assert "-=" in seen.text and "$$" not in seen.text and not seen.text.rstrip().endswith(">")
    assert "look" in seen.actions and "inventory" in seen.actions
    said = env.step("frobnicate")
    assert said.observation.text.startswith("That's not a verb I recognise") and not said.terminated
    assert ">" not in said.observation.text and "=-0/" not in said.observation.text
    assert env.step("").observation.text


def test_following_the_quest_wins(cache):
    on = entry(cache)
    task = tasks_of(on)[0]
    for reward in ("score", "won", "progress"):
        env = on.hooks.make(entry(cache, reward=reward).config)
        env.reset(task)
        results = [env.step(command) for command in quest(cache, task)]
        assert results[-1].terminated and results[-1].info["success"]
        assert sum(r.reward for r in results) == pytest.approx(len(results) if reward == "progress" else 1.0)
        assert env.step("look").observation.text == "The game is over."
        env.close()


def test_a_copy_goes_on_where_the_original_stood(played):
    env, seen = played
    env.step(seen.actions[0])
    copy = pickle.loads(pickle.dumps(env))
    for command in ("look", "inventory"):
        assert copy.step(command) == env.step(command)
    copy.close()


def test_it_keeps_the_promises_of_an_environment(cache):
    assert check_env(entry(cache, count=1), tasks=1, steps=6) == []


def test_no_text_ends_the_process(cache):
    """In a process of its own: a backslash, the interpreter's escape, ended it by a segmentation fault."""
    assert typed("a\\b") == "a?b"
    path = game_path(entry(cache).config, tasks_of(entry(cache))[0])
    code = f"""
import random
from agentrl.config import resolve
from agentrl.env import tasks_of
on = resolve("envs", {{"name": "textworld", "games": {str(path)!r}}})
env, task, draw = on.hooks.make(on.config), tasks_of(on)[0], random.Random(1)
env.reset(task)
for _ in range(60):
    if env.step("".join(chr(draw.randrange(32, 127)) for _ in range(40))).terminated:
        env.reset(task)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_files_folders_and_lists(cache, tmp_path):
    made = game_path(entry(cache).config, tasks_of(entry(cache))[0])
    (tmp_path / "b").mkdir()
    shutil.copy(made, tmp_path / "b" / "one.z8")
    shutil.copy(made.with_suffix(".json"), tmp_path / "b" / "one.json")
    shutil.copy(made.with_suffix(".json"), tmp_path / "a.json")
    (tmp_path / "list.txt").write_text("b/one.z8  # the compiled one\n")
    assert [t.key for t in tasks_of(entry(cache, games=str(tmp_path)))] == ["b/one.z8", "a.json"]
    assert len(tasks_of(entry(cache, games=str(tmp_path / "list.txt")))) == 1
    on = entry(cache, games=str(tmp_path / "b" / "one.z8"), max_steps=2)
    env = on.hooks.make(on.config)
    seen = env.reset(tasks_of(on)[0])
    assert seen.task and "look" in seen.actions
    assert [env.step("look").truncated for _ in range(2)] == [False, True]
    env.close()


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("no.z8", None, "is missing or empty"),
        ("empty.z8", "", "is missing or empty"),
        ("game.ulx", "x", "no Glulx games: give the .json or .z8"),
        ("game.tw-pddl", "x", "use alfworld"),
        ("hollow", None, "no such game file, folder or list"),
        ("list.txt", "gone.z8\n", "gone.z8 is missing or empty"),
    ],
)
def test_what_cannot_be_played_is_one_sentence(name, content, sentence, tmp_path, cache):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=sentence):
        tasks_of(entry(cache, games=str(tmp_path / name)))


def test_splits_have_seeds_of_their_own(cache):
    assert [t.seed for t in tasks_of(entry(cache, split="test", count=2))] == [HELD_OUT, HELD_OUT + 1]


def test_the_prompt_and_the_status_line_are_no_words_of_the_game():
    said = "\nYou open the refrigerator, revealing a teapot.\n\n\n>            -= Dish-Pit =-0/1"
    assert tidy(said) == "You open the refrigerator, revealing a teapot."
    assert tidy("A room.\n\n>") == "A room."
    assert tidy("-= Dish-Pit =-\nYou are here.\n\n\n\nA pan.") == "-= Dish-Pit =-\nYou are here.\n\nA pan."


def test_a_story_file_alone_is_played_as_any_interpreter_would(cache, tmp_path):
    """As the games that Jericho knows and does not know: no objective, no list, words all the same."""
    made = game_path(entry(cache).config, tasks_of(entry(cache))[0])
    shutil.copy(made, tmp_path / "alone.z8")
    on = entry(cache, games=str(tmp_path / "alone.z8"))
    env = on.hooks.make(on.config)
    seen = env.reset(tasks_of(on)[0])
    assert seen.actions == () and seen.task == "" and "-=" in seen.text
    result = env.step("look")
    assert "-=" in result.observation.text and result.reward == 0 and result.info["success"] is False
    env.close()


def test_a_command_fits_the_input_buffer_of_the_interpreter():
    assert typed("take  the\nlamp") == "take the lamp"
    assert typed("a" * 10_000) == "a" * 120
    assert typed("caf\u00e9 \x00") == "caf? ?" and typed("") == " "


@pytest.mark.parametrize(
    "command", ["save", "SAVE.", "restore", "script", "script on", "transcript off", "unscript", "recording", "replay"]
)
def test_a_command_of_the_interpreter_about_files_is_not_known_to_the_game(command):
    unknown = "?" + command[1:]
    assert typed(command) == unknown
    assert typed(f"look. {command}") == f"look. {unknown}"
    assert typed(f"open door then {command}, wait") == f"open door then {unknown}, wait"
    assert typed(f"{command}.{command}") == f"{unknown}.{unknown}"


@pytest.mark.parametrize("command", ["save the princess", "record the song", "read script", "look", "take transistor"])
def test_a_command_of_the_game_is_typed_as_it_is(command):
    assert typed(command) == command


def test_no_command_writes_a_file_or_reads_another_episode(cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    on = entry(cache)
    task, first, second = tasks_of(on)[0], on.hooks.make(on.config), on.hooks.make(on.config)
    first.reset(task)
    moved = [first.step(first.reset(task).actions[0]), *map(first.step, ("save", "script", "look. save. look"))]
    assert not list(tmp_path.iterdir()) and all(result.reward == 0 for result in moved[1:])
    before = second.reset(task).text
    assert "recogni" in second.step("restore").observation.text
    assert second.reset(task).text == before
    first.close()
    second.close()
