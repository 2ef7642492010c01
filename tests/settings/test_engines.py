"""Section [engine]: a catalogue entry like the others."""

import pytest

from agentrl.settings import Settings

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
        ({"name": "vllm", "python": "p"}, r"batches by timing.*: set run\.deterministic=false"),
        ({"name": "vllm", "python": "p", "max_slots": 3}, r"unknown key engine\.max_slots"),
        ({"name": "vllm"}, r"either engine\.python .* or engine\.urls"),
    ],
)
def test_mistakes_are_told_in_a_sentence(engine, sentence):
    with pytest.raises(ValueError, match=sentence):
        Settings({**BASE, "engine": engine})
