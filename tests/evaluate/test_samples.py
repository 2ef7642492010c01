"""pass@k, majority@k, cost curves and the minimum detectable effect: by hand, by laws, against slow loops and SciPy."""

import itertools
import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
from scipy import stats as scipy

from agentrl.cli import main
from agentrl.evaluate import (
    Sample,
    compare,
    majority_at_k,
    minimum_detectable,
    pass_at_k,
    sample_summary,
    samples_of_graph,
    wilson,
)
from agentrl.evaluate.samples import cost_curve, pass_curve, powers_to
from agentrl.graph import write_graph
from agentrl.rollout import build_graph
from agentrl.types import Status
from tests.rollout.test_records import A, B, episode, step


def test_pass_at_k_by_hand():
    # 2 right of 5: all 3 samples wrong in C(3, 3) / C(5, 3) = 1 of 10 subsets; both wrong in 3 of 10 pairs
    assert pass_at_k(5, 2, 3) == pytest.approx(0.9) and pass_at_k(5, 2, 2) == pytest.approx(0.7)
    assert pass_at_k(5, 2, 1) == pytest.approx(0.4) and pass_at_k(5, 2, 4) == 1 and pass_at_k(5, 0, 5) == 0
    assert pass_at_k(100_000, 1, 50_000) == pytest.approx(0.5)  # no overflow
    for n, c, k in ((5, 2, 0), (5, 2, 6), (5, 6, 1)):
        with pytest.raises(ValueError, match=f"pass@{k} needs"):
            pass_at_k(n, c, k)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_pass_at_k_against_every_subset_and_as_a_law(n):
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        subsets = list(itertools.combinations(range(n), k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(min(s) < c for s in subsets) / len(subsets))
        if k > 1:
            assert pass_at_k(n, c, k) >= pass_at_k(n, c, k - 1) - 1e-12


@pytest.mark.parametrize("k", [1, 2, 4])
def test_pass_at_k_is_unbiased(k):
    """The mean over what n = 6 samples of a coin may show is 1 - (1 - p)^k, whatever p is."""
    for p in (0.1, 0.5, 0.8):
        mean = sum(scipy.binom.pmf(c, 6, p) * pass_at_k(6, c, k) for c in range(7))
        assert mean == pytest.approx(1 - (1 - p) ** k)


def test_majority_at_k_by_hand():
    answers, right = ["a", "b", "b"], [True, False, False]
    assert majority_at_k(answers, right, 1) == pytest.approx(1 / 3)
    # ab and ab are ties, worth one half each; bb is wrong
    assert majority_at_k(answers, right, 2) == pytest.approx(1 / 3)
    assert majority_at_k(answers, right, 3) == 0
    assert (
        majority_at_k(["a", "", ""], [True, False, False], 3) == 1 and majority_at_k(["", ""], [False, False], 2) == 0
    )
    # of one answer that is right in one of two samples, one half counts
    assert majority_at_k(["a", "a"], [True, False], 2) == 0.5
    with pytest.raises(ValueError, match="majority@4 needs"):
        majority_at_k(answers, right, 4)


@pytest.mark.parametrize("seed", range(10))
def test_majority_laws(seed):
    rng = random.Random(seed)
    answers = rng.choices("abc", k=7)
    right = [one == "a" for one in answers]
    assert majority_at_k(answers, right, 1) == pytest.approx(sum(right) / 7)  # majority@1 is pass@1
    order = rng.sample(range(7), 7)
    again = majority_at_k([answers[i] for i in order], [right[i] for i in order], 3)
    assert majority_at_k(answers, right, 3) == pytest.approx(again)
    assert 0 <= majority_at_k(answers, right, 5) <= pass_at_k(7, sum(right), 5) + 1e-12
    # beyond 2000 subsets they are drawn: near the whole mean, and the same for the same seed
    many, good = answers * 4, right * 4
    drawn = majority_at_k(many, good, 5, seed=seed)
    assert drawn == majority_at_k(many, good, 5, seed=seed)
    other = [majority_at_k(many, good, 5, seed=100 + s) for s in range(3)]
    assert drawn == pytest.approx(np.mean(other), abs=0.06)


def samples(*outcomes: tuple[str, bool], **more) -> list[Sample]:
    return [Sample(task=task, success=won, answer=f"{won}", **more) for task, won in outcomes]


def test_a_curve_by_hand():
    got = samples(("x", True), ("x", False), ("y", False), ("y", False), ("y", False))
    curve = pass_curve(got)
    assert list(curve) == ["1", "2"]  # task x has two samples
    assert curve["1"]["pass"] == 0.25 and curve["2"]["pass"] == 0.5 and curve["2"]["tasks"] == 2
    assert curve["2"]["majority"] == 0.25  # a tie in x, and no right answer in y
    assert curve["1"]["interval"][0] == 0 and pass_curve(got, [3])["3"]["tasks"] == 1
    assert powers_to(6) == [1, 2, 4, 6] and powers_to(1) == [1] and powers_to(0) == []
    unknown = [Sample(task="x", success=True)]
    assert "majority" not in pass_curve(unknown)["1"] and pass_curve([]) == {}


def test_costs_by_hand():
    got = [Sample(task="x", success=won, tokens=n) for won, n in ((True, 10), (False, 20), (True, 30), (True, 40))]
    assert cost_curve(got, "tokens", 4) == [
        {"budget": 10, "success": 0.25, "within": 0.25}, {"budget": 20, "success": 0.25, "within": 0.5},
        {"budget": 30, "success": 0.5, "within": 0.75}, {"budget": 40, "success": 0.75, "within": 1.0},
    ]  # fmt: skip
    whole = sample_summary(got)
    assert whole["per_success"] == {"tokens": pytest.approx(100 / 3)} and list(whole["costs"]) == ["tokens"]
    assert cost_curve(got, "price") == [] and cost_curve([], "tokens") == []


@pytest.mark.parametrize("seed", range(10))
def test_a_cost_curve_rises_to_the_success_rate(seed):
    rng = np.random.default_rng(seed)
    got = [Sample(task="x", success=bool(rng.random() < 0.4), actions=int(rng.integers(1, 9))) for _ in range(30)]
    curve = cost_curve(got, "actions")
    rates = [at["success"] for at in curve]
    assert rates == sorted(rates) and rates[-1] == pytest.approx(sum(one.success for one in got) / 30)
    for at in curve:  # slow loop
        assert at["success"] == pytest.approx(sum(one.success and one.actions <= at["budget"] for one in got) / 30)


def test_the_minimum_detectable_effect_is_what_a_simulation_finds():
    # Two policies that win 50% and 50% + effect, independently: 8 of 10 z-tests find the effect
    rng, n = np.random.default_rng(0), 400
    base = (rng.random((1, n)) < 0.5).astype(float) - (rng.random((1, n)) < 0.5)
    effect = minimum_detectable(base[0])
    found = 0
    for _ in range(2000):
        d = (rng.random(n) < 0.5 + effect / 2).astype(float) - (rng.random(n) < 0.5 - effect / 2)
        found += abs(d.mean()) > 1.96 * d.std(ddof=1) / math.sqrt(n)
    assert 0.77 <= found / 2000 <= 0.83


def test_the_minimum_detectable_effect_by_hand_and_its_laws():
    d = np.array([1.0, -1.0, 0.0, 0.0])  # variance 2 / 3, so (1.96 + 0.8416) sqrt(1 / 6) = 1.14, capped
    assert minimum_detectable(d) == 1.0 and minimum_detectable(d[:1]) == 1.0
    many = np.tile(d, 100)
    assert minimum_detectable(many) == pytest.approx(2.8016 * math.sqrt(many.var(ddof=1) / 400), rel=1e-4)
    assert minimum_detectable(many, power=0.9) > minimum_detectable(many)
    # without a discordant task it is not 0, and shrinks with the number of tasks
    none = [minimum_detectable(np.zeros(n)) for n in (10, 100, 1000)]
    assert none[0] > none[1] > none[2] > 0 and none[1] == pytest.approx(2.8016 * math.sqrt(0.0370 / 100), rel=1e-2)


def test_compare_tells_it(tmp_path, capsys):
    def report(wins: list[bool]) -> dict:
        outcomes = [{"task": f"t{i}", "success": won, "ending": "done"} for i, won in enumerate(wins)]
        return {"panel": "p", "benchmark": "b", "outcomes": outcomes}

    a, b = report([True, False] * 50), report([False, True] * 50)
    assert compare(a, b)["minimum_detectable"] == pytest.approx(2.8016 * math.sqrt(100 / 99 / 100), rel=1e-3)
    for name, one in (("a", a), ("b", b)):
        (tmp_path / f"{name}.json").write_text(json.dumps(one))
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    out = capsys.readouterr().out
    assert "8 of 10 comparisons find a true difference of 28." in out and "a smaller difference is possible" in out


def stored(folder: Path) -> Path:
    """A run folder with two graphs of two copies; the second graph is of a better policy."""
    for number, second in enumerate((0.0, 1.0)):
        graph = build_graph([
            episode(0, 0, step(A, "go", [1], [2, 3]), step(B, "Stop", [1], [2], reward=1.0)),
            episode(0, 1, step(A, "wait", [1], [2], reward=second)),
            episode(1, 0, step(A, "lost"), ending=Status.ENV_ERROR),
        ])  # fmt: skip
        write_graph(graph, folder / "graphs" / f"{number:06d}.safetensors")
    return folder


def test_samples_of_a_run(tmp_path, capsys):
    run = stored(tmp_path / "run")
    graph = build_graph([episode(0, 0, step(A, "go"), step(B, "Stop  it", reward=1.0))])
    assert samples_of_graph(graph, "0/") == [
        Sample(
            task="0/task/0",
            success=True,
            answer="stop it",
            tokens=0,
            actions=2,
            price=pytest.approx(math.nan, nan_ok=True),
        )
    ]
    assert main(["view", str(run), "--samples", "--window", "1", "--json"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (first["of"], first["episodes"], first["tasks"]) == ("graphs 000000 to 000000", 2, 1)
    assert first["at_k"]["1"]["pass"] == 0.5 and first["at_k"]["2"]["pass"] == 1 and second["at_k"]["1"]["pass"] == 1
    assert first["costs"]["tokens"][-1] == {"budget": 3, "success": 0.5, "within": 1.0}
    assert main(["view", str(run), "--samples"]) == 0
    out = capsys.readouterr().out
    assert "4 episodes of 2 tasks, success 75.0%" in out and "pass@2 100.0%" in out and "tokens per success" in out


def test_samples_of_a_report(tmp_path, capsys):
    path = tmp_path / "r.json"
    words = ["eval", "tests.toys.walk", "--policy", "random", "--samples", "4", "--tasks", "3", "--turns", "3"]
    assert main([*words, "--out", str(path), "--json"]) == 0
    rate = json.loads(capsys.readouterr().out)["success_rate"]
    assert main(["view", str(path), "--samples", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["at_k"]["1"]["pass"] == pytest.approx(rate) and set(found["at_k"]) == {"1", "2", "4"}
    assert 0 < rate < 1 and found["at_k"]["4"]["majority"] >= 0 and found["costs"]["actions"][-1]["success"] == rate


def test_words_that_do_not_fit(tmp_path, capsys):
    (tmp_path / "empty" / "graphs").mkdir(parents=True)
    assert main(["view", str(tmp_path / "empty"), "--samples"]) == 2
    assert main(["view", str(tmp_path / "none.json"), "--samples"]) == 2
    assert main(["view", str(tmp_path / "none.json"), "--samples", "--window", "3"]) == 2
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 3 and "no stored graphs" in err[0] and "no such report" in err[1] and "--window out" in err[2]


def test_the_interval_stays_wide_where_all_tasks_agree():
    for success in (False, True):
        got = pass_curve([Sample(task=str(i), success=success) for i in range(6)])["1"]["interval"]
        assert got == list(wilson(6.0 * success, 6)) and got[1] - got[0] > 0.3
