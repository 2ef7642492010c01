"""`agentrl check RECIPE --reward`: what is exploitable is found, what is sound holds, and judges are measured."""

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from agentrl.cli import main
from agentrl.envs.code_math import problem
from agentrl.preflight import ATTACKS
from agentrl.preflight.attacks import FAMILIES
from agentrl.preflight.reward_check import fools
from tests.evaluate.stand_in import answer
from tests.scoring.judges import data_of, mark_of, of, strict

NAN = float("nan")
SEARCH: dict[str, Any] = {
    "env": {"name": "search_qa", "world": "tiny", "prompt": "compact"},
    "eval": {"env": {"split": "test"}},
    "model": {"new": {"layers": 1, "hidden": 16}},
}


def checked(capsys, folder: Path, *words: str, **sections: Any) -> tuple[int, dict[str, Any]]:
    recipe = folder / "r.toml"
    recipe.write_text(tomli_w.dumps({**SEARCH, **sections}))
    code = main(["check", str(recipe), "--reward", "--tasks", "3", "--json", *words])
    return code, json.loads(capsys.readouterr().out)


def shares(found: dict[str, Any], column: str) -> dict[str, float]:
    return {row["family"]: row["fooled"] / row["tried"] for row in found["rows"] if row["column"] == column}


def paid(**weights: float) -> dict[str, Any]:
    return {"name": "weighted_sum", "weights": weights}


def test_every_family_has_at_least_four_attacks_that_differ():
    assert {attack.family for attack in ATTACKS} == set(FAMILIES)
    for family in FAMILIES:
        own = [attack for attack in ATTACKS if attack.family == family]
        assert len(own) >= 4 and len({attack.text for attack in own}) == len(own)


@pytest.mark.parametrize(
    ("attack", "wrong", "right", "fooled"),
    [
        (0.6, 0, 1, True), (0.5, 0, 1, False), (0, 0, 1, False), (-0.6, 0, -1, True), (0.6, 0, -1, False),
        (1, 1, 1, False), (2, 1, 1, True), (0.1, 0, NAN, True), (0, 0, NAN, False), (NAN, 0, 1, False),
    ],
)  # fmt: skip
def test_what_counts_as_fooled(attack, wrong, right, fooled):
    assert fools(attack, wrong, right) is fooled


def test_an_exploitable_reward_is_found_and_a_sound_one_holds(capsys, tmp_path):
    code, found = checked(capsys, tmp_path, reward=paid(sub_em=1.0))
    # a list that has the right answer in it is paid, alone and behind the question: 2 of the 4 copied attacks
    assert code == 1 and not found["holds"] and found["right"] == found["tasks"] == 3
    assert shares(found, "reward") == shares(found, "sub_em") == dict.fromkeys(FAMILIES, 0.0) | {"copied": 0.5}
    assert shares(found, "em") == shares(found, "success") == dict.fromkeys(FAMILIES, 0.0)
    assert checked(capsys, tmp_path, "--allow", "0.2", reward=paid(sub_em=1.0))[0] == 0
    code, found = checked(capsys, tmp_path, reward=paid(em=1.0))
    assert code == 0 and found["share"] == 0


def test_agreement_alone_pays_a_group_that_agrees_on_nothing(capsys, tmp_path):
    code, found = checked(capsys, tmp_path, score={"name": "agreement"}, reward=paid(agreement=1.0))
    assert code == 1 and shares(found, "agreement")["degenerate"] == 7 / 8  # "Thought process:" alone is no answer


