"""Taggers: the built-in list, spaCy's interface, files of nouns."""

import json
import sys
import types

import pytest

from agentrl.envs import webshop
from agentrl.envs.webshop import nouns
from agentrl.envs.webshop.cli import main
from agentrl.envs.webshop.market import open_market

TITLE = "Red Rugs for Kids, Rugs"
POS = {"red": "ADJ", "rugs": "NOUN", "for": "ADP", "kids": "PROPN", ",": "PUNCT"}


@pytest.fixture
def fresh():
    """No tagger remembered from another test, none left behind."""
    nouns.spacy.cache_clear()
    yield
    nouns.spacy.cache_clear()


def install(monkeypatch, library):
    """Make a stand-in the installed spaCy, its model included."""
    monkeypatch.setitem(sys.modules, "spacy", library)
    monkeypatch.setattr(nouns, "have_spacy", lambda: True)


def speaks_spacy(pos_name="pos_"):
    """A module with the part of spaCy's interface that is used: load(name)(text) gives tokens with text and pos_."""

    def load(name):
        assert name == "en_core_web_sm"

        def model(text):
            words = text.replace(",", " ,").split()
            return [types.SimpleNamespace(**{"text": w, pos_name: POS[w.lower()]}) for w in words]

        model.meta = {"version": "3.8.0"}
        return model

    return types.SimpleNamespace(load=load, __version__="3.8.18")


def test_nouns_and_proper_nouns_lower_case_with_repetitions(monkeypatch, fresh):
    install(monkeypatch, speaks_spacy())
    tagger = nouns.default()
    assert tagger(TITLE) == ("rugs", "kids", "rugs")  # red is an adjective, for an adposition
    assert tagger.name == "spaCy 3.8.18, en_core_web_sm 3.8.0"
    config = webshop.Config(tagger="spacy", num_products=30)
    assert open_market(config).tagger == nouns.default_name() == "spaCy en_core_web_sm"


def test_a_real_pipeline_of_spacy(monkeypatch, fresh):
    library = pytest.importorskip("spacy", reason="spaCy is not installed")
    pipeline = library.blank("en")  # its tokenizer is that of the model, whose weights are no package
    ruler = pipeline.add_pipe("attribute_ruler")
    for word, pos in POS.items():
        ruler.add([[{"LOWER": word}]], {"POS": pos})
    monkeypatch.setattr(library, "load", lambda name: pipeline)
    monkeypatch.setattr(nouns, "have_spacy", lambda: True)
    assert nouns.spacy()(TITLE) == ("rugs", "kids", "rugs")
    assert nouns.spacy().name.startswith(f"spaCy {library.__version__}, en_core_web_sm")


def test_a_store_keeps_the_lists_and_the_name_of_its_tagger(monkeypatch, fresh, raw):
    words = {
        "Red": "ADJ",
        '"Signature"': "X",
        "Rug": "NOUN",
        "Blue": "ADJ",
        "for": "ADP",
        "Kids": "NOUN",
        "Tea": "NOUN",
    }
    monkeypatch.setattr(sys.modules[__name__], "POS", {k.lower(): v for k, v in words.items()} | {"green": "NOUN"})
    install(monkeypatch, speaks_spacy())
    assert main(["prepare", "--data", str(raw), "--tagger", "spacy"]) == 0
    monkeypatch.undo()  # spaCy is gone, the lists stay
    config = webshop.Config(data=str(raw), split="all")
    market = open_market(config)
    assert market.tagger == "spaCy 3.8.18, en_core_web_sm 3.8.0" and market.tagger in webshop.benchmark(config)
    assert [tuple(market.nouns(p)) for p in market.catalogue.products] == [("rug",), ("rug", "kids"), ("green", "tea")]


def test_a_missing_model_is_one_sentence(monkeypatch, fresh, raw, capsys):
    monkeypatch.setattr(nouns, "have_spacy", lambda: False)
    for argv in (
        ["play", "--actions", str(raw / "a.txt"), "tagger=spacy"],
        ["prepare", "--data", str(raw), "--tagger", "spacy"],
    ):
        (raw / "a.txt").write_text("search[rug]\n")
        assert main(argv) == 2
        error = capsys.readouterr().err
        assert "python -m spacy download en_core_web_sm" in error and error.count("\n") == 1
    assert nouns.default().name == nouns.BUILT_IN and not (raw / "prepared").exists()


def test_lists_from_a_file(tmp_path, raw, capsys):
    (tmp_path / "n.json").write_text(json.dumps({TITLE: ["rug"]}))
    tagger = nouns.from_file(tmp_path / "n.json")
    assert tagger(TITLE) == ["rug"] and tagger.name == "lists of n.json"
    with pytest.raises(ValueError, match="no nouns for the title 'x'"):
        tagger("x")
