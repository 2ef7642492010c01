"""`agentrl doctor RECIPE`: what is there is told, what is missing is one sentence each and exit code 2."""

import json
import socket
from pathlib import Path

import pytest

from agentrl.cli import main
from tests.toys.runs import ALFWORLD, TOY, recipe, tiny_model


def doctor(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, *words: str) -> tuple[int, str, list[str]]:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    code = main(["doctor", str(path), f"run.folder={tmp_path}", *words])
    out, err = capsys.readouterr()
    return code, out, err.splitlines()


def test_nothing_is_missing_and_nothing_is_written(tmp_path, capsys):
    code, out, err = doctor(tmp_path, capsys, recipe(ALFWORLD))
    assert code == 0 and not err
    assert "training tasks of alfworld: without end, the first one begins" in out
    assert "a new model is made from scratch" in out and "nothing is missing: agentrl train" in out
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_each_missing_thing_is_one_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    lost = f"env.retriever={{name='search', backend='http', http={{urls=['http://127.0.0.1:{port}/retrieve']}}}}"
    text = "# Needs: a GPU, and more\n" + recipe({**TOY, "env": {"name": "search_qa", "data": "nowhere.jsonl"}})
    code, _, err = doctor(tmp_path, capsys, text, lost, "model={path='nobody/nothing'}", "run.folder=/proc/x")
    assert code == 2
    sentences = {line.split(": ")[1]: line for line in err}
    assert "no such file" in sentences["data"]
    assert "hf download nobody/nothing" in sentences["model"] and "HF_HUB_OFFLINE is set" in sentences["model"]
    assert "the recipe needs a GPU" in sentences["device"]
    assert f"127.0.0.1:{port}/retrieve' takes no connection" in sentences["endpoint"]
    assert "/proc/x" in sentences["folder"]


def test_a_model_folder_that_is_cut_is_named(tmp_path, capsys):
    from agentrl.model import save_model

    folder = tmp_path / "model"
    save_model(tiny_model(["go left"]), folder)
    words = f"model={{path='{folder}'}}"
    code, out, _ = doctor(tmp_path, capsys, recipe(ALFWORLD), words)
    assert code == 0 and f"the model folder {folder}" in out
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    code, _, err = doctor(tmp_path, capsys, recipe(ALFWORLD), words, "--json")
    assert code == 2 and not err
    weights.write_bytes(b"no")
    code, _, err = doctor(tmp_path, capsys, recipe(ALFWORLD), words)
    assert code == 2 and "model.safetensors is no safetensors file: copy it again" in err[0]


def test_json_has_one_object_per_finding(tmp_path, capsys):
    code, out, _ = doctor(tmp_path, capsys, recipe(ALFWORLD), "--json")
    assert code == 0
    assert {finding["part"] for finding in json.loads(out)} == {"data", "model", "device"}


def test_a_wrong_recipe_is_the_sentence_of_train(tmp_path, capsys):
    assert main(["doctor", "alfworld-cpu", "optm.lr=1"]) == 2
    assert "unknown key optm: did you mean optim?" in capsys.readouterr().err
