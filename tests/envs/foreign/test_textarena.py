"""The genuine package TextArena: a game of two by self-play, a puzzle, and what is refused."""

import asyncio
import json

import pytest

from agentrl.cli import main
from agentrl.config import resolve
from agentrl.env import Limits, make_pool, tasks_of
from agentrl.graph import read_graph
from agentrl.gym import check_env
from agentrl.rollout import PlayerFactory, PolicyActor, Random, play
from agentrl.settings import agent_sections, resolve_agents
from agentrl.types import AgentReply, EnvFault, Status

pytestmark = [pytest.mark.slow, pytest.mark.foreign, pytest.mark.timeout(1200)]  # processes on a busy machine


def entry(python: str, **options):
    return resolve("envs", {"name": "textarena", "python": python, **options}, "env")


def started(found, index: int = 0):
    env = found.hooks.make(found.config)
    return env, env.reset(tasks_of(found)[index])


def answer(text: str) -> tuple[AgentReply, ...]:
    return (AgentReply(text, Status.DONE),)


@pytest.mark.parametrize("options", [{}, {"game": "GuessTheNumber-v0"}])
def test_it_keeps_the_promises_of_an_environment(textarena, options):
    assert check_env(entry(textarena, **options), tasks=2, steps=6) == []


def test_a_game_of_two(textarena):
    env, seen = started(entry(textarena))
    assert seen.actions == tuple(f"[{i}]" for i in range(9)) and "You are Player 0" in seen.text
    called = env.step("[0]").info["errands"]
    assert [one.agent for one in called] == ["opponent"]
    shown = called[0].task.params["shown"]
    assert "You are Player 1" in shown["text"] and shown["actions"] == [f"[{i}]" for i in range(1, 9)]
    assert "cell 4" in env.returned(answer("[4]")).observation.text
    second = env.step("1").info["errands"][0].task.params["shown"]  # brackets are added, as the package does
    assert "You are Player 1" in second["text"] and "[Player 1] [4]" in second["text"]  # all that it has seen
    assert "errands" not in env.returned(answer("[5]")).info
    refused = env.step("[0]")
    assert refused.info["status"] == Status.PARSE_ERROR and "already occupied" in refused.observation.text
    won = env.step("[2]")
    assert (won.reward, won.terminated, won.info["success"]) == (1.0, True, True)
    assert won.info["signals"] == {"won": 1.0, "drawn": 0.0, "invalid": 0.0}


def test_the_second_seat_and_a_game_lost_by_refused_moves(textarena):
    env, seen = started(entry(textarena, seat="both"), 1)
    assert seen.actions == ("[ready]",) and env.step("anything").info["errands"]
    assert "You are Player 1" in env.returned(answer("[4]")).observation.text
    assert env.step("no").info["status"] == Status.PARSE_ERROR
    lost = env.step("no")
    assert (lost.reward, lost.info["success"], lost.info["signals"]["invalid"]) == (-1.0, False, 1.0)


def test_refused_moves_of_the_opponent_win_and_its_faults_do_not(textarena):
    found = entry(textarena)
    env, _ = started(found)
    env.step("[0]")
    assert "errands" in env.returned(answer("no")).info  # it may try once more
    assert env.returned(answer("no")).reward == 1.0
    env.reset(tasks_of(found)[0])
    env.step("[0]")
    undecided = env.returned((AgentReply("", Status.ENV_ERROR),))
    assert (undecided.reward, undecided.terminated, undecided.truncated) == (0.0, False, True)


def test_equal_boards_have_equal_states(textarena):
    keys = []
    for moves in (("[0]", "[4]", "[1]", "[5]"), ("[1]", "[5]", "[0]", "[4]"), ("[0]", "[4]", "[2]", "[5]")):
        env, _ = started(entry(textarena))
        for mine, other in zip(moves[::2], moves[1::2], strict=True):
            env.step(mine)
            seen = env.returned(answer(other)).observation
        keys.append(seen.state_key)
    assert keys[0] == keys[1] != keys[2]


