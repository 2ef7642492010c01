"""Generated games: the same everywhere, won by the oracle, true to the wheel, read by the official loader."""

import json
import os
import subprocess
import sys
from collections import Counter
from hashlib import sha256
from importlib.util import find_spec

import pytest

from agentrl.envs.alfworld import levels, scenes, wheel
from agentrl.envs.alfworld.draw import Draw
from agentrl.envs.alfworld.engine import Engine
from agentrl.envs.alfworld.export import write_games
from agentrl.envs.alfworld.game import TASK_TYPES
from agentrl.envs.alfworld.generate import GameKey, Keys, is_generated, make, make_game, parse_key, scenes_for
from agentrl.envs.alfworld.rooms import furnish, goals

needs_wheel = pytest.mark.skipif(find_spec("alfworld") is None, reason="needs the alfworld wheel")
needs_textworld = pytest.mark.skipif(find_spec("textworld") is None, reason="needs textworld")


def fingerprint(count: int) -> str:
    """SHA-256 over keys and files of games of every level."""
    keys = [key for level in levels.LEVELS for key in Keys(level, "valid_unseen", seed=5)[:count]]
    return sha256("".join(key + json.dumps(make(key).data) for key in keys).encode()).hexdigest()


def test_the_same_games_in_another_process_with_another_hash_seed():
    code = (
        "import json\nfrom hashlib import sha256\nfrom agentrl.envs.alfworld import levels\n"
        "from agentrl.envs.alfworld.generate import Keys, make\n"
        "keys = [key for level in levels.LEVELS for key in Keys(level, 'valid_unseen', seed=5)[:8]]\n"
        "print(sha256(''.join(key + json.dumps(make(key).data) for key in keys).encode()).hexdigest())"
    )
    for hash_seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == fingerprint(8)


def test_published_keys_keep_their_games():
    # A key stands in result files: if this changes, games of old results can no longer be made.
    key = "alfworld-gen/small/valid_unseen/pick_and_place_simple/301/3-7"
    assert Keys("small", "valid_unseen", seed=3)[7] == key
    assert sha256(make(key).data["pddl_problem"].encode()).hexdigest()[:16] == "2583f4a535d57a12"


def test_draws_are_python_s_promised_stream():
    # random.Random(int.from_bytes(sha256(b"a\n1").digest()[:8], "big")).random(), worked out apart from Draw.
    draw = Draw("a", 1)
    assert [draw.below(1000) for _ in range(3)] == [548, 302, 834]
    draw = Draw("b")
    assert sorted(draw.sample(range(10), 10)) == list(range(10))
    assert len(draw.sample("abc", 9)) == 3
    assert {Draw("c", i).between(2, 4) for i in range(50)} == {2, 3, 4}


@pytest.mark.parametrize("level", levels.LEVELS)
@pytest.mark.parametrize("task", TASK_TYPES)
def test_every_game_is_open_at_first_and_won_by_its_walkthrough(level, task):
    for split in scenes.SPLITS:
        for key in Keys(level, split, tasks=[task], seed=11)[:8]:
            made = make(key)
            engine = Engine(made.game)
            engine.reset()
            assert made.game.kind == task and not engine.won
            for command in made.data["walkthrough"]:
                assert not engine.won and command in engine.admissible()
                engine.step(command)
            assert engine.won and made.data["solvable"]


@pytest.mark.parametrize(
    "level", [pytest.param(x, marks=pytest.mark.slow) if x == "full" else x for x in levels.LEVELS]
)
def test_the_goals_of_every_scene_can_be_furnished(level):
    for task in TASK_TYPES:
        for number in scenes.numbers("train") + scenes.numbers("valid_unseen"):
            for goal in goals(number, task)[number % 5 :: 5]:
                room = furnish(number, levels.level(level), goal, Draw(level, str(goal), number))
                targets = [thing for thing in room.things if thing.kind == goal.target]
                assert len(targets) >= (2 if task == "pick_two_obj_and_place" else 1)
                assert all(room.spots[thing.spot].kind != goal.to for thing in targets)


def test_rooms_keep_to_their_level():
    for name in ("small", "medium"):
        level = levels.level(name)
        for key in Keys(name, seed=2)[:100]:
            game = make_game(key)
            views = {spot.place for spot in scenes.scene(parse_key(key).scene).spots if scenes.lore().fits[spot.kind]}
            assert min(level.spots[0], len(views)) <= len(game.receptacles) <= level.spots[1]
            assert len(game.objects) <= level.others[1] + max(2, level.targets[1]) + 1
            assert max(map(len, game.at)) == 1
            assert max(Counter(item.types for item in game.objects).values()) <= max(2, level.targets[1])
    for key in Keys("full", seed=2)[:30]:
        assert len(make_game(key).receptacles) == len(scenes.scene(parse_key(key).scene).spots)


