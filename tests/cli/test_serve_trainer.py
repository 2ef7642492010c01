"""`agentrl serve trainer`: what it prints, what it refuses, and that it answers until a signal arrives."""

from pathlib import Path

import pytest

from agentrl.cli import _serve_trainer, main
from tests.toys.training_service import tiny_qwen
from tests.training_server.plain_client import PlainClient


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(tiny_qwen(tmp_path_factory.mktemp("model") / "tiny"))


def until(monkeypatch, visit):
    """Let the verb stop after `visit` was called, while the server answers."""
    monkeypatch.setattr(_serve_trainer, "wait", visit)


def test_it_serves_until_it_is_stopped(model, tmp_path, monkeypatch, capsys):
    folder, said = tmp_path / "kept", []

    def visit():
        said.append(capsys.readouterr().out)
        client = PlainClient(said[0].split(" at ")[1].strip())
        made = client.model("tiny-name", rank=2)
        (found,) = client.send("GET", "get_server_capabilities").body["supported_models"]
        assert (found["model_name"], found["max_context_length"]) == ("tiny-name", 64)
        assert client.post("get_info", {"model_id": made})["model_data"]["tokenizer_id"] == model
        client.do("save_weights", {"model_id": made, "path": "ck", "seq_id": 1})

    until(monkeypatch, visit)
    words = ["--port", "0", "--name", "tiny-name", "--max-context", "64", "--checkpoints", str(folder)]
    assert main(["serve", "trainer", model, "model.dtype=float32", *words]) == 130
    assert said[0].startswith("trainer of tiny-name at http://127.0.0.1:")
    assert len(list(folder.glob("*/weights/ck/adapter_model.safetensors"))) == 1
    assert f"the checkpoints are in {folder}" in capsys.readouterr().err


def test_without_the_sdk_it_says_which_clients_it_cannot_serve(model, monkeypatch, capsys):
    monkeypatch.setattr("agentrl.training_server.messages", lambda: None)
    until(monkeypatch, lambda: None)
    assert main(["serve", "trainer", model, "--port", "0"]) == 130
    told = capsys.readouterr().err
    assert "clients with SDK 0.25 and newer need the extra tinker" in told and "the checkpoints are deleted" in told


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "the following arguments are required: MODEL"),
        (["{}", "--host", "0.0.0.0"], "name the variable with --token-variable"),
        (["{}", "--allow-host", "model.example"], "--allow-host model.example: the server can be reached"),
        (["{}", "--token-variable", "NO_TOKEN"], "the environment variable NO_TOKEN is not set: set it"),
        (["{}", "model.lora.r=8"], "clients choose the adapters"),
        (["{}", "model.dtype=float32", "env.goal=3"], "'env.goal=3' is no option here"),
        (["{}", "model.path=x"], "'model.path=x' is no option here"),
        (["{}", "goal"], "'goal' is not an override"),
        (["{}", "model.dtype=int4"], "model.dtype"),
        (["{}", "--max-context", "2000"], "--max-context 2000: the model has 1024 positions; give at most 1024"),
        (["{}", "--checkpoints", "{}/config.json"], "name a folder to write to"),
        (["{}", "--port", "99999"], "--port 99999 is no port"),
        (["no/such/folder"], "no/such/folder"),
    ],
)
def test_what_cannot_be_served_is_one_sentence(words, sentence, model, capsys):
    assert main(["serve", "trainer", *(word.format(model) for word in words)]) == 2
    told = capsys.readouterr().err.strip()
    assert sentence in told and told.count("\n") == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.2"])
def test_the_loopback_needs_no_token(host):
    assert _serve_trainer.check_token(host, [], "") == ""


@pytest.mark.parametrize("token", ["secret", "tml-", "tml-a b", "tml-é"])
def test_a_token_that_the_sdk_cannot_send_is_refused_and_not_printed(token, model, capsys, monkeypatch):
    monkeypatch.setenv("TRAINER_TOKEN", token)
    assert main(["serve", "trainer", model, "--token-variable", "TRAINER_TOKEN"]) == 2
    told = capsys.readouterr().err
    assert "take one of the form tml-..." in told and token not in told.replace("tml-...", "")


def test_a_refusal_leaves_no_folder(model, tmp_path, capsys):
    assert main(["serve", "trainer", str(tmp_path), "--checkpoints", str(tmp_path / "new" / "kept")]) == 2
    assert list(tmp_path.iterdir()) == []


def test_clients_in_other_folders_find_the_tokenizer(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(Path(model).parent)

    def visit():
        client = PlainClient(capsys.readouterr().out.split(" at ")[1].strip())
        made = client.model("tiny", rank=2)
        assert client.post("get_info", {"model_id": made})["model_data"]["tokenizer_id"] == model

    until(monkeypatch, visit)
    assert main(["serve", "trainer", "tiny", "--port", "0"]) == 130