def test_self_play_is_in_one_step_graph(textarena):
    found = entry(textarena, seat="both", count=6)
    agents = resolve_agents(
        found, resolve("context", {"name": "full"}), Limits(turns=12), "random", agent_sections(found, {})
    )
    assert set(agents) == {"main", "opponent"} and not agents["opponent"].trained
    pools = {name: make_pool(one.env) for name, one in agents.items()}
    try:
        crew = PlayerFactory(agents, pools, admissible=True, seed=0)
        actors = {name: PolicyActor(Random(one.prompt), None, None) for name, one in agents.items()}
        played = asyncio.run(play(crew.player(actors), tasks_of(found)))
    finally:
        for pool in pools.values():
            pool.close()
    assert len(played) == 6
    for rollout in played:
        main, *called = rollout.chains()
        assert main.ending == Status.DONE and main.score in (-1.0, 0.0, 1.0)
        assert len(called) >= 2 and all(chain.ending == Status.DONE and len(chain.steps) == 1 for chain in called)


def test_the_recipe_trains(textarena, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [f"env.python={textarena}", "env.count=40", "run.iterations=1", "run.graphs_every=1", "warmup.updates=1"]
    words += ["warmup.episodes=8", "batch.tasks=2", "batch.copies=4", "eval.tasks=4", "update.old_logprob=trainer"]
    assert main(["train", "textarena-cpu", *words]) == 0
    run = tmp_path / "runs" / "textarena-cpu"
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    (trained,) = (one for one in metrics if one["stage"] == "train")
    assert trained["mismatch_max"] < 1e-3 and trained["packed_tokens"] > 0
    (graph,) = (read_graph(file) for file in (run / "graphs").glob("*.safetensors"))
    agents = [graph.names["agent"][number] for number in graph.agent]
    played = {name: sum(agent == name for agent in agents) for name in ("main", "opponent")}
    assert min(played.values()) > 8 and (graph.caller[[agent == "opponent" for agent in agents]] >= 0).all()
    assert trained["steps"] * trained["episodes"] == played["main"]  # the opponent's turns are in no statistic of main
    assert trained["tokens"] < trained["generated_tokens"]  # nor are its tokens trained


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"game": "TicTacTo-v0"}, "env.game: textarena has no game 'TicTacTo-v0': did you mean TicTacToe-v0"),
        (
            {"game": "Debate-v0"},
            "env.game = 'Debate-v0' cannot be started: OpenRouter API key not found",
        ),
        (
            {"players": 3},
            "env.game = 'TicTacToe-v0' cannot be started with 3 players: The number of players has to be 2",
        ),
        ({"game": "2048-v0", "seat": "both"}, "env.seat = 'both': 2048-v0 has one player: leave seat out"),
    ],
)
def test_a_mistake_is_one_sentence(textarena, options, sentence):
    with pytest.raises(ValueError) as error:
        tasks_of(entry(textarena, **options))
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_games_for_more_players_start_without_an_option(textarena):
    """Three are the fewest players of this game, and two seats are called between two turns of `main`."""
    found = entry(textarena, game="ThreePlayerTicTacToe-v0")
    env = found.hooks.make(found.config)
    seen = env.reset(tasks_of(found)[0])
    assert "Player 0" in seen.text and env.step(seen.actions[0] if seen.actions else "[0]").info["errands"]


def test_a_reward_that_is_no_number_is_a_fault_of_the_episode(textarena):
    """Countdown of 0.7.4 exchanges the arguments of `set_invalid_move`, so a text stands in the place of the reward."""
    found = entry(textarena, game="Countdown-v0")
    env = found.hooks.make(found.config)
    env.reset(tasks_of(found)[0])
    env.step("x")
    with pytest.raises(EnvFault, match="PackageError: the game gives a reward that is no number: 'Invalid action"):
        env.step("x")
