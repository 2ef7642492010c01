"""A recipe of [env], [eval.env] and [model.new], nothing else, learns: held-out success rises beyond chance."""

import pytest

from agentrl.files import read_toml
from benchmarks.defaults import ENVIRONMENTS, row, success, trained


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["alfworld-gen", "sokoban"])
def test_the_defaults_learn(name, tmp_path):
    run = trained(name, tmp_path, tasks=40, iterations=3)
    print(row(name, run))
    _, _, most_at_first = success(run, "start")
    assert success(run, "end")[1] > most_at_first
    assert read_toml(run / "config.toml")["limits"]["turns"] < 50  # twice the longest of the expert's episodes
    assert "token_limit" not in (run / "metrics.jsonl").read_text()
    assert trained(name, tmp_path, tasks=40) == run  # finished: it is read, and not repeated
    assert row(name, run).count("|") == 9 and name in ENVIRONMENTS
