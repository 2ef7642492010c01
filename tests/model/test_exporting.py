"""`agentrl model export`: transformers and peft load what the run trained, and the card says what was stored."""

import json
import shutil

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentrl.cli import main
from agentrl.report.card import of_these_weights
from tests.cli.bad_words import complaint
from tests.toys.language_model import model_folder
from tests.toys.runs import TOY, recipe

IDS = torch.tensor([[5, 9, 30, 77, 12, 40]])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with the run `lora` of a stored base model, and the run `scratch` of a new one with adapters."""
    folder = tmp_path_factory.mktemp("export")
    base = model_folder(folder / "base")
    shared = {
        "env": {"name": "tests.toys.walk"},
        "eval": {"tasks": 2, "env": {"first": 10}},
        "batch": {"tasks": 4, "copies": 4},
        "limits": {"turns": 4},
        "log": {"report": False},
    }
    run = {"iterations": 2, "folder": str(folder / "runs"), "checkpoint_every": 1}
    lora = {"path": str(base), "dtype": "float32", "lora": {"r": 2, "alpha": 64.0}}
    written = recipe({"engine": TOY["engine"]}, **shared, run={**run, "name": "lora"}, model=lora, optim={"lr": 0.05})
    (folder / "lora.toml").write_text(written)
    new = {"new": TOY["model"]["new"], "lora": {"r": 2}}
    (folder / "scratch.toml").write_text(
        recipe(TOY, **shared, run={**run, "name": "scratch", "iterations": 1}, model=new)
    )
    for name in ("lora", "scratch"):
        assert main(["train", str(folder / f"{name}.toml")]) == 0
    return folder


def logits(model):
    with torch.no_grad():
        return model.eval()(IDS).logits.float()


def test_merged_and_adapter_give_the_logits_of_the_run(runs, tmp_path, capsys):
    run = str(runs / "runs" / "lora")
    assert main(["model", "export", run, str(tmp_path / "merged"), "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done == {"folder": str(tmp_path / "merged"), "checkpoint": "000002", "policy": "policy", "form": "merged"}
    assert main(["model", "export", run, str(tmp_path / "adapter"), "--adapter"]) == 0
    trained = AutoModelForCausalLM.from_pretrained(runs / "runs" / "lora" / "checkpoints" / "000002" / "policy")
    base = AutoModelForCausalLM.from_pretrained(runs / "base", dtype=torch.float32)
    untrained = logits(base)
    merged = logits(AutoModelForCausalLM.from_pretrained(tmp_path / "merged"))
    adapted = logits(PeftModel.from_pretrained(base, str(tmp_path / "adapter")))
    assert torch.equal(merged, logits(trained))
    torch.testing.assert_close(adapted, merged, atol=1e-4, rtol=0)
    assert (merged - untrained).abs().max() > 1e-2  # the adapters change something
    for name in ("merged", "adapter"):
        words = AutoTokenizer.from_pretrained(tmp_path / name)
        assert words.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False)
    assert sorted(path.name for path in (tmp_path / "adapter").iterdir() if path.suffix in (".safetensors", ".md")) == [
        "README.md",
        "adapter_model.safetensors",
    ]
    settings = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(runs / "base")


def test_an_older_checkpoint_and_its_own_evaluation(runs, tmp_path):
    run = runs / "runs" / "lora"
    assert main(["model", "export", str(run), str(tmp_path / "early"), "--checkpoint", "000001"]) == 0
    card = (tmp_path / "early" / "README.md").read_text()
    assert "These weights were not evaluated on held-out tasks in the run." in card
    assert "| these weights |" not in card and "1 of 2 iterations" in card
    early = logits(AutoModelForCausalLM.from_pretrained(tmp_path / "early"))
    assert torch.equal(early, logits(AutoModelForCausalLM.from_pretrained(run / "checkpoints" / "000001" / "policy")))


def test_the_card_says_what_the_run_has_stored(runs, tmp_path):
    import yaml

    run = runs / "runs" / "lora"
    assert main(["model", "export", str(run), str(tmp_path / "out"), "--licence", "apache-2.0"]) == 0
    card = (tmp_path / "out" / "README.md").read_text()
    head = yaml.safe_load(card.split("---\n")[1])
    assert head["library_name"] == "transformers" and head["license"] == "apache-2.0"
    assert "base_model" not in head  # a folder of this machine is no name of the hub
    assert {"agentrl", "reinforcement-learning", "tests.toys.walk", "gigpo"} <= set(head["tags"])
    stored = json.loads((run / "evaluations" / "end-greedy.json").read_text())
    low, high = stored["interval"]
    row = f"greedy, temperature 0 | 2 | {stored['success_rate']:.1%} | {low:.1%} to {high:.1%} |"
    assert f"| these weights | tests.toys.walk | {stored['panel']} | {row}" in card
    timings = [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]
    cpu = sum(seconds for one in timings for key, seconds in one.items() if key.endswith("_cpu_s"))
    assert f"{cpu:.3g} CPU seconds (" in card and "One run with one seed (0)" in card
    assert (tmp_path / "out" / "agentrl.toml").read_bytes() == (run / "config.toml").read_bytes()
    versions = json.loads((run / "versions.json").read_text())
    assert f"- torch: {versions['torch']}" in card and "Name of the recipe: lora." in card
    assert "lr = 0.05" in card
    code = card.split("```python\n")[1].split("```")[0].replace('DIR = "."', f"DIR = {str(tmp_path / 'out')!r}")
    namespace = {}
    exec(code, namespace)
    assert namespace["model"].config.vocab_size and namespace["tokenizer"].chat_template


def test_which_evaluations_are_of_the_weights_of_a_checkpoint():
    def row(stage, name=""):
        return {"stage": stage, "name": name}

    rows = [row("eval", "start"), row("clone"), row("eval", "clone"), row("train"), row("train"), row("eval", "end")]
    # after line 1 nothing was trained; lines 2 and 3 are the clone's; line 4 is followed by another update
    by_lines = {n: [one["name"] for one in of_these_weights(rows, n)[0]] for n in range(7)}
    assert by_lines == {0: ["start"], 1: ["start"], 2: ["clone"], 3: ["clone"], 4: [], 5: ["end"], 6: ["end"]}
    assert [one["name"] for one in of_these_weights(rows, 6)[1]] == ["start", "clone"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["export", "none", "out"], "none is no run folder: it has no config.toml"),
        (["export", "RUN"], "name the folder to write: agentrl model export RUN DIR"),
        (["export", "RUN", "exists"], "exists exists: choose another folder"),
        (["export", "RUN", "out", "--checkpoint", "000009"], "has no checkpoint '000009': it has 000001, 000002"),
        (["export", "RUN", "out", "--policy", "polcy"], "has no policy 'polcy': did you mean policy?"),
        (["export", "RUN", "out", "--adapter", "--merged"], "not allowed with argument"),
        (["export", "RUN", "out", "--dtype", "bfloat16"], "--dtype is for convert"),
        (["export", "SCRATCH", "out", "--adapter"], "made from scratch"),
        (["export", "PLAIN", "out", "--adapter"], "was trained without adapters ([model.lora]): leave out --adapter"),
        (["export", "DAMAGED", "out"], "line 1 of"),
        (["export", "EMPTY", "out"], "has no checkpoint yet"),
        (["fetch", "smollm2", "out", "--merged"], "--merged is for export, not for fetch"),
    ],
)
def test_bad_words_are_one_sentence(runs, words, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exists").mkdir()
    for name in ("plain", "damaged", "empty"):
        shutil.copytree(runs / "runs" / "lora", tmp_path / name)
    shutil.rmtree(tmp_path / "plain" / "checkpoints" / "000002" / "policy" / "adapter")
    (tmp_path / "damaged" / "metrics.jsonl").write_text("{oops\n")
    shutil.rmtree(tmp_path / "empty" / "checkpoints")
    stands = {"RUN": runs / "runs" / "lora", "SCRATCH": runs / "runs" / "scratch"}
    stands |= {name.upper(): tmp_path / name for name in ("plain", "damaged", "empty")}
    line = ["model", *(str(stands.get(word, word)) for word in words)]
    assert complaint(line, tmp_path, capsys) == ""
    main(line)
    assert sentence in capsys.readouterr().err


def test_texts_of_a_run_cannot_break_the_card(runs, tmp_path):
    run = tmp_path / "odd"
    shutil.copytree(runs / "runs" / "scratch", run)
    finding = {"rule": "r", "severity": "warning", "text": "a | b\n# <script>", "stage": "train", "iteration": 0}
    (run / "health.json").write_text(json.dumps({"format": 1, "findings": [finding]}))
    assert main(["model", "export", str(run), str(tmp_path / "out")]) == 0
    card = (tmp_path / "out" / "README.md").read_text()
    assert "a \\| b # \\<script\\>" in card and "\n# <script>" not in card
