"""Finding game files: splits, filters, folders, manifests, and what is said when something is wrong."""

import json
import warnings

import pytest

from agentrl.envs import alfworld
from agentrl.envs.alfworld.data import PUBLISHED, list_games, list_split, load_game, read_game
from agentrl.envs.alfworld.verbs import about, write
from tests.envs.alfworld.small import kitchen, save


@pytest.fixture
def root(tmp_path):
    """A data root with one playable game and one game for each filter, in two splits."""
    seen = tmp_path / "json_2.1.1" / "valid_seen"
    save(seen / "pick_and_place_simple-Apple-None-Fridge-1" / "trial_b", kitchen())
    save(seen / "pick_and_place_simple-Apple-None-Fridge-1" / "trial_a", kitchen())
    save(seen / "look_at_obj_in_light-Mug-None-DeskLamp-1" / "trial_c", kitchen(), "look_at_obj_in_light")
    # Several things are wrong with some: the first filter in the official order is the one that counts.
    (save(seen / "no_trajectory" / "trial", kitchen()).parent / "traj_data.json").unlink()
    save(seen / "pick_and_place_with_movable_recep-Apple-Bowl-Fridge-1" / "trial", {}, "other")
    save(seen / "pick_and_place_simple-AppleSliced-None-Fridge-1" / "trial", {})
    save(seen / "other-Apple-None-Fridge-1" / "trial", {}, "other").unlink()
    save(seen / "pick_and_place_simple-Mug-None-Fridge-1" / "trial", {}).unlink()
    save(seen / "pick_and_place_simple-Pen-None-Desk-1" / "trial", {**kitchen(), "solvable": False})
    save(seen / "pick_and_place_simple-Pen-None-Desk-2" / "trial", {"pddl_domain": ""})
    save(tmp_path / "json_2.1.1" / "train" / "pick_and_place_simple-Mug-None-Desk-3" / "trial", kitchen())
    return tmp_path


def test_filters_count_in_their_official_order_and_paths_are_sorted(root):
    found = list_split(str(root), "valid_seen")
    assert [file.key for file in found.files] == [
        "valid_seen/look_at_obj_in_light-Mug-None-DeskLamp-1/trial_c",
        "valid_seen/pick_and_place_simple-Apple-None-Fridge-1/trial_a",
        "valid_seen/pick_and_place_simple-Apple-None-Fridge-1/trial_b",
    ]
    assert found.rejected == {
        "known as unsolvable": 1,
        "of other task types": 1,
        "with movable receptacles or slices": 2,
        "without game.tw-pddl": 1,
        "without the key 'solvable'": 1,
        "without traj_data.json": 1,
    }


def test_a_split_of_another_size_than_the_published_one_is_said_loudly(root, capsys):
    config = alfworld.Config(data=str(root), split="valid_seen")
    assert len(alfworld.tasks(config)) == 3
    told = capsys.readouterr().err
    assert "3 games in" in told
    assert "2 with movable receptacles or slices" in told
    assert "WARNING: the published split valid_seen has 140 games, this folder gives 3" in told
    assert alfworld.benchmark(config) == "alfworld-incomplete (3 of 140)"


def test_a_complete_split_is_reported_as_alfworld(root, monkeypatch):
    monkeypatch.setattr("agentrl.envs.alfworld.data.PUBLISHED", {**PUBLISHED, "valid_seen": 3})
    config = alfworld.Config(data=str(root), split="eval_in_distribution")
    assert alfworld.benchmark(config) == "alfworld"
    assert "WARNING" not in list_split(str(root), "valid_seen").report()


@pytest.mark.parametrize("inside", ["", "json_2.1.1", "json_2.1.1/valid_seen"])
@pytest.mark.parametrize("split", ["valid_seen", "eval_in_distribution"])
def test_a_split_is_found_from_root_release_folder_or_itself_under_both_names(root, inside, split):
    assert len(alfworld.tasks(alfworld.Config(data=str(root / inside), split=split))) == 3


def test_the_environment_variable_names_the_data(root, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(root))
    tasks = alfworld.tasks(alfworld.Config(source="data", split="train"))
    assert [alfworld.kind(task) for task in tasks] == ["pick_and_place_simple"]


def test_task_types_choose_among_files(root):
    config = alfworld.Config(data=str(root), split="valid_seen", task_types=("look_at_obj_in_light",))
    assert [task.key.rpartition("/")[2] for task in alfworld.tasks(config)] == ["trial_c"]


def test_a_manifest_and_a_single_file_are_taken_at_their_word(root):
    games = root / "json_2.1.1" / "valid_seen"
    manifest = games / "panel.txt"
    manifest.write_text(
        "# a panel\npick_and_place_simple-Pen-None-Desk-1/trial/game.tw-pddl\n\n"
        "look_at_obj_in_light-Mug-None-DeskLamp-1/trial_c  # by folder\n"
    )
    keys = [task.key for task in alfworld.tasks(alfworld.Config(games=str(manifest)))]
    assert keys == [
        "pick_and_place_simple-Pen-None-Desk-1/trial",
        "look_at_obj_in_light-Mug-None-DeskLamp-1/trial_c",
    ]
    file = games / "look_at_obj_in_light-Mug-None-DeskLamp-1" / "trial_c" / "game.tw-pddl"
    [task] = alfworld.tasks(alfworld.Config(games=str(file)))
    assert task.key == "look_at_obj_in_light-Mug-None-DeskLamp-1/trial_c"
    assert alfworld.kind(task) == "look_at_obj_in_light"


