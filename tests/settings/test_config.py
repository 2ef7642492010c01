"""Configuration and catalogues: what is unknown is named with its nearest neighbour, in one sentence."""

import pickle
from types import ModuleType, SimpleNamespace
from typing import Literal

import pytest
from pydantic import BaseModel, Field

from agentrl import catalogue
from agentrl.config import merge, override, parse_value, resolve, validate
from agentrl.files import read_toml
from agentrl.settings import Settings
from agentrl.settings.sections import RunSection
from tests.rollout.playing import WALK, entry


class Inner(BaseModel, frozen=True, extra="forbid"):
    gamma: float = Field(0.95, ge=0, le=1)
    how: Literal["mean", "sum"] = "mean"


class Outer(BaseModel, frozen=True, extra="forbid"):
    steps: int
    inner: Inner = Inner()
    perhaps: Inner | None = None


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"steps": 1, "stepz": 2}, r"^unknown key run\.stepz: did you mean steps\?$"),
        ({"steps": 1, "inner": {"gama": 1}}, r"^unknown key run\.inner\.gama: did you mean gamma\?$"),
        ({"steps": 1, "perhaps": {"gama": 1}}, r"unknown key .*gama: did you mean gamma\?$"),
        ({"steps": 1, "zzz": 1}, r"^unknown key run\.zzz: known are inner, perhaps, steps$"),
        ({}, r"^run\.steps is missing: give it a value$"),
        ({"steps": "many"}, r"^run\.steps = 'many': write a whole number$"),
        ({"steps": 1.5}, r"^run\.steps = 1\.5: write a whole number$"),
        (
            {"steps": 1, "inner": {"gamma": 2}},
            r"^run\.inner\.gamma = 2: write a number from 0 to 1",
        ),
        ({"steps": 1, "inner": {"how": "max"}}, r"^run\.inner\.how = 'max': write 'mean' or 'sum'$"),
        ({"steps": 1, "inner": 3}, r"^run\.inner = 3: "),
    ],
)
def test_what_is_wrong_is_named_in_full(values, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        validate(Outer, values, "run")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ({"nam": "gigpo"}, r"^unknown key credit\.nam: did you mean name\?$"),
        ({"gamma": 0.5, "nmae": "gigpo"}, r"^unknown key credit\.nmae: did you mean name\?$"),
        ({"name": "gigpo", "nam": "x"}, r"^unknown key credit\.nam: did you mean name\?$"),
        ({"gamma": 0.5}, r"^credit\.name is missing: known are "),
        ({"name": 3}, r"^credit\.name = 3: it must be a text"),
    ],
)
def test_the_name_of_an_entry_is_among_the_keys_that_may_have_been_meant(section, sentence):
    with pytest.raises(ValueError, match=sentence):
        resolve("credit", section)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.9", 0.9),
        ("3", 3),
        ("true", True),
        ('"3"', "3"),
        ("[1, 2]", [1, 2]),
        ("plain words", "plain words"),
        ("1e-6", 1e-6),
        ("", ""),
        ("runs/a", "runs/a"),
        ("{ a = 1 }", {"a": 1}),
        ("1\ny = 2", "1\ny = 2"),  # a value, not two lines of TOML
    ],
)
def test_values_of_overrides(text, value):
    parsed = parse_value(text)
    assert parsed == value and type(parsed) is type(value)


def test_overrides_apply_in_order_and_leave_the_tables_alone():
    tables = {"credit": {"gamma": 0.5, "name": "gigpo"}}
    result = override(tables, ["credit.gamma=0.9", "run.seed = 3", "credit.gamma=0.8", "a.b.c=x=y"])
    assert result == {"credit": {"gamma": 0.8, "name": "gigpo"}, "run": {"seed": 3}, "a": {"b": {"c": "x=y"}}}
    assert tables == {"credit": {"gamma": 0.5, "name": "gigpo"}}


@pytest.mark.parametrize("text", ["gamma", "credit.gamma", "=3", "credit.=3", ".gamma=3"])
def test_what_is_no_override_says_how_to_write_one(text):
    with pytest.raises(ValueError, match=r"is not an override: write section\.key=value"):
        override({}, [text])


def test_a_date_needs_no_quotation_marks(tmp_path):
    (tmp_path / "recipe.toml").write_text("[run]\ndate = 2026-03-04\n")
    assert RunSection(**read_toml(tmp_path / "recipe.toml")["run"]).date == "2026-03-04"
    assert RunSection(**parse_value("{date = '2026-03-04'}")).date == "2026-03-04"
    with pytest.raises(ValueError, match="'tomorrow' is no date"):
        RunSection(date="tomorrow")


def test_a_value_is_no_section():
    with pytest.raises(ValueError, match="gamma is a value, not a section"):
        override({"gamma": 1}, ["gamma.x=2"])


def test_merge_goes_key_by_key():
    assert merge({"a": {"x": 1, "y": 2}, "b": 1}, {"a": {"y": 3}, "b": {"z": 1}}) == {
        "a": {"x": 1, "y": 3},
        "b": {"z": 1},
    }


