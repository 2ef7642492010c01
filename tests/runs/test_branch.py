"""`agentrl branch`: stored episodes go on from any of their turns, and the graph keeps all it had."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agentrl.cli import main
from agentrl.graph import PLAYED, PROBE, StepGraph, read_graph, write_graph
from tests.runs.test_branching import RECIPE, complaint


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one stored graph."""
    folder = tmp_path_factory.mktemp("stored")
    (folder / "tiny.toml").write_text(RECIPE)
    words = ["run.iterations=1", "run.name=run", f"run.folder={folder}", "engine.max_context=1024"]
    assert main(["train", str(folder / "tiny.toml"), "model.new.max_positions=1024", *words]) == 0
    return folder / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of it to branch."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def branch(capsys: pytest.CaptureFixture[str], run: Path, *words: object) -> dict:
    capsys.readouterr()
    assert main(["branch", str(run), *map(str, words), "--json"]) == 0
    report: dict = json.loads(capsys.readouterr().out)
    return report


def graph_of(run: Path) -> StepGraph:
    return read_graph(run / "graphs" / "000000.safetensors")


def unchanged(before: StepGraph, after: StepGraph) -> None:
    """All that was stored is where it was."""
    n = len(before)
    for name, column in before.columns.items():
        np.testing.assert_array_equal(after.columns[name][: len(column)], column)
    for name in ("observation", "answer"):
        assert list(after.texts[name][:n]) == list(before.texts[name])
    for name, words in before.names.items():
        assert list(after.names[name][: len(words)]) == list(words)
    assert before.tokens is not None and after.tokens is not None
    for row in range(n):
        np.testing.assert_array_equal(before.tokens.path(row), after.tokens.path(row))
    assert {"old_logprob", "importance"} <= set(before.tokens.columns) == set(after.tokens.columns)
    for name, column in before.tokens.columns.items():
        np.testing.assert_array_equal(after.tokens.columns[name][: len(column)], column)
        assert np.isnan(after.tokens.columns[name][len(column) :]).all()
    np.testing.assert_array_equal(after.tails["tail_ids"][: len(before.tails["tail_ids"])], before.tails["tail_ids"])


def test_continuations_start_from_the_exact_state_and_are_added_as_probes(run, capsys):
    before = graph_of(run)
    episode = int(before.episode[(before.turn == 3) & (before.parent >= 0)][-1])
    report = branch(capsys, run, "--episode", episode, "--turn", 3, "-n", 5)
    after = graph_of(run)
    unchanged(before, after)
    assert len(report["branches"]) == 5 and len(np.unique(after.episode)) == len(np.unique(before.episode)) + 5
    new = np.arange(len(before), len(after))
    assert (after.kind[new] == PROBE).all() and (after.kind[: len(before)] == PLAYED).all()
    row = int(np.flatnonzero((before.episode == episode) & (before.turn == 3))[0])
    firsts = new[after.turn[new] == 3]
    assert len(firsts) == 5 and (after.parent[firsts] == before.parent[row]).all()
    assert (after.state[firsts] == before.state[row]).all() and (after.group[new] == before.group[row]).all()
    assert (after.tree[new] == before.tree[row]).all()
    assert before.tokens is not None and after.tokens is not None
    for first in firsts:  # the same prompt, token by token: all but the answer
        prompt = before.tokens.path(row)[
            : -int(before.tokens.sampled[slice(*before.tokens.offsets[row : row + 2])].sum())
        ]
        np.testing.assert_array_equal(after.tokens.path(int(first))[: len(prompt)], prompt)
    assert after.column("mc_value")[row] == report["mc_value"] and after.column("mc_count")[row] == 5
    assert np.isnan(np.delete(after.column("mc_value"), row)).all()
    assert report["mc_value"] == np.mean([b["return"] for b in report["branches"]])
    assert report["action"] == before.names["action"][before.action[row]]
    assert report["advantage"] == before.column("advantage")[row]
    assert {b["steps"] for b in report["branches"]} == {3}  # turns 3, 4 and 5


def test_more_of_them_are_other_ones_and_both_sides_of_a_step_give_its_advantage(run, capsys):
    where = ["--episode", 0, "--turn"]
    first = branch(capsys, run, *where, 1, "-n", 3)
    assert first["mc_advantage"] is None
    second = branch(capsys, run, *where, 1, "-n", 3)
    actions = [[b["action"] for b in r["branches"]] for r in (first, second)]
    graph = graph_of(run)
    own = graph.kind == PROBE
    assert len(np.unique(graph.episode[own])) == 6 and actions[0] != actions[1]
    after = branch(capsys, run, *where, 2, "-n", 3)
    again = branch(capsys, run, *where, 1, "-n", 3)
    row = int(np.flatnonzero((graph.episode == 0) & (graph.turn == 1))[0])
    assert again["mc_advantage"] == graph.reward[row] + after["mc_value"] - again["mc_value"]
    assert (
        branch(capsys, run, *where, 5, "-n", 2)["mc_advantage"] is None
    )  # a limit ended it: nobody knows what follows


