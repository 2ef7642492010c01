"""Sokoban: rules and reward by hand, the solver against a plain breadth-first search, levels and players by law."""

from collections import deque
from pathlib import Path

import pytest

from agentrl.config import resolve
from agentrl.env import benchmark_of, kind_of, tasks_of
from agentrl.envs.sokoban import Config, find, make, open_level, prompt, tasks
from agentrl.envs.sokoban.files import read_levels
from agentrl.envs.sokoban.generate import SHAPES, SPLITS, Level, lost, make_level, shape_of, split_of
from agentrl.envs.sokoban.rules import Room, State, apply, draw, legal, solved
from agentrl.envs.sokoban.solver import TooHard, solve
from agentrl.gym import check_env
from agentrl.types import Status

CORRIDOR = """\
######
#@$ .#
######
"""
TWO = """\
#######
#.$@$.#
#     #
#######
"""


def level_of(text: str, folder: Path) -> Level:
    path = folder / "level.txt"
    path.write_text(text)
    return read_levels(path)[0]


def test_rewards_by_hand(tmp_path):
    env = make(Config(data=str(tmp_path / "level.txt"), prompt="compact"))
    level_of(CORRIDOR, tmp_path)
    (task,) = tasks(Config(data=str(tmp_path / "level.txt")))
    first = env.reset(task)
    assert first.text == "# # # # # #\n# P X _ O #\n# # # # # #"
    # against the wall: -0.1; a push: -0.1; a push onto the last target: -0.1 + 1 + 10.
    rewards = [env.step(action) for action in ("left", "right", "right")]
    assert [r.reward for r in rewards] == pytest.approx([-0.1, -0.1, 10.9])
    assert [r.terminated for r in rewards] == [False, False, True]
    assert rewards[-1].observation.text == "# # # # # #\n# _ _ P √ #\n# # # # # #"
    assert rewards[-1].info["success"] and rewards[-1].info["pushes"] == 2


def test_a_box_pushed_off_its_target_costs_one(tmp_path):
    level = level_of("#######\n#@*  .#\n#  $  #\n#######\n", tmp_path)
    moved = apply(level.room, level.start, "right")
    assert moved.reward == pytest.approx(-1.1) and moved.pushed


def test_what_is_no_move_changes_nothing_and_is_told(tmp_path):
    level_of(TWO, tmp_path)
    (task,) = tasks(Config(data=str(tmp_path / "level.txt")))
    env = make(Config(data=str(tmp_path / "level.txt")))
    before = env.reset(task)
    result = env.step("jump")
    assert result.observation == before and result.reward == pytest.approx(-0.1)
    assert result.info["status"] == Status.PARSE_ERROR


def test_several_moves_a_turn_end_at_the_solution(tmp_path):
    level_of(CORRIDOR, tmp_path)
    config = Config(data=str(tmp_path / "level.txt"), moves_per_turn=5)
    env = make(config)
    env.reset(tasks(config)[0])
    result = env.step("right, right, left, left")
    assert result.terminated and result.reward == pytest.approx(-0.1 + 10.9)


def test_without_the_border_the_same_room_is_drawn_smaller():
    level = make_level("sokoban-gen/6x6b1p1-3/train/0-3")
    rows = draw(*level).split("\n")
    assert draw(*level, border=False).split("\n") == [row[2:-2] for row in rows[1:-1]]


def shortest(room: Room, start: State) -> int | None:
    """Moves of the shortest solution, by plain breadth-first search over single moves."""
    seen, queue = {start}, deque([(start, 0)])
    while queue:
        state, moves = queue.popleft()
        if solved(room, state):
            return moves
        for action in legal(room, state):
            after = apply(room, state, action).state
            if after not in seen:
                seen.add(after)
                queue.append((after, moves + 1))
    return None


def fewest_pushes(room: Room, start: State) -> int | None:
    """By 0-1 breadth-first search over single moves."""
    best, queue = {start: 0}, deque([start])
    while queue:
        state = queue.popleft()
        for action in legal(room, state):
            moved = apply(room, state, action)
            cost = best[state] + moved.pushed
            if cost < best.get(moved.state, cost + 1):
                best[moved.state] = cost
                (queue.append if moved.pushed else queue.appendleft)(moved.state)
    return min((cost for state, cost in best.items() if solved(room, state)), default=None)


@pytest.mark.parametrize("level", ["easy", "medium", "hard"])
def test_the_solver_is_optimal_and_levels_are_as_graded(level):
    shape = shape_of(level)
    for task in tasks(Config(level=level, count=12)):
        room, start = open_level(task)
        moves = solve(room, start)
        assert moves is not None and len(moves) == shortest(room, start)
        state = start
        for action in moves:
            state = apply(room, state, action).state
        assert solved(room, state)
        pushes = fewest_pushes(room, start)
        assert pushes is not None and shape.fewest <= pushes <= shape.most


