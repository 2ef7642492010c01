"""No action is paid that is none: at least 24 tries against each environment that pays for a state of its own."""

from importlib.util import find_spec

import pytest

from agentrl import catalogue
from agentrl.config import resolve
from agentrl.env import tasks_of
from agentrl.types import StepResult
from tests.hacks.actions import ACTIONS, action

OPTIONS = {
    "alfworld": {},
    "desk": {},
    "notes": {"pages": 2},
    "sokoban": {},
    "sql": {},
    "webshop": {},
}
ELSEWHERE = {  # where the tries against the other environments are
    "calculator": "test_answers.py",
    "code_math": "test_answers.py",
    "code_pair": "test_code.py",
    "code_repair": "test_code.py",
    "code_repo": "test_code_repo.py",
    "code_test": "test_code.py",
    "desk_user": "pays nothing: an episode is one message of a customer",
    "deep_research": "test_answers.py",
    "search_qa": "test_answers.py",
    "gymnasium_text": "pays what a wrapped environment pays",
    "inspect_ai": "pays what a task's scorers pay; see docs/foreign.md",
    "openenv": "pays what a server pays; see docs/foreign.md",
    "reasoning_gym": "pays what the package's verifiers pay; see docs/foreign.md",
    "textarena": "tests/envs/foreign/test_textarena.py",
    "textworld": "test_textworld_pays_no",
    "verifiers": "pays what a taskset's rewards pay; see docs/foreign.md",
}


def tried(name: str, hack: str, **options: object) -> list[StepResult]:
    """The results of a hack as the first action, and as the second after a real one that does not end the episode."""
    entry = resolve("envs", {"name": name, **OPTIONS.get(name, {}), **options})
    task = tasks_of(entry)[0]
    results = []
    for before in (False, True):
        env = entry.hooks.make(entry.config)
        seen = env.reset(task)
        if before and seen.actions:
            real = env.step(seen.actions[-1])
            seen = real.observation
            if real.terminated:
                continue
        results.append(env.step(action(hack, seen.task, seen.text, seen.actions)))
        env.close()
    return results


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("hack", ACTIONS)
def test_pays_no(name, hack):
    for result in tried(name, hack):
        assert result.reward <= 0 and not result.info.get("success")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("textworld") is None, reason="needs textworld")
@pytest.mark.parametrize("hack", ACTIONS)
def test_textworld_pays_no(hack, tmp_path_factory):
    cache = tmp_path_factory.getbasetemp() / "games"
    for result in tried("textworld", hack, cache=str(cache), rooms=2, objects=3, quest_length=2):
        assert result.reward <= 0 and not result.info.get("success")


def test_every_environment_has_its_tries():
    assert {*OPTIONS, *ELSEWHERE} == set(catalogue.names("envs")) and len(ACTIONS) >= 24