@pytest.mark.parametrize("policy", ["expert", "random"])
def test_another_policy_plays_on_without_tokens(run, capsys, policy):
    before = graph_of(run)
    report = branch(capsys, run, "--episode", 2, "--turn", 2, "-n", 2, "--policy", policy)
    after = graph_of(run)
    unchanged(before, after)
    assert len(report["branches"]) == 2 and after.tokens is not None and before.tokens is not None
    assert len(after.tokens.ids) == len(before.tokens.ids) and len(after) > len(before)
    assert all(after.texts["answer"][len(before) :])


def test_the_grown_graph_is_read_by_credit_methods_as_if_nothing_had_been_added(run, capsys):
    file = run / "graphs" / "000000.safetensors"

    def told() -> list[dict]:
        capsys.readouterr()
        assert main(["credit", "tree_grpo", "--steps", str(file), "--json"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    before = told()
    branch(capsys, run, "--episode", 1, "--turn", 2, "-n", 2)
    after = told()
    assert after[: len(before)] == before
    assert {line["advantage"] for line in after[len(before) :]} == {None}


def test_the_same_command_on_the_same_run_writes_the_same_bytes(trained, tmp_path, capsys):
    files = []
    for name in "ab":
        copy = Path(shutil.copytree(trained, tmp_path / name))
        branch(capsys, copy, "--episode", 0, "--turn", 2, "-n", 3)
        files.append((copy / "graphs" / "000000.safetensors").read_bytes())
    assert files[0] == files[1]


def test_mistakes_are_told_and_nothing_is_written(run, capsys):
    file = run / "graphs" / "000000.safetensors"
    before = file.read_bytes()
    capsys.readouterr()
    assert "there is no episode 99" in complaint(capsys, "branch", run, "--episode", 99, "--turn", 0)
    assert "has turns 0 to 5, not 6" in complaint(capsys, "branch", run, "--episode", 0, "--turn", 6)
    assert "is no run folder" in complaint(capsys, "branch", run / "graphs", "--episode", 0, "--turn", 0)
    assert "no graph of iteration 7" in complaint(capsys, "branch", run, "--episode", 0, "--turn", 0, "--iteration", 7)
    config = run / "config.toml"
    config.write_text(config.read_text().replace('state_key = "facts"', 'state_key = "feedback"'))
    said = complaint(capsys, "branch", run, "--episode", 0, "--turn", 2)
    assert "played again, turn 0 shows state key" in said and "have changed" in said
    assert file.read_bytes() == before and [p.name for p in file.parent.iterdir()] == [file.name]


def test_what_only_continuations_report_is_unknown_on_the_stored_rows(run, capsys):
    """Such as a signal that no stored episode reached."""
    before = graph_of(run)
    name = next(name for name in before.columns if name.startswith("info."))
    fewer = {key: column for key, column in before.columns.items() if key != name}
    write_graph(replace(before, columns=fewer), run / "graphs" / "000000.safetensors")
    branch(capsys, run, "--episode", 0, "--turn", 0, "-n", 1)
    column = graph_of(run).column(name)
    assert np.isnan(column[: len(before)]).all() and not np.isnan(column[len(before) :]).all()


def test_continuations_are_paid_as_the_run_pays(tmp_path, capsys):
    (tmp_path / "tiny.toml").write_text(RECIPE)
    words = ["run.iterations=1", "run.name=run", f"run.folder={tmp_path}", "engine.max_context=1024"]
    pays = ["reward={name='weighted_sum', weights={env_reward=2}}", "env.subgoal_reward=1"]
    assert main(["train", str(tmp_path / "tiny.toml"), "model.new.max_positions=1024", *words, *pays]) == 0
    run = tmp_path / "run"
    before = graph_of(run)
    report = branch(capsys, run, "--episode", 0, "--turn", 0, "-n", 4, "--policy", "oracle")
    after = graph_of(run)
    unchanged(before, after)
    new = np.arange(len(before), len(after))
    assert not np.isnan(after.column("env_reward")[new]).any() and after.column("env_reward")[new].any()
    np.testing.assert_array_equal(after.reward, 2 * after.column("env_reward"))
    totals = [after.reward[new][after.episode[new] == e].sum() for e in np.unique(after.episode[new])]
    assert [b["return"] for b in report["branches"]] == totals and report["mc_value"] == np.mean(totals)