@pytest.mark.parametrize("seed", range(3))
def test_the_solver_finds_none_where_there_is_none(seed):
    for task in tasks(Config(level="hard", count=8, seed=seed)):
        room, state = open_level(task)
        for action in ("up", "left", "down", "right", "up", "up", "left", "left") * 2:
            state = apply(room, state, action).state
            expected = shortest(room, state)
            found = solve(room, state)
            assert (None if found is None else len(found)) == expected
            if lost(room, state):
                assert expected is None


def test_a_search_that_grows_too_large_says_so():
    room, start = make_level("sokoban-gen/8x8b3p8-30/train/0-0")
    with pytest.raises(TooHard, match="smaller room"):
        solve(room, start, limit=3)


def turned(level: Level) -> Level:
    """The level rotated by a quarter."""
    room, start = level
    move = lambda cell: (cell[1], room.height - 1 - cell[0])  # noqa: E731
    cells = [frozenset(map(move, cells)) for cells in (room.floor, room.targets, start.boxes)]
    return Level(Room(room.width, room.height, cells[0], cells[1]), State(move(start.player), cells[2]))


def test_splits_share_no_layout_not_even_turned():
    for split in SPLITS:
        for task in tasks(Config(level="easy", count=30, split=split)):
            level = open_level(task)
            assert split_of(level) == split
            assert split_of(turned(level)) == split


def test_the_same_key_is_the_same_level():
    key = "sokoban-gen/6x6b2p3-12/test/5-7"
    first = make_level(key)
    make_level.cache_clear()
    assert make_level(key) == first
    assert draw(*make_level("sokoban-gen/6x6b2p3-12/test/6-7")) != draw(*first)


def test_the_expert_wins_and_the_random_player_seldom_does():
    from agentrl.envs.sokoban import expert

    def share(name: str) -> float:
        wins = 0
        for task in tasks(Config(level="hard", count=25)):
            env = make(Config(level="hard", max_steps=40))
            observation, player = env.reset(task), expert(env, name, 0)
            player.reset(task)
            while True:
                result = env.step(player.act(observation).action)
                observation = result.observation
                if result.terminated or result.truncated:
                    break
            wins += bool(result.info["success"])
        return wins / 25

    assert share("expert") == 1.0
    assert share("random") < 0.3
    assert share("expert") > share("wander:0.5") > share("random")


@pytest.mark.parametrize("actions", ["all", "legal"])
def test_it_keeps_the_promises_of_an_environment(actions):
    options = {"name": "sokoban", "level": "hard", "moves": actions, "prompt": "compact"}
    assert check_env(resolve("envs", options), tasks=2, steps=25) == []


def test_the_released_projection():
    words = prompt(Config())
    observation = make(Config()).reset(tasks(Config())[0])
    told = words.parse("<think>go</think><action>move RIGHT now</action>", observation)
    assert told[:3] == ("right", True, Status.OK)
    assert words.parse("<action>still</action>", observation)[:3] == ("still", False, Status.PARSE_ERROR)
    assert not words.parse("up", observation).valid
    # the first of up, down, left, right, still in that order of names, not of the text, as released
    assert words.parse("<think></think><action>left then up</action>", observation).action == "up"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no Sokoban level"),
        ("######\n#@$ %#\n######\n", "line 2: '%'"),
        ("######\n# $ .#\n######\n", "0 players"),
        ("######\n#@$  #\n######\n", "1 boxes and 0 targets"),
        ("######\n#@$ . \n######\n", "not closed"),
        ("########\n#@ #$.##\n########\n", "behind walls"),
    ],
)
def test_broken_files_are_named(tmp_path, text, said):
    path = tmp_path / "levels.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=said) as error:
        read_levels(path)
    assert "\n" not in str(error.value)


def test_boxoban_files_are_read(tmp_path):
    path = tmp_path / "000.txt"
    path.write_text(f"; 0\n{CORRIDOR}\n; 1\n{TWO}")
    config = Config(data=str(tmp_path))
    listed = tasks(config)
    assert [task.key for task in listed] == ["000.txt#0", "000.txt#1"]
    assert find(config, "000.txt#1") == listed[1]
    assert fewest_pushes(*open_level(listed[1])) == 2


@pytest.mark.parametrize(
    ("level", "said"),
    [("eazy", "unknown Sokoban level"), ("3x3b1p1-2", "out of range"), ("6x6b1p4-2", "4 to 2 pushes")],
)
def test_impossible_levels_are_refused(level, said):
    with pytest.raises(ValueError, match=said):
        tasks(Config(level=level))


def test_a_level_that_cannot_be_found_says_so():
    task = tasks(Config(level="5x5b6p20-30"))[0]
    with pytest.raises(ValueError, match="larger room"):
        open_level(task)


def test_names_of_shapes_are_their_spelling():
    assert {name: shape_of(str(shape)) for name, shape in SHAPES.items()} == dict(SHAPES)


def test_its_tasks_are_listed_as_a_benchmark_of_their_own():
    entry = resolve("envs", {"name": "sokoban"})
    assert benchmark_of(entry) == "sokoban-gen"
    assert kind_of(entry, tasks_of(entry)[3]) == "6x6b1p1-3"