def test_broken_files_are_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        read_toml(tmp_path / "absent.toml")
    with pytest.raises(ValueError, match="is a folder"):
        read_toml(tmp_path)
    (tmp_path / "broken.toml").write_text("a = \n")
    with pytest.raises(ValueError, match=r"broken\.toml is not TOML"):
        read_toml(tmp_path / "broken.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="is not TOML"):
        read_toml(tmp_path / "bytes.toml")


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ({"name": "alfwrld"}, "unknown environment 'alfwrld': did you mean alfworld"),
        ({"name": "zzzzzz"}, "unknown environment 'zzzzzz': known are .*alfworld"),
        ({}, r"env\.name is missing: known are"),
        ({"name": 3}, r"env\.name = 3: it must be a text"),
        ({"name": "no.such.module"}, "environment 'no.such.module' cannot be imported: No module named 'no'"),
        ({"name": "../file.py"}, r"no such file: \.\./file\.py"),
        ({"name": "."}, "cannot be imported"),
        ({"name": "agentrl.types"}, "'agentrl.types' is no environment: its file has no Config and no make"),
        ({"name": WALK, "gaol": 1}, r"unknown key env\.gaol: did you mean goal\?"),
        ({"name": WALK, "goal": "far"}, r"env\.goal = 'far': write a whole number"),
    ],
)
def test_sections_that_name_no_entry(section, sentence):
    with pytest.raises(ValueError, match=sentence):
        resolve("envs", section, "env")


def test_every_file_of_a_catalogue_is_an_entry_with_options():
    for kind in ("envs", "credit", "loss", "context", "sampler"):
        for name in catalogue.names(kind):
            module = catalogue.load(kind, name)
            assert module.config.model_config["frozen"] and module.config.model_config["extra"] == "forbid", (
                kind,
                name,
            )
            assert module.__doc__, (kind, name)
    assert {"full", "last_k"} <= set(catalogue.names("context"))
    assert {"uniform", "dynamic", "curriculum"} <= set(catalogue.names("sampler"))


def test_an_installed_package_adds_an_entry(monkeypatch):
    module = ModuleType("theirs")
    vars(module).update(Config=Inner, make=len, tasks=len)
    point = SimpleNamespace(name="theirs", load=lambda: module)
    monkeypatch.setattr(catalogue, "points", lambda kind: [point] if kind == "envs" else [])
    catalogue.forget()
    try:
        assert "theirs" in catalogue.names("envs") and "theirs" not in catalogue.names("credit")
        assert resolve("envs", {"name": "theirs", "gamma": 0.5}).config.gamma == 0.5
    finally:
        catalogue.forget()


def test_the_entry_points_of_a_catalogue_are_selected_once(monkeypatch):
    groups: list[str] = []
    installed = SimpleNamespace(select=lambda group: groups.append(group) or [])
    monkeypatch.setattr(catalogue, "entry_points", lambda: installed)
    catalogue.forget()
    try:
        for _ in range(3):
            assert catalogue.load("envs", "tests.toys.walk") and catalogue.load("credit", "grpo")
        assert sorted(groups) == ["agentrl.credit", "agentrl.envs"]
    finally:
        catalogue.forget()


def test_an_entry_is_dumped_with_its_defaults_and_pickled_by_name():
    made = entry(goal=2)
    assert made.dump() == {"name": WALK, "count": 4, "first": 0, "goal": 2}
    assert pickle.loads(pickle.dumps(made)) == made
    assert made.hooks.module == WALK


def test_an_override_that_names_another_entry_says_how_to_leave_the_old_ones_options_out(tmp_path):
    recipe = tmp_path / "r.toml"
    recipe.write_text('[env]\nname = "alfworld"\n[model]\npath = "some"\n[credit]\nname = "gigpo"\ngamma = 0.9\n')
    with pytest.raises(
        ValueError, match=r"unknown key credit\.gamma.*options of gigpo: write \"credit=\{name='grpo'\}\""
    ):
        Settings.load(recipe, ["credit.name=grpo"])
    assert Settings.load(recipe, ["credit={name='grpo'}"]).credit.name == "grpo"
    with pytest.raises(ValueError, match=r"^unknown key credit\.gama: did you mean gamma\?$"):
        Settings.load(recipe, ["credit.gama=1"])


@pytest.mark.parametrize(
    ("tables", "key"),
    [
        ({"update": {"epo": {"coef": 0.001}}}, "update.epo"),
        ({"update": {"importance_cap": 2.0}}, "update.importance_cap"),
        ({"update": {"norm_tokens": 512}}, "update.norm_tokens"),
        ({"credit": {"name": "graft", "lam": 0.8}}, "credit.lam"),
        ({"log": {"tensorboard": True}}, "log.tensorboard"),
        ({"model": {"new": {"init_std": 0.1}}}, "model.new.init_std"),
    ],
)
def test_keys_from_before_0_2_are_unknown(tables, key):
    with pytest.raises(ValueError, match=f"unknown key {key}: "):
        Settings({"env": {"name": WALK}, "model": {"path": "somewhere"}, **tables})
