"""`agentrl report --diagnose` on a stored run, and what it says to wrong words."""

import json

import pytest

from agentrl.cli import main
from agentrl.graph import write_graph
from tests.evaluate.test_decisions import FIRST, SECOND, graph


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "graphs").mkdir()
    (tmp_path / "config.toml").write_text(
        '[env]\nname = "tests.toys.walk"\n[model.new]\n[warmup]\nexpert = "straight"\n'
    )
    for iteration in (0, 1, 2):
        episodes = [(FIRST, True)] * iteration + [(SECOND, False)] * (3 - iteration)
        write_graph(graph(*episodes), tmp_path / "graphs" / f"{iteration:06d}.safetensors")
    return tmp_path


def test_the_table_and_json_tell_the_same(folder, capsys):
    assert main(["report", str(folder), "--diagnose", "--iterations", "1:3"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("iterations 1 to 2: 6 episodes, 50.0% succeeded\n")
    # Three episodes of two iterations walk, three times each: 9 walks in 6 episodes, all of them win.
    (line,) = [line.split() for line in text.splitlines() if line.startswith("go ")]
    assert line[1:5] == ["1.50", "50.0%", "100.0%", "0.0%"]
    assert main(["report", str(folder), "--diagnose", "--iterations", "1:3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["iterations"] == [1, 2] and found["findings"] == []
    (go,) = [row for row in found["situations"] if row["situation"] == "go"]
    assert (go["decisions"], go["episodes"], go["won"], go["others"], go["entropy"]) == (9, 3, 3, 3, None)


def test_fewer_rows_are_announced(folder, capsys):
    assert main(["report", str(folder), "--diagnose", "--rows", "1"]) == 0
    assert "and 2 more situations: --rows 3 prints them" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--iterations", "7:9"], "no stored graph in --iterations 7:9: it has 3, from iteration 0 to 2"),
        (["--iterations", "3"], "'3' is no span of iterations: write A:B"),
        (["--iterations", "3:3"], "'3:3' holds no iteration"),
        (["--iterations=-1:3"], "is no span of iterations"),
    ],
)
def test_a_wrong_span_is_one_sentence(folder, capsys, words, told):
    try:
        code = main(["report", str(folder), "--diagnose", *words])
    except SystemExit as end:
        code = end.code
    assert code == 2
    error = capsys.readouterr().err
    assert told in error and "Traceback" not in error


def test_what_is_no_run_is_one_sentence(tmp_path, capsys):
    assert main(["report", str(tmp_path), "--diagnose"]) == 2
    assert "is no run folder: it has no config.toml" in capsys.readouterr().err
    (tmp_path / "config.toml").write_text(
        '[env]\nname = "tests.toys.walk"\n[model.new]\n[warmup]\nexpert = "straight"\n'
    )
    assert main(["report", str(tmp_path), "--diagnose"]) == 2
    assert "has no stored graphs: train with run.graphs_every of 1 or more" in capsys.readouterr().err
