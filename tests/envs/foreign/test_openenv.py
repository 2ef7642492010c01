"""Servers of the genuine package OpenEnv, played through the package's own client."""

import asyncio
import json
import os
import random
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentrl.cli import main
from agentrl.config import resolve
from agentrl.env import Limits, make_pool, tasks_of
from agentrl.gym import check_env
from agentrl.rollout import Player, PolicyActor, Random, play
from agentrl.tool import action as tool_action
from agentrl.tool_env import ToolWords
from agentrl.types import EnvFault, Status

pytestmark = [pytest.mark.slow, pytest.mark.foreign, pytest.mark.timeout(1200)]  # processes on a busy machine
SERVERS = Path(__file__).parent / "servers"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def serving(*words: object, port: int = 0, **variables: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of a server, a process of its own; PORT among the words becomes its port."""
    port = port or free_port()
    command = [str(port) if word == "PORT" else str(word) for word in words]
    with subprocess.Popen(command, env={**os.environ, **variables}) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            for _ in range(600):
                assert server.poll() is None, f"the server has ended: {command}"
                try:
                    urllib.request.urlopen(f"{url}/schema", timeout=5).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield url, server
        finally:
            server.kill()


def entry(python: str, url: str, **options):
    return resolve("envs", {"name": "openenv", "python": python, "url": url, "count": 50, **options}, "env")


@pytest.fixture(scope="module")
def guess(openenv) -> Iterator[str]:
    """The address of a server of a guessing game."""
    with serving(openenv, SERVERS / "oe_guess.py", "PORT", 8) as (url, _):
        yield url


@pytest.fixture(scope="module")
def ledger(openenv) -> Iterator[str]:
    """The address of a server whose actions are calls of tools."""
    with serving(openenv, SERVERS / "oe_tools.py", "PORT", 8) as (url, _):
        yield url


def played(found, *actions: str):
    """The first observation and the results of an episode of the first task."""
    env = found.hooks.make(found.config)
    try:
        return env.reset(tasks_of(found)[0]), [env.step(action) for action in actions]
    finally:
        env.close()


def test_the_packages_own_example_keeps_the_promises(openenv, tmp_path):
    """`openenv init` writes it; two sessions instead of its one, because the check compares two instances."""
    command = Path(openenv).with_name("openenv")
    subprocess.run([command, "init", "echo_env"], cwd=tmp_path, check=True, capture_output=True)
    app = tmp_path / "echo_env" / "server" / "app.py"
    app.write_text(app.read_text().replace("max_concurrent_envs=1", "max_concurrent_envs=2"))
    words = (openenv, "-m", "uvicorn", "echo_env.server.app:app", "--port", "PORT", "--log-level", "warning")
    with serving(*words, PYTHONPATH=str(tmp_path)) as (url, _):
        found = entry(openenv, url)
        assert check_env(found, tasks=2) == []
        seen, (result,) = played(found, "hello")
        assert seen.text == "echoed_message: Echo Env environment ready!\nmessage_length: 0"
        assert result.observation.text == "echoed_message: hello\nmessage_length: 5"
        assert (result.reward, result.terminated, seen.state_key) == (0.5, False, "")
        assert played(entry(openenv, url, text=["echoed_message"]), "hello")[1][0].observation.text == "hello"


def test_it_keeps_the_promises_of_an_environment(openenv, guess):
    assert check_env(entry(openenv, guess), tasks=2) == []


def test_tools_keep_the_promises_of_an_environment(openenv, ledger):
    assert check_env(entry(openenv, ledger), tasks=2) == []


def test_the_seed_reaches_the_server_and_each_seed_is_one_task(openenv, guess):
    found = entry(openenv, guess, reset={"top": 3})
    assert [task.seed for task in tasks_of(found)] == list(range(50))
    assert tasks_of(entry(openenv, guess, split="test"))[0].seed == 1 << 30
    numbers = []
    for task in tasks_of(found)[:8]:
        env = found.hooks.make(found.config)
        assert env.reset(task).actions == ("0", "1", "2", "3")
        numbers.append(next(number for number in range(4) if env.step(str(number)).terminated))
        env.close()
    assert numbers == [random.Random(seed).randint(0, 3) for seed in range(8)]
    assert found.hooks.kind(tasks_of(found)[0]) == "GuessEnv"
    assert found.hooks.facts(found.config)["seeds"] == "the same start again; every seed, the same start"


def test_rewards_ends_and_states_are_the_servers(openenv, guess):
    found = entry(openenv, guess)  # the first task draws 6
    seen, (low, high, right, after) = played(found, "2", "8", "6", "6")
    assert json.loads(seen.state_key) == [seen.text, {"high": 9, "low": 0}]
    assert (low.reward, low.observation.text, low.observation.actions[0]) == (-0.1, "Higher.", "3")
    assert json.loads(high.observation.state_key) == ["Lower.", {"high": 7, "low": 3}]
    assert (right.reward, right.terminated, right.info["success"]) == (1.0, True, True)
    assert after.terminated and after.reward == 0.0
    named = entry(openenv, guess, state_fields=["low"])
    assert json.loads(played(named, "2")[1][0].observation.state_key) == {"low": 3}


def test_an_action_that_does_not_fit_is_a_parse_error_and_the_episode_goes_on(openenv, guess, ledger):
    _, (words, fraction, right) = played(entry(openenv, guess), "six", "6.5", "6")
    assert words.info["status"] == fraction.info["status"] == Status.PARSE_ERROR and words.reward == 0.0
    assert words.observation.text.startswith("error: write ") and right.info["success"] is True
    as_json = entry(openenv, guess, field="why")  # the required field is left out, which the server finds
    assert "does not fit this schema" in played(as_json, "because")[1][0].observation.text
    _, (failed, malformed) = played(
        entry(openenv, ledger), tool_action.call("add", amount="much"), '{"calls": [{"error": "no JSON"}]}'
    )
    assert failed.info["status"] == Status.TOOL_ERROR and failed.observation.text.startswith("error: ")
    assert malformed.info["status"] == Status.PARSE_ERROR and malformed.observation.text == "error: no JSON"


def test_an_action_of_several_fields_is_json(openenv):
    with serving(openenv, SERVERS / "oe_dice.py", "PORT", 2) as (url, _):
        with pytest.raises(ValueError, match="gives another start each time the same seed is given"):
            tasks_of(entry(openenv, url))
        found = entry(openenv, url, unseeded=True, solved=0.5)
        _, (word, negative, sums) = played(found, "[1]", '{"left": -1, "right": 2}', '{"left": 1, "right": 2}')
        assert word.info["status"] == negative.info["status"] == Status.PARSE_ERROR
        assert "write one JSON object" in word.observation.text and '"minimum": 0' in negative.observation.text
        assert (sums.observation.text, sums.reward, sums.info["success"]) == ("3", 0.5, True)
        assert '"left"' in found.hooks.prompt(found.config).system
        assert found.hooks.facts(found.config)["seeds"].startswith("another start each time")
        assert any("differs at step 0" in finding for finding in check_env(found, tasks=1))
        fixed = entry(openenv, url, unseeded=True, fixed={"left": 4})
        assert played(fixed, "3")[1][0].observation.text == "7"


def test_tools_are_listed_and_called(openenv, ledger):
    found = entry(openenv, ledger)
    assert isinstance(found.hooks.prompt(found.config), ToolWords)
    both = tool_action.calls([("add", {"amount": 1}), ("add", {"amount": 2})])
    seen, (result,) = played(found, both)
    assert seen.text == "Bring the account to 3." and seen.tools[0]["function"]["name"] == "add"
    assert result.observation.text == "The account holds 1.\nThe account holds 3."
    assert (result.reward, result.terminated, result.info["success"]) == (1.0, True, True)
    _, (refused, ended) = played(found, tool_action.call("add", amount=-1), tool_action.answer("enough"))
    assert refused.info["status"] == Status.TOOL_ERROR and "no amount below 0" in refused.observation.text
    assert (ended.terminated, ended.info["success"]) == (True, False)


@pytest.mark.parametrize(
    ("why", "sentence"),
    [
        ("crash", "answered step: Server error: the disk is gone (code: EXECUTION_ERROR)"),
        ("sleep", "gave no answer to step in 2 s"),
    ],
)
def test_a_failing_server_costs_its_episode_and_says_why(openenv, guess, why, sentence):
    found = entry(openenv, guess, fixed={"why": why}, field="number", answer_s=2)
    with pytest.raises(EnvFault) as error:
        played(found, "1")
    assert sentence in str(error.value) and guess in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("not JSON", "answered reset with what OpenEnv does not know: Expecting value"),
        ("[1]", "answered reset with what OpenEnv does not know"),
        ('{"type": "weather", "data": {}}', "no answer of the type observation"),
        ('{"type": "observation", "data": {"observation": "x"}}', "no observation"),
        ('{"type": "observation", "data": {"observation": {}, "reward": "1"}}', "gave the reward '1'"),
        ('{"type": "observation", "data": {"observation": {}, "reward": NaN}}', "gave the reward nan, which is no"),
        ('{"type": "observation", "data": {"observation": {}, "done": "no"}}', "done = 'no', which is no bool"),
        ("nothing", "gave no answer to reset in 2 s"),
        ("hang up", "was lost in reset: ConnectionClosed"),
    ],
)
def test_nonsense_is_one_sentence(openenv, answer, sentence):
    with serving(openenv, SERVERS / "oe_nonsense.py", "PORT", answer) as (url, _):
        found = entry(openenv, url, unseeded=True, answer_s=2)
        env = found.hooks.make(found.config)
        with pytest.raises(EnvFault) as error:
            env.reset(tasks_of(found)[0])
        assert sentence in str(error.value) and "\n" not in str(error.value)
        with pytest.raises(ValueError, match=r"^openenv: ServerFault: http://"):
            tasks_of(entry(openenv, url, answer_s=2))


def test_an_episode_ends_with_its_session_and_never_goes_on_in_another_one(openenv):
    """The package's client connects again by itself: the next guess would be answered by a new game."""
    port = free_port()
    with serving(openenv, SERVERS / "oe_guess.py", "PORT", 2, port=port) as (url, _):
        found = entry(openenv, url, answer_s=5)
        env = found.hooks.make(found.config)
        env.reset(tasks_of(found)[0])
        assert env.step("2").observation.text == "Higher."
    with serving(openenv, SERVERS / "oe_guess.py", "PORT", 2, port=port):
        with pytest.raises(EnvFault, match="was lost in step"):
            env.step("3")
        assert env.reset(tasks_of(found)[0]).actions[0] == "0"


def test_episodes_share_the_sessions_of_a_server(openenv):
    """Eight copies and two sessions: a limit ends each episode, and the others wait for its session."""
    with serving(openenv, SERVERS / "oe_guess.py", "PORT", 2) as (url, _):
        found = entry(openenv, url, reset={"top": 1000}, answer_s=20)
        pool, words = make_pool(found), found.hooks.prompt(found.config)
        player = Player(
            actor=PolicyActor(Random(words), None, None),
            pool=pool,
            prompt=words,
            context=resolve("context", {"name": "full"}),
            limits=Limits(turns=3, concurrency=8),
            admissible=True,
        )
        try:
            rollouts = asyncio.run(play(player, [tasks_of(found)[0]] * 8))
        finally:
            pool.close()
        chains = [chain for rollout in rollouts for chain in rollout.chains()]
        assert len(chains) == 8 and {chain.ending for chain in chains} == {Status.TURN_LIMIT}
        held = [found.hooks.make(found.config) for _ in range(3)]
        few = entry(openenv, url, answer_s=2)
        for env in held[:2]:
            env.reset(tasks_of(found)[0])
        last = few.hooks.make(few.config)
        with pytest.raises(EnvFault, match="no session became free in 2 s; start the server with more"):
            last.reset(tasks_of(found)[0])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"url": ""}, "env.url is empty: give the address of an OpenEnv server"),
        ({"url": "localhost"}, "env.url = 'localhost' is no address of a server: write http://HOST:PORT"),
        ({"url": "http://127.0.0.1:9"}, "env.url = 'http://127.0.0.1:9': no OpenEnv server answers there"),
        ({"field": "numbr"}, "env.field or env.fixed: the server's action has no field 'numbr': number, why"),
        ({"text": ["board"]}, "env.text: the server gives no field 'board', but metadata, text, actions"),
        ({"state_fields": ["board"]}, "env.state_fields: the server gives no field 'board'"),
        ({"token_variable": "NO_SUCH"}, "env.token_variable = 'NO_SUCH': this environment variable is not set"),
        ({"reset": {"top": "many"}}, "answered reset: Server error"),
        ({"reset": {"seed": 3}}, "env.reset has a seed: each task brings its own; leave it out"),
    ],
)
def test_a_mistake_is_one_sentence(openenv, guess, options, sentence):
    with pytest.raises(ValueError) as error:
        tasks_of(entry(openenv, **{"url": guess, **options}))
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_an_evaluation_from_the_command_line(openenv, guess, tmp_path, capsys):
    words = [f"python={openenv}", f"url={guess}", "count=4", "--tasks", "4", "--json"]
    assert main(["eval", "openenv", *words, "--policy", "random"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["episodes"] == 4 and found["success_rate"] == 1.0 and found["facts"]["openenv"]


def test_the_recipe_trains(openenv, guess, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [f"env.python={openenv}", f"env.url={guess}", "env.count=20", "run.iterations=1", "warmup.updates=1"]
    words += ["warmup.episodes=8", "batch.tasks=2", "batch.copies=2", "eval.tasks=2", "limits.turns=4"]
    assert main(["train", "openenv-cpu", *words]) == 0
    metrics = [json.loads(line) for line in (tmp_path / "runs/openenv-cpu/metrics.jsonl").read_text().splitlines()]
    trained = next(one for one in metrics if one.get("optimizer_steps"))
    assert trained["packed_tokens"] > 0 and trained["grad_norm"] > 0
    assert metrics[-1]["benchmark"] == "openenv GuessEnv" and metrics[-1]["env_errors"] == 0
