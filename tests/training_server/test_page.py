"""The loop on the page docs/serve-trainer.md runs, and learns its sentence."""

import re
from pathlib import Path

import pytest

from agentrl.model import write_toy_model
from tests.toys.training_service import training_service

PAGE = Path(__file__).parents[2] / "docs" / "serve-trainer.md"
pytest.importorskip("tinker", reason="no SDK: pip install 'agentrl-stepgraph[tinker]'")


@pytest.mark.slow
def test_the_loop_of_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    write_toy_model(tmp_path / "model")
    with training_service(tmp_path) as running:
        code = code.replace("http://127.0.0.1:8123", running.url).replace("models/toy", running.model)
        scope = {}
        exec(compile(code, PAGE.name, "exec"), scope)
        scope["service"].close("success").result()
    told = capsys.readouterr().out.splitlines()
    losses = [float(line.split()[1]) for line in told[:40]]
    assert losses[-1] < 0.01 * losses[0]
    assert "42" in told[40], "the greedy answer to the first three tokens of the sentence"
    assert re.fullmatch(r"tinker://\w+:train:0/weights/done", told[-1])