def test_splits_share_scenes_as_alfred_s_do():
    train, seen, unseen = map(scenes.numbers, scenes.SPLITS)
    assert train == seen and not set(train) & set(unseen)
    assert unseen == tuple(base + n for base in (0, 200, 300, 400) for n in range(1, 7))
    assert len(train) == 96
    for task in TASK_TYPES:
        assert not set(scenes_for("train", task)) & set(scenes_for("valid_unseen", task))
        for split in scenes.SPLITS:
            drawn = {parse_key(key).scene for key in Keys("small", split, tasks=[task])[:60]}
            assert drawn <= set(scenes.numbers(split)) and len(drawn) >= 6


def test_every_index_seed_and_split_is_another_game():
    streams = [Keys("small", split, seed=seed) for split in scenes.SPLITS for seed in (0, 1)]
    keys = [key for stream in streams for key in stream[:60]]
    assert len(set(keys)) == len(keys)
    rooms = {(game.task, game.receptacles, game.objects, game.start) for game in map(make_game, keys)}
    assert len(rooms) == len(keys)


def test_task_types_take_turns_and_any_game_is_made_without_the_others():
    keys = Keys("medium", seed=4, size=10**15)
    assert [parse_key(keys[i]).task for i in range(6)] == list(TASK_TYPES)
    assert keys[10**14] == keys.key(10**14) and make_game(keys[10**14]).kind in TASK_TYPES
    assert keys[2:5] == [keys[2], keys[3], keys[4]] and keys[-1] == keys[10**15 - 1]
    assert Keys("medium", seed=4, size=3)[1] == keys[1]
    with pytest.raises(IndexError):
        keys[10**15]


def test_keys_round_trip():
    for level in levels.LEVELS:
        for key in Keys(level, "valid_seen", seed=6)[:20]:
            assert str(parse_key(key)) == key and is_generated(key)
            assert make(key).data == make(key).data
    assert parse_key(str(GameKey("full", "train", TASK_TYPES[0], 12, 3, 4))).number == 4


@pytest.mark.parametrize(
    "key, word",
    [
        ("valid_seen/look_at_obj_in_light-CD", "a key reads"),
        ("alfworld-gen/small/train/pick_and_place_simple/12/0", "a key reads"),
        ("alfworld-gen/small/train/pick_and_place_simple/12/-1-3", "a key reads"),
        ("alfworld-gen/huge/train/pick_and_place_simple/12/0-3", "small, medium, full"),
        ("alfworld-gen/small/test/pick_and_place_simple/12/0-3", "train, valid_seen, valid_unseen"),
        ("alfworld-gen/small/train/pick_up/12/0-3", "pick_and_place_simple"),
        ("alfworld-gen/small/train/pick_and_place_simple/1/0-3", "scene 1 of train"),
        ("alfworld-gen/small/train/look_at_obj_in_light/12/0-3", "scene 12 of train"),
    ],
)
def test_a_wrong_key_is_told_what_is_wrong(key, word):
    with pytest.raises(ValueError, match=word):
        make(key)


def test_written_games_hold_what_was_made(tmp_path):
    keys = Keys("full", "valid_seen", seed=8)[:6]
    files = write_games(tmp_path, keys)
    assert len(set(files)) == 6
    for key, file in zip(keys, files, strict=True):
        made = make(key)
        assert json.loads(file.read_text()) == made.data
        trajectory = json.loads(file.with_name("traj_data.json").read_text())
        assert trajectory["task_type"] == made.game.kind and file.parent.name == trajectory["task_id"]
        assert file.with_name("initial_state.pddl").read_text() == made.data["pddl_problem"]
        assert file.parent.parent.parent == tmp_path / "valid_seen"


@needs_wheel
def test_shipped_facts_are_those_of_the_wheel():
    folder = wheel.wheel_folder()
    assert json.loads(json.dumps(wheel.read_facts(folder))) == scenes.facts()
    for name in ("alfred.pddl", "alfred.twl2"):
        assert (wheel.HERE / name).read_bytes() == (folder / "data" / name).read_bytes()
    assert "Permission is hereby granted" in (wheel.HERE / "NOTICE.txt").read_text()


@pytest.mark.slow
@needs_wheel
@needs_textworld
def test_the_official_loader_and_engine_play_written_games(tmp_path, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredTWEnv
    from textworld.envs.pddl import PddlEnv

    keys = [*Keys("small", "train", seed=1)[:1], *Keys("full", "train", seed=1)[:3]]
    files = write_games(tmp_path, keys)
    config = {
        "env": {"goal_desc_human_anns_prob": 0, "task_types": [1, 2, 3, 4, 5, 6]},
        "dataset": {"data_path": str(tmp_path / "train"), "num_train_games": 0},
    }
    assert sorted(AlfredTWEnv(config, train_eval="train").game_files) == sorted(map(str, files))
    for key, file in zip(keys, files, strict=True):
        genuine = AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)))
        genuine.load(str(file))
        state, engine = genuine.reset(), Engine(make_game(key))
        text = engine.reset()
        for command in make(key).data["walkthrough"]:
            assert (state["feedback"], state["won"]) == (text, engine.won)
            assert sorted(state["admissible_commands"]) == engine.admissible()
            state, text = genuine.step(command)[0], engine.step(command)
        assert state["won"] and engine.won