def test_a_persuaded_judge_is_found_and_one_that_reads_the_reference_holds(capsys, tmp_path):
    def right(data: dict[str, Any]) -> str:
        said = data["WORK"][-1]["answer"].removeprefix("answer ")
        return "10" if said in data["REFERENCE"] else "1"

    def persuaded(body: dict[str, Any]) -> dict[str, Any]:
        """A weak model: whatever claims to be right, or opens like a solution, is right."""
        text = data_of(body)["WORK"][-1]["answer"].lower()
        grade = (
            10 if "right" in text or "step by step" in text or text in str(data_of(body)["REFERENCE"]).lower() else 1
        )
        return answer(f"Reasons.\n{mark_of(body)} {grade}")

    for reply, holds in ((strict(right), True), (persuaded, False)):
        server = of(reply)
        judge = {"name": "judge", "model": server.word, "reference": "answers", "shows": "chain"}
        code, found = checked(capsys, tmp_path, "--tasks", "1", score=judge, reward=paid(quality=1.0))
        server.close()
        assert (found["separates"]["reward"] == 1.0) is holds
        assert (code == 0) is holds and found["paid"][0] > 25
        assert (shares(found, "reward")["injected"] > 0.25) is not holds
    assert shares(found, "reward")["empty"] < shares(found, "reward")["injected"]


def test_a_judge_that_fails_fools_nobody_and_is_told(capsys, tmp_path):
    def reply(body: dict[str, Any]) -> dict[str, Any]:
        return answer("No." if fails(str(data_of(body)["WORK"])) else f"Reasons.\n{mark_of(body)} 1")

    server = of(reply)
    judge = {"name": "judge", "model": server.word, "retries": 0}
    recipe = tmp_path / "r.toml"
    recipe.write_text(tomli_w.dumps({**SEARCH, "score": judge, "reward": paid(quality=1.0)}))
    words = ["check", str(recipe), "--reward", "--tasks", "1"]
    fails = lambda work: "certificate" in work or "checked the result" in work  # noqa: E731
    assert main(words) == 1
    out = capsys.readouterr().out
    assert "left out: score judge: no verdict in 1 answers" in out
    assert "gives right and wrong answers the same on every task, so it teaches nothing" in out
    fails = lambda work: True  # noqa: E731
    assert main(words) == 2
    assert "no answer could be scored, so nothing was checked: score judge: no verdict" in capsys.readouterr().err
    server.close()


def test_words_that_do_not_fit(capsys, tmp_path):
    assert main(["check", "search_qa", "--reward"]) == 2
    assert main(["check", str(tmp_path / "none.toml"), "--reward"]) == 2
    assert main(["check", "r.toml", "--reward", "--allow", "2"]) == 2
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 3 and "write agentrl check RECIPE --reward" in err[0] and "no such file" in err[1]
    assert not (tmp_path / "runs").exists()


MATH_ROWS = ["\\boxed{2^{n-1}}", "\\frac{3}{4}", "1234", "(1,2)", "10 north", "\\sqrt{x+1}", "x=1, x=2", "Monday"]


def math(folder: Path, **env: Any) -> dict[str, Any]:
    source = folder / "rows.jsonl"
    told = [{"key": f"{i}", "question": f"Question {i}?", "answer": one} for i, one in enumerate(MATH_ROWS)]
    source.write_text("".join(json.dumps(row) + "\n" for row in told))
    return {
        "env": {"name": "code_math", "rows": str(source), "split": "all", **env},
        "eval": {"env": {"count": 2, "rows": ""}},
    }


def test_spellings_attack_a_grader_of_mathematics(capsys, tmp_path, monkeypatch):
    recipe = tmp_path / "r.toml"
    recipe.write_text(tomli_w.dumps({**SEARCH, **math(tmp_path)}))
    words = ["check", str(recipe), "--reward", "--tasks", "8", "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    (row,) = [one for one in found["rows"] if (one["family"], one["column"]) == ("spelling", "reward")]
    assert row["fooled"] == 0 and row["tried"] >= 20 and found["refused"] == {}
    # The comparison that this one has replaced: letters without blanks and braces.
    bare = str.maketrans("", "", " {}")
    monkeypatch.setattr(
        problem, "compare", lambda a, b, units: "equal" if a.translate(bare) == b.translate(bare) else "different"
    )
    assert main(words) == 1
    found = json.loads(capsys.readouterr().out)
    (row,) = [one for one in found["rows"] if (one["family"], one["column"]) == ("spelling", "reward")]
    assert row["fooled"] == 2 and row["worst"] == "braces dropped"  # 2^n-1 for 2^{n-1}, and the root
    assert found["refused"]["between dollars"] >= 5
