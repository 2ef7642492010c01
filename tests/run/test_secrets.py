"""No planted secret reaches a stored file or a printed word."""

import importlib
import json
import time
from contextlib import suppress
from pathlib import Path

import pytest
import tomli_w

from agentrl.cli import main
from agentrl.cli.train import again
from agentrl.secret import expand, redacted, scrubbed, scrubbed_values
from agentrl.tool.action import answer, call
from tests.toys.runs import MODEL

with suppress(ImportError):  # it takes stderr as it is at import for a default, which must not be one test's capture
    importlib.import_module("mcp.client.stdio")

PLAIN, OF_ENVIRONMENT, PASSWORD, HEADER, IN_COMMAND = (f"planted-{i}-sk-83hf72k" for i in range(5))
PLANTED = (PLAIN, OF_ENVIRONMENT, PASSWORD, HEADER, IN_COMMAND)
RECIPE = {
    "env": {"name": "tests.toys.keeper", "split": "train", "tools": {"mcp": {"env": {"TOKEN": PLAIN}}}},
    "eval": {"tasks": 2, "env": {"split": "test"}, "modes": ["greedy"]},
    "model": {"new": {**MODEL, "max_positions": 2048}},
    "engine": {"max_context": 2048},
    "warmup": {"updates": 1, "episodes": 2},
    "limits": {"turns": 2, "turn_tokens": 4},
    "batch": {"tasks": 2, "copies": 2},
    "credit": {"name": "grpo"},
    "log": {"to": ["tensorboard"]},
}


def words(path: Path, *more: str) -> list[str]:
    return ["train", str(path), f"run.folder={path.parent / 'runs'}", "run.name=a", *more]


@pytest.mark.timeout(240)
def test_no_planted_secret_is_stored_or_printed(tmp_path, capsys, monkeypatch):
    pytest.importorskip("mcp")
    pytest.importorskip("openai")
    pytest.importorskip("tensorboardX")
    monkeypatch.setenv("PLANTED_TOKEN", OF_ENVIRONMENT)
    monkeypatch.setenv("OPENAI_API_KEY", HEADER)
    recipe, actions = tmp_path / "r.toml", tmp_path / "actions.json"
    recipe.write_text(tomli_w.dumps({**RECIPE, "run": {"iterations": 1}}))
    actions.write_text(json.dumps([call("x", a=1), answer("yes")]))
    server = (
        f"env.tools.mcp.command=['python', '{Path(__file__).parents[1]}/tools/raw_mcp_server.py', 'leak', "
        f"'--api-key', '{IN_COMMAND}', '--token={IN_COMMAND}']"
    )
    given = [server, f"env.tools.mcp.headers.X='{HEADER}'", "env.tools.mcp.env.OTHER='${PLANTED_TOKEN}'"]
    said = []

    def run(code: int, *command: str) -> str:
        assert main(command) == code
        said.append("".join(capsys.readouterr()))
        return said[-1]

    shown = run(0, *words(recipe, *given), "--dry-run")
    assert 'TOKEN = "***"' in shown and 'OTHER = "${PLANTED_TOKEN}"' in shown
    run(0, *words(recipe, *given))
    run(0, *words(recipe, *given), "--resume", "run.iterations=2")
    policy = ("eval", "tests.toys.keeper", "--policy", str(tmp_path / "runs" / "a"), "--trust", "--tasks", "1")
    assert "is not stored: give it again" in run(2, *policy)
    again_given = (*given, f"tools.mcp.env.TOKEN={PLAIN}")
    run(0, *policy, *again_given, "--out", str(tmp_path / "runs" / "report.json"))
    calls = ("eval", "tests.toys.keeper", "--policy", f"scripted:{actions}", "--tasks", "1", "--json", *again_given)
    run(0, *calls, "--out", str(tmp_path / "runs" / "calls.json"))
    run(2, *words(recipe, *given, "env.tools.mcp.url=http://u:" + PASSWORD + "@127.0.0.1/?api_key=" + PASSWORD))
    run(2, *words(recipe, "env.tools.mcp.env.TOKEN=5", f"env.tools.mcp.headers.X='{HEADER}'", "run.name=b"))
    endpoint = f"openai:m@http://user:{PASSWORD}@127.0.0.1:9/v1?api_key={PASSWORD}"
    run(2, "eval", "tests.toys.walk", "--policy", endpoint, "--tasks", "1", "limits.retries=0", "limits.nope=1")
    said.append(again(words(recipe, *given, f"env.tools.mcp.env.TOKEN={PLAIN}")))
    stored = {p: p.read_bytes().decode("latin-1") for p in (tmp_path / "runs").rglob("*") if p.is_file()}
    kinds = ("config.toml", "calls.json", "report.json", "metrics.jsonl", "events.out.tfevents", "000000.safetensors")
    assert [kind for kind in kinds if not any(kind in path.name for path in stored)] == []
    for secret in PLANTED:
        assert [path for path, text in stored.items() if secret in text] == []
        assert [text for text in said if secret in text] == []