def test_find_follows_a_key_into_its_split(root):
    config = alfworld.Config(data=str(root), split="valid_seen")
    for split in ("valid_seen", "train"):
        for task in alfworld.tasks(alfworld.Config(data=str(root), split=split)):
            assert alfworld.find(config, task.key) == task
    generated = alfworld.tasks(alfworld.Config(level="full", split="valid_unseen"))[7]
    assert alfworld.find(alfworld.Config(), generated.key) == generated
    with pytest.raises(ValueError, match="no game 'valid_seen/nothing' in"):
        alfworld.find(config, "valid_seen/nothing")
    with pytest.raises(ValueError, match="not a generated game: set data="):
        alfworld.find(alfworld.Config(), "valid_seen/nothing")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty: write or download it again"),
        (json.dumps(kitchen())[:400], "is not whole JSON"),
        ("nonsense", "is not whole JSON"),
        ("[1]", "holds a JSON list, expected an object"),
        ("{}", "is not an ALFWorld game: it has no text under 'pddl_domain'"),
    ],
)
def test_a_bad_game_file_is_one_sentence_with_its_name(tmp_path, text, why):
    path = tmp_path / "game.tw-pddl"
    path.write_text(text)
    config = alfworld.Config(games=str(path))
    with pytest.raises(ValueError, match=why) as caught:
        alfworld.make(config).reset(alfworld.tasks(config)[0])
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"games": "{root}/nothing"}, "no such ALFWorld game, folder or manifest: .*nothing"),
        ({"games": "{root}/empty"}, "no ALFWorld games to play: .*0 games in"),
        ({"games": "{root}/list.txt"}, r"list.txt line 2: no such game: .*missing"),
        (
            {"data": "{root}/nothing"},
            r"no ALFWorld data folder .*nothing: run pip .*alfworld-download --data-dir .*nothing to fill it",
        ),
        ({"data": "{root}/empty"}, "no ALFWorld split train in .*empty: fill it with"),
        (
            {"data": "{root}", "split": "valid_unseen"},
            "no ALFWorld split valid_unseen in .*it has train, valid_seen",
        ),
        ({"data": "{root}", "split": "test"}, "unknown ALFWorld split 'test': use one of train, valid_seen"),
        (
            {"source": "data"},
            r"run pip install 'agentrl-stepgraph\[alfworld\]' && alfworld-download --data-dir alfworld-data && export "
            r"ALFWORLD_DATA=\$PWD/alfworld-data and the same command again",
        ),
        ({"split": "test"}, "unknown ALFWorld split 'test'"),
        ({"level": "huge"}, "unknown level 'huge'"),
    ],
)
def test_games_that_cannot_be_found_say_what_to_do(root, options, why, monkeypatch):
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    (root / "empty").mkdir()
    (root / "list.txt").write_text("# two\nmissing\n")
    filled = {name: value.format(root=root) for name, value in options.items()}
    with pytest.raises(ValueError, match=why):
        alfworld.tasks(alfworld.Config(**filled))


@pytest.mark.parametrize(
    "options",
    [
        {"source": "generated", "data": "x"},
        {"source": "games"},
        {"games": "x", "data": "y"},
        {"task_types": ("dance",)},
        {"split_name": "train"},
        {"max_steps": 0},
    ],
)
def test_contradictory_options_are_refused(options):
    with pytest.raises(ValueError, match="validation error"):
        alfworld.Config(**options)


def test_a_changed_file_is_compiled_again(tmp_path):
    path = save(tmp_path, kitchen(task="put some apple on fridge"))
    assert load_game(str(path)).task == "put some apple on fridge."
    path.write_text(json.dumps(kitchen(task="put a apple in fridge")))
    assert load_game(str(path)).task == "put a apple in fridge."
    with pytest.raises(ValueError, match="cannot read the ALFWorld game"):
        read_game(tmp_path / "none")


def test_the_verbs_write_games_and_tell_of_them(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    assert write([str(tmp_path), "--split", "valid_unseen", "--level", "small", "--count", "3"]) == 0
    assert len(list_games(str(tmp_path)).files) == 3
    assert about([]) == 0
    told = capsys.readouterr().out
    assert "valid_unseen has 134 games, this folder gives 3" in told
    assert "alfworld-download" in told
    assert about([f"data={tmp_path / 'none'}"]) == 0
    assert "no ALFWorld data folder" in capsys.readouterr().out


def test_published_sizes():
    assert PUBLISHED == {"train": 3553, "valid_seen": 140, "valid_unseen": 134}


def test_nothing_here_warns_of_a_known_game(root):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = alfworld.Config(data=str(root), split="train")
        opening = alfworld.make(config).reset(alfworld.tasks(config)[0])
    assert "Your task is to: " in opening.text
