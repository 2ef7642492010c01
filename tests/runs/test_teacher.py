"""Runs with a teacher: a folder, an endpoint that says the same, the policy itself; and sentences for mistakes."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

from agentrl.cli import main
from agentrl.graph import read_graph
from agentrl.model import ModelConfig, load_model
from tests.toys.runs import TOY, cut_back, recipe

WALK = {
    "env": {"name": "tests.toys.walk", "count": 2, "goal": 3},
    "eval": {"tasks": 1, "env": {"first": 3}},
    "warmup": {"expert": "straight", "updates": 0},
    "batch": {"tasks": 2, "copies": 2},
    "limits": {"turns": 3, "turn_tokens": 4},
    "credit": {"name": "grpo"},
    "update": {"regularizers": [{"name": "teacher", "coef": 1.0}]},
    "optim": {"lr": 3e-2},
}


@pytest.fixture(scope="module")
def taught(tmp_path_factory) -> Path:
    """The folder of a model that was cloned for a while, which has the tokenizer of every run here."""
    folder = tmp_path_factory.mktemp("teacher")
    path = folder / "clone.toml"
    sections = {name: section for name, section in WALK.items() if name not in ("update", "optim")}
    sections |= {"warmup": {"expert": "straight", "updates": 15, "optim": {"lr": 3e-2}}}
    path.write_text(recipe(TOY, **sections, run={"iterations": 0}))
    assert main(["train", str(path), "run.name=clone", f"run.folder={folder}"]) == 0
    return folder / "clone/checkpoints/000000/policy"


def write(folder: Path, guide: dict, **more) -> Path:
    path = folder / "walk.toml"
    run = {"iterations": 4, "checkpoint_every": 1, "keep": 9}
    path.write_text(recipe(TOY, **{**WALK, **more}, guide={"name": "teacher", **guide}, run=run))
    return path


def train(folder: Path, name: str, path: Path, *more: str) -> Path:
    assert main(["train", str(path), f"run.name={name}", f"run.folder={folder}", *more]) == 0
    return folder / name


def lines_of(run: Path) -> list[dict]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["stage"] == "train"]


def test_the_policy_comes_nearer_to_a_teacher_and_a_resumed_run_keeps_the_bytes(taught, tmp_path):
    path = write(tmp_path, {"source": "folder", "path": str(taught)})
    whole = train(tmp_path, "whole", path)
    cut = train(tmp_path, cut_back(whole, 2), path, "--resume")
    for iteration in range(4):
        name = f"graphs/{iteration:06d}.safetensors"
        assert (whole / name).read_bytes() == (cut / name).read_bytes(), name
    lines = lines_of(whole)
    assert all(line["teacher_share"] == 1 for line in lines)
    assert lines[-1]["teacher_kl"] < 0.5 * lines[0]["teacher_kl"]
    graph = read_graph(whole / "graphs/000000.safetensors")
    said = graph.token_column("teacher_logprob")
    assert (np.isnan(said) == ~graph.tokens.sampled).all() and (said[graph.tokens.sampled] <= 0).all()


class Completions(BaseHTTPRequestHandler):
    """Answers as the completions of a vLLM server do, from the model of the class."""

    model, seen, broken = None, 0, ""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        type(self).seen += 1
        if self.broken == "refuses":
            self._send(404, {"error": "no such model"})
            return
        ids = torch.tensor([body["prompt"]])
        with torch.no_grad():
            logprobs = self.model(ids).logits[0].float().log_softmax(-1)
        said = [None, *logprobs[:-1].gather(1, ids[0, 1:, None])[:, 0].tolist(), -0.5]
        said = said[:2] if self.broken == "short" and len(said) > 3 else said
        self._send(200, {"choices": [{"text": "", "logprobs": {"token_logprobs": said}}]})

    def _send(self, status, content):
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(taught):
    Completions.model, Completions.seen, Completions.broken = load_model(ModelConfig(path=str(taught)), 0).model, 0, ""
    served = ThreadingHTTPServer(("127.0.0.1", 0), Completions)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{served.server_port}/v1"
    served.shutdown()
    served.server_close()


FREE = {"engine": {"actions": "free", "max_context": 512}}


def test_an_endpoint_says_what_the_folder_says(taught, server, tmp_path):
    folder = train(
        tmp_path, "f", write(tmp_path, {"source": "folder", "path": str(taught)}, **FREE), "run.iterations=1"
    )
    asked = {"source": "endpoint", "url": server, "model": "teacher"}
    endpoint = train(tmp_path, "e", write(tmp_path, asked, **FREE), "run.iterations=1")
    ours, theirs = (read_graph(run / "graphs/000000.safetensors") for run in (endpoint, folder))
    np.testing.assert_array_equal(ours.tokens.ids, theirs.tokens.ids)
    np.testing.assert_allclose(
        ours.token_column("teacher_logprob"), theirs.token_column("teacher_logprob"), atol=1e-4, equal_nan=True
    )
    assert Completions.seen == 1 + len(np.unique(ours.episode))  # a probe, and one request per chain


@pytest.mark.parametrize(("broken", "told"), [("refuses", "refuses the request"), ("short", "one log-prob per token")])
def test_an_endpoint_that_does_not_fit_is_told(broken, told, server, tmp_path, capsys):
    Completions.broken = broken
    path = write(tmp_path, {"source": "endpoint", "url": server, "model": "teacher"}, **FREE)
    assert main(["train", str(path), "run.name=bad", f"run.folder={tmp_path}"]) == 2
    assert told in capsys.readouterr().err
    assert broken == "short" or not (tmp_path / "bad").exists()  # a refused probe leaves nothing behind


def test_the_policy_teaches_itself_behind_the_prompt_of_a_success(tmp_path):
    own = {"source": "own"}
    path = write(tmp_path, own, batch={"tasks": 2, "copies": 8}, env={**WALK["env"], "goal": 2})
    whole = train(tmp_path, "whole", path, "limits.turns=2")
    cut = train(tmp_path, cut_back(whole, 2), path, "--resume", "limits.turns=2")
    for iteration in range(4):
        name = f"graphs/{iteration:06d}.safetensors"
        assert (whole / name).read_bytes() == (cut / name).read_bytes(), name
    graphs = [read_graph(whole / f"graphs/{i:06d}.safetensors") for i in range(4)]
    taught = 0
    for graph in graphs:
        said = ~np.isnan(graph.token_column("teacher_logprob"))
        rows = np.unique(np.repeat(np.arange(len(graph)), np.diff(graph.tokens.offsets))[said])
        assert not graph.succeeded[rows].any()  # chains that failed are taught
        apart = (graph.token_column("teacher_logprob") - graph.token_column("old_logprob"))[said]
        taught += len(rows)
        assert not len(rows) or np.abs(apart).max() > 1e-5  # behind another prompt the policy says something else
        assert not graph.has("reprompted")  # what is trained stands behind its own prompt
    assert taught


@pytest.mark.parametrize(
    ("guide", "words", "told"),
    [
        ({"source": "folder"}, [], "give path"),
        ({"source": "own", "path": "x"}, [], "has no path"),
        ({"source": "endpoint", "url": "http://x/v1", "model": "m"}, [], "engine.actions='free'"),
        ({"source": "own"}, ["update.regularizers=[]"], "has no effect without a regularizer"),
        ({"source": "own"}, ["guide={name='start_state'}"], "set guide.name=teacher"),
        ({"source": "own"}, ["rollout={name='tree'}"], "rollout.name=chain"),
    ],
)
def test_mistakes_are_told(guide, words, told, tmp_path, capsys):
    path = write(tmp_path, guide)
    assert main(["train", str(path), *words, f"run.folder={tmp_path}", "--dry-run"]) == 2
    assert told in capsys.readouterr().err


def test_a_teacher_with_another_tokenizer_is_told_before_anything_is_written(taught, tmp_path, capsys):
    path = write(tmp_path, {"source": "folder", "path": str(taught)}, env={**WALK["env"], "goal": 9})
    assert main(["train", str(path), "run.name=bad", f"run.folder={tmp_path}"]) == 2
    assert "another tokenizer" in capsys.readouterr().err
    assert main(["train", str(path), "guide.path=/nowhere", "run.name=bad", f"run.folder={tmp_path}"]) == 2
    assert "/nowhere" in capsys.readouterr().err
    assert not (tmp_path / "bad").exists()
