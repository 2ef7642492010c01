"""Reports on served models that think: a thought is no valid action, and a failure kind names it."""

import json
from typing import Any

import pytest

from agentrl.cli import main
from tests.evaluate.stand_in import StandIn, answer, is_probe

pytest.importorskip("openai")
WALK, SUMS = "tests.toys.walk", "tests.toys.sums"


def evaluated(capsys: pytest.CaptureFixture[str], said: Any, *words: str) -> dict[str, Any]:
    """The report on a server that gives this answer to every request."""
    made = said if isinstance(said, dict) else answer(said)
    server = StandIn(lambda body: answer("ready") if is_probe(body) else made)
    assert main(["eval", *words, "--policy", server.word, "--json"]) == 0
    server.close()
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


GAMES = [
    (["alfworld", "prompt=instruct", "--tasks", "1", "--turns", "2"], "look"),
    (["gymnasium_text", "id=FrozenLake-v1", "--tasks", "1", "--turns", "2"], "2"),
    (["sokoban", "prompt=instruct", "--tasks", "1", "--turns", "2"], "up"),
    (["code_math", "prompt=instruct", "--tasks", "1", "--turns", "2"], "run 1 + 2"),
]


@pytest.mark.parametrize(("words", "action"), GAMES, ids=lambda one: one[0] if isinstance(one, list) else "")
def test_an_action_behind_a_thought_is_valid_and_a_thought_alone_is_not(capsys, words, action):
    for said in (f"<think>\nI look first.\n</think>\n\n{action}", f"I look first.\n</think>\n\n{action}"):
        report = evaluated(capsys, said, *words)
        assert report["invalid_share"] == 0.0 and "answers.thought" not in report["failures"], said
    report = evaluated(capsys, f"<think>\nI could say\n{action}", *words)
    thought = report["failures"]["answers.thought"]
    assert report["invalid_share"] == 1.0 and thought["share"] == 1.0
    assert f"{thought['of']} of {thought['of']} answers were a thought without an action" in thought["line"]


@pytest.mark.parametrize(
    ("said", "kind", "line"),
    [
        (
            "<think>right</think>",
            "answers.thought",
            "ended by themselves, not closed or with no word behind the thought",
        ),
        ("Thought: I go right.", "answers.thought", "such as 'Thought: I go right.'"),
        (
            answer("<think>right", finish="length", tokens=512),
            "answers.thought",
            "were a thought without an action; the token limit was reached: raise limits.turn_tokens; such as '<think>",
        ),
        (
            answer([{"type": "thinking", "thinking": "right"}]),
            "answers.empty",
            "reasoning_content had text, although the answer ended by itself",
        ),
        (answer("", reasoning="right"), "answers.empty", "reasoning_content had text"),
        (answer(None, reasoning_content="right"), "answers.empty", "reasoning_content had text"),
    ],
)
def test_every_place_of_a_thought_has_a_failure_kind(capsys, said, kind, line):
    report = evaluated(capsys, said, WALK, "--turns", "2")
    assert report["invalid_share"] == 1.0 and report["success_rate"] == 0.0
    assert [name for name in report["failures"] if name.startswith("answers.")] == [kind]
    assert line in report["failures"][kind]["line"]


def test_a_pair_of_thought_and_action_is_played(capsys):
    report = evaluated(capsys, "Thought: the goal is on the right.\nAction: right", WALK)
    assert report["invalid_share"] == 0.0 and report["success_rate"] == 1.0


@pytest.mark.parametrize(
    "said", ["<think>It is 3", "[THINK]It is 3[/THINK]", "<|channel|>analysis<|message|>It is 3<|end|>"]
)
def test_a_thought_is_no_final_answer_of_a_tool_environment(capsys, said):
    report = evaluated(capsys, said, SUMS, "--tasks", "1", "--turns", "2")
    assert report["invalid_share"] == 1.0 and report["failures"]["answers.thought"]["count"] == 2


def test_a_warning_follows_an_evaluation_of_thoughts_alone(capsys):
    server = StandIn(lambda body: answer("<think>right"))
    assert main(["eval", WALK, "--turns", "2", "--policy", server.word]) == 0
    server.close()
    captured = capsys.readouterr()
    assert "answers without a valid action 100.0%" in captured.out
    assert "answers were a thought alone, so this success rate may say little" in captured.err
