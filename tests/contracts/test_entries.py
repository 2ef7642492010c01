"""What every entry of every catalogue keeps to: a frozen value of its class, frozen options, help for every hook."""

import pickle
from dataclasses import FrozenInstanceError, fields

import pytest
from pydantic import BaseModel, ValidationError

from agentrl import catalogue
from tests.contracts.every import NEEDED, entry, pairs

EVERY = pytest.mark.parametrize(("kind", "name"), pairs())


@EVERY
def test_an_entry_is_a_frozen_value_of_its_class(kind, name):
    found = catalogue.load(kind, name)
    assert type(found) is catalogue.class_of(kind) and kind == found.KIND
    assert (found.name, found.label) == (name, name)
    for field in fields(found):
        with pytest.raises(FrozenInstanceError):
            setattr(found, field.name, None)
    again = pickle.loads(pickle.dumps(found))
    assert again == found and type(again) is type(found)


@EVERY
def test_an_entry_says_where_it_comes_from(kind, name):
    about = catalogue.load(kind, name).about
    assert about[:1].isupper() and len(about.split()) >= 5, "the docstring begins with a sentence"
    assert "Source:" not in about or len(about.partition("Source:")[2].split()) >= 3
    if getattr(catalogue.load(kind, name), "paper", ""):
        assert "Source:" in about, "a file with PAPER names its source"


@EVERY
def test_options_are_a_frozen_pydantic_model(kind, name):
    config = catalogue.load(kind, name).config
    assert issubclass(config, BaseModel)
    assert config.model_config.get("frozen") and config.model_config.get("extra") == "forbid"
    made = entry(kind, name).config
    with pytest.raises(ValidationError):
        config(**NEEDED.get((kind, name), {}), no_such_option=1)
    for option in config.model_fields:
        with pytest.raises(ValidationError):
            setattr(made, option, None)


@EVERY
def test_defaults_of_options_are_values_that_the_options_take(kind, name):
    """pydantic validates no default of itself; a recipe that states one must get what a recipe without it gets."""
    made = entry(kind, name).config
    assert type(made).model_validate(made.model_dump()) == made
    assert type(made).model_validate_json(made.model_dump_json()) == made


@pytest.mark.parametrize(("kind", "name"), sorted(NEEDED))
def test_entries_with_needed_options_refuse_to_be_without(kind, name):
    with pytest.raises(ValidationError):
        catalogue.load(kind, name).config()


@pytest.mark.parametrize("kind", sorted(catalogue.KINDS))
def test_every_hook_has_help(kind):
    found = dict(catalogue.hooks_of(catalogue.class_of(kind)))
    assert len(found) >= 2 and "Config" in found
    for hook, field in found.items():
        assert len(field.metadata["help"].split()) >= 3, hook
        assert "\n" not in field.metadata["help"], hook