def test_references_are_kept_and_expanded(monkeypatch):
    monkeypatch.setenv("HERE", "value-1")
    tools = {"tools": {"mcp": {"headers": {"A": "Bearer ${HERE}", "B": "plain"}, "only": ["x"], "start_s": 3.0}}}
    shown = redacted(tools)["tools"]["mcp"]
    assert shown == {"headers": {"A": "Bearer ${HERE}", "B": "***"}, "only": ["x"], "start_s": 3.0}
    assert expand("Bearer ${HERE}", "headers.A") == "Bearer value-1"
    with pytest.raises(ValueError, match="NOT_HERE, which is not set"):
        expand("${NOT_HERE}", "headers.A")
    with pytest.raises(ValueError, match="is not stored: give it again"):
        expand("***", "headers.B")


def test_urls_lose_user_password_and_keys_and_ordinary_texts_nothing():
    assert scrubbed("at https://me:pw@host/v1?api_key=abc&n=3 now") == "at https://***@host/v1?api_key=***&n=3 now"
    plain = "limits.turn_tokens=5; a@b.org; http://host/a?key_of_task=3; tokens 7"
    assert scrubbed(plain) == plain
    options = {"limits": {"turn_tokens": 5}, "model": {"path": "a/b"}, "env": {"name": "walk", "goal": "x"}}
    assert redacted(options) == options


@pytest.mark.parametrize("text", ["x://" + "a" * 200_000, "?" + "a" * 200_000, "?a=" * 60_000, "a" * 200_000 + "://"])
def test_long_texts_are_scrubbed_in_linear_time(text):
    before = time.process_time()
    assert scrubbed(text) == text
    assert time.process_time() - before < 5.0


@pytest.mark.parametrize("address", [f"http://me:{PASSWORD}@127.0.0.1:9", f"http://127.0.0.1:9/?api_key={PASSWORD}"])
@pytest.mark.parametrize("verb", [["train"], ["train", "--dry-run"], ["doctor"]])
def test_an_address_of_a_training_service_with_a_key_is_refused_and_the_key_hidden(address, verb, tmp_path, capsys):
    recipe = tmp_path / "r.toml"
    recipe.write_text(tomli_w.dumps({**RECIPE, "learner": {"name": "tinker", "url": address}}))
    assert main([verb[0], str(recipe), f"run.folder={tmp_path / 'runs'}", *verb[1:]]) == 2
    said = "".join(capsys.readouterr())
    assert "set the key in the environment variable TINKER_API_KEY" in said and PASSWORD not in said
    assert PASSWORD not in again(["train", str(recipe), f"learner.url={address}"])
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("hide", [redacted, scrubbed_values])
def test_the_environment_is_read_once_per_table(hide, monkeypatch):
    class Read(dict[str, str]):
        times = 0

        def items(self):
            self.times += 1
            return super().items()

    read = Read(SOME_API_KEY="a-long-secret")
    with monkeypatch.context() as patch:
        patch.setattr("agentrl.secret.os.environ", read)
        hidden = hide({"a": {"b": "a-long-secret", "c": ["x", "a-long-secret"]}})
    assert hidden == {"a": {"b": "***", "c": ["x", "***"]}}
    assert read.times == 1
