"""The tokenizer of a model whose weights a training service holds: read without weights."""

import shutil

import pytest
from transformers import AutoModelForCausalLM

from agentrl.model import check_tokenizer, load_tokenizer, served_tokenizer, write_toy_model
from agentrl.model.sections import ModelConfig

FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that holds only the files of a tokenizer; no weights can be read."""
    write_toy_model(tmp_path / "model")
    (tmp_path / "tokenizer").mkdir()
    for name in FILES:
        shutil.copy(tmp_path / "model" / name, tmp_path / "tokenizer")
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("weights were read"))
    return tmp_path / "tokenizer"


def test_a_folder_needs_only_the_files_of_a_tokenizer(folder):
    config = ModelConfig(path=str(folder))
    check_tokenizer(config)
    whole = load_tokenizer(folder.parent / "model")
    found = served_tokenizer(config)
    assert found("open the box").input_ids == whole("open the box").input_ids
    assert found.chat_template == whole.chat_template


def test_the_template_of_the_recipe_is_set(folder, tmp_path):
    template = tmp_path / "t.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    found = served_tokenizer(ModelConfig(path=str(folder), template_file=str(template)))
    assert found.chat_template == template.read_text()


def test_mistakes_are_told(folder, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty': the folder has no tokenizer.json and no tokenizer_config.json"):
        check_tokenizer(ModelConfig(path=str(tmp_path / "empty")))
    with pytest.raises(ValueError, match=r"tokenize does not exist: did you mean .*tokenizer\?"):
        served_tokenizer(ModelConfig(path=str(tmp_path / "tokenize")))
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"no tokenizer can be loaded from there .*name a folder"):
        served_tokenizer(ModelConfig(path=str(folder)))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match="HF_HUB_OFFLINE is set"):
        check_tokenizer(ModelConfig(path="nobody/no-such-model"))


def test_without_asking_the_hub_only_its_cache_is_read(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "transformers.AutoTokenizer.from_pretrained",
        lambda name, **given: asked.append((name, given["local_files_only"])) or (_ for _ in ()).throw(OSError("none")),
    )
    for ask in (False, True):
        with pytest.raises(ValueError, match="no tokenizer can be loaded"):
            served_tokenizer(ModelConfig(path="nobody/no-such-model"), ask_hub=ask)
    assert asked == [("nobody/no-such-model", True), ("nobody/no-such-model", False)]
