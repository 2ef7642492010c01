"""Section [engine]: a catalogue entry like the others."""

from pathlib import Path

import pytest

from agentrl.settings import Settings
from tests.toys.runs import recipe

BASE = {"env": {"name": "tests.toys.walk"}, "model": {"path": "m"}}


def test_the_embedded_engine_is_the_default():
    settings = Settings({**BASE, "engine": {"max_slots": 8, "actions": "admissible"}})
    assert (settings.engine.name, settings.engine.config.max_slots) == ("hf", 8)
    assert settings.dump()["engine"] == {"name": "hf", "max_slots": 8, "max_context": 1024, "actions": "admissible"}


def test_an_engine_may_be_a_module_of_ones_own():
    settings = Settings({**BASE, "engine": {"name": "tests.toys.own_engine", "max_context": 64, "batch": 3}})
    assert settings.engine.config.batch == 3 and settings.engine.hooks.weights


@pytest.mark.parametrize(
    ("engine", "sentence"),
    [
        ({"name": "vlm"}, "unknown engine 'vlm'"),
        ({"max_slot": 3}, r"unknown key engine\.max_slot: did you mean max_slots"),
        ({"name": "openai", "model": "m"}, "engine.name=openai generates with weights of its own"),
        ({"name": "vllm", "python": "p"}, r"batches depend on timing.*: set run\.deterministic=false"),
        ({"name": "vllm", "python": "p", "max_slots": 3}, r"unknown key engine\.max_slots"),
        ({"name": "vllm"}, r"either engine\.python .* or engine\.urls"),
    ],
)
def test_mistakes_are_told_in_a_sentence(engine, sentence):
    with pytest.raises(ValueError, match=sentence):
        Settings({**BASE, "engine": engine})


SERVED = {"name": "vllm", "python": "p", "servers": 2, "gpus": ["0", "1"], "max_context": 64}
UNEVEN = {"run": {"deterministic": False}}


def loaded(folder: Path, engine: dict[str, object], *overrides: str) -> Settings:
    path = folder / "one.toml"
    path.write_text(recipe({**BASE, **UNEVEN, "engine": engine}))
    return Settings.load(path, overrides)


@pytest.mark.parametrize("word", ["engine.name=hf", "engine.name='hf'", " engine.name = hf"])
def test_another_engine_leaves_out_the_options_that_it_lacks_and_says_so(tmp_path, word):
    settings = loaded(tmp_path, SERVED, word, "engine.max_slots=3")
    assert settings.engine.dump() == {"name": "hf", "max_slots": 3, "max_context": 64, "actions": "free"}
    (note,) = settings.notes
    assert note == "engine.name=hf has no python, servers, gpus: what the recipe sets there for vllm is left out"
    back = loaded(tmp_path, {"max_slots": 3, "max_context": 64}, "engine.name=vllm", "engine.python=p")
    assert (back.engine.name, back.engine.config.max_context) == ("vllm", 64)
    assert back.notes == ["engine.name=vllm has no max_slots: what the recipe sets there for hf is left out"]


def test_what_a_user_sets_is_never_left_out(tmp_path):
    with pytest.raises(ValueError, match=r"^unknown key engine\.max_slots: did you mean max_context\?$"):
        loaded(tmp_path, {}, "engine.name=vllm", "engine.python=p", "engine.max_slots=3")
    with pytest.raises(ValueError, match=r"unknown key engine\.max_slot: did you mean max_slots"):
        loaded(tmp_path, {"max_slot": 3}, "engine.name=hf")
    with pytest.raises(ValueError, match=r"unknown key engine\.pyton"):
        loaded(tmp_path, {**SERVED, "pyton": "p"}, "engine.name=hf")
    assert loaded(tmp_path, SERVED, "engine.servers=2").notes == []


def test_the_small_recipe_on_servers_asks_for_what_is_missing():
    path = Path(__file__).parents[2] / "benchmarks" / "recipes" / "alfworld-cpu.toml"
    words = ["engine.name=vllm", "engine.python=p", "run.deterministic=false"]
    for count, sentence in ((1, r"engine\.python .* or engine\.urls"), (2, r"set run\.deterministic=false")):
        with pytest.raises(ValueError, match=sentence):
            Settings.load(path, words[:count])
    assert Settings.load(path, words).engine.name == "vllm"
