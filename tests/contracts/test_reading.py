"""How a file is read: which hooks it must have, what they must be, and what is said of one that is nearly a hook."""

from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel

from agentrl import catalogue


class Config(BaseModel, frozen=True, extra="forbid"):
    pass


Config.__module__ = "mine"


def function(*arguments: Any) -> Any:
    """A hook or a helper, as if the file had defined it."""


function.__module__ = "mine"

MANDATORY = {
    "envs": ("make", "tasks"),
    "tools": ("make",),
    "credit": ("credit",),
    "loss": ("loss",),
    "rollout": ("rollout", "leaves"),
    "context": ("ask",),
    "reward": ("reward",),
    "score": ("make", "signals"),
    "sampler": ("make",),
    "guide": ("make",),
    "replay": ("retrieve", "joins"),
    "regularizer": ("make",),
    "engine": ("make",),
    "tracker": ("make",),
}


def module(kind: str, /, without: str = "", **more: Any) -> ModuleType:
    """The smallest file of a catalogue, less one name, and more of them."""
    made = ModuleType("mine")
    hooks = {"Config": Config, **dict.fromkeys(MANDATORY[kind], function), **more}
    vars(made).update({hook: value for hook, value in hooks.items() if hook != without})
    return made


def read(kind: str, made: ModuleType) -> Any:
    return catalogue.read(made, catalogue.class_of(kind))


def refusal(kind: str, made: ModuleType) -> str:
    with pytest.raises(ValueError) as caught:
        read(kind, made)
    sentence = str(caught.value)
    assert "\n" not in sentence and "'mine'" in sentence and catalogue.KINDS[kind].word in sentence
    return sentence


def test_the_table_of_mandatory_hooks_is_complete():
    assert set(MANDATORY) == set(catalogue.KINDS)


@pytest.mark.parametrize("kind", sorted(MANDATORY))
def test_the_smallest_file_has_the_defaults_of_all_other_hooks(kind):
    found = read(kind, module(kind))
    assert found.config is Config and found.module == found.name == "mine" and found.about == ""
    for hook, field in catalogue.hooks_of(type(found)):
        value = getattr(found, field.name)
        assert (value is function) == (hook in MANDATORY[kind]), hook
        if hook not in ("Config", *MANDATORY[kind]):
            assert value in (None, False, "", (), {}, "chain", "chains", "token-mean", "step", "rows"), hook


@pytest.mark.parametrize(("kind", "hook"), [(k, hook) for k, hooks in MANDATORY.items() for hook in (*hooks, "Config")])
def test_a_mandatory_hook_that_is_missing_is_named(kind, hook):
    assert f"its file has no {hook}" in refusal(kind, module(kind, without=hook))


def test_all_missing_hooks_are_named_at_once():
    with pytest.raises(
        ValueError, match=r"'os\.path' is no environment: its file has no Config and no make and no tasks"
    ):
        catalogue.load("envs", "os.path")


@pytest.mark.parametrize(
    ("kind", "wrong", "value", "meant"),
    [
        ("credit", "NEED", ("value",), "NEEDS"),
        ("credit", "needs", ("value",), "NEEDS"),
        ("credit", "Paper", "X, arXiv:0000.00000", "PAPER"),
        ("credit", "CANDIDATE", True, "CANDIDATES"),
        ("credit", "WRAP", True, "WRAPS"),
        ("credit", "On", "nodes", "ON"),
        ("credit", "fillers", function, "filler"),
        ("rollout", "FILL", ("tree",), "FILLS"),
        ("rollout", "Entropy", True, "ENTROPY"),
        ("envs", "expet", function, "expert"),
        ("envs", "EXPERT", ("one",), "EXPERTS"),
        ("envs", "Waits", True, "WAITS"),
        ("envs", "HEAVVY", True, "HEAVY"),
        ("envs", "MEASURE", ("won",), "MEASURES"),
        ("envs", "Prompt", function, "prompt"),
        ("envs", "gymnasium_ids", {}, "GYMNASIUM_IDS"),
        ("tools", "runer", function, "runner"),
        ("loss", "ZERO_WITHOUT_CREDITS", True, "ZERO_WITHOUT_CREDIT"),
        ("context", "rewriten", function, "rewritten"),
        ("context", "PAPERS", "X", "PAPER"),
        ("sampler", "Keep", function, "keep"),
        ("regularizer", "ENTROPI", True, "ENTROPY"),
        ("engine", "WEIGHT", True, "WEIGHTS"),
    ],
)
def test_a_misspelt_optional_hook_is_refused_with_the_nearest_name(kind, wrong, value, meant):
    assert f"its file has {wrong}, which is nearly the hook {meant}: rename {wrong}" in refusal(
        kind, module(kind, **{wrong: value})
    )


@pytest.mark.parametrize(
    ("kind", "wrong", "meant"),
    [
        ("rollout", "leafs", "leaves"),
        ("rollout", "roll_out", "rollout"),
        ("envs", "task", "tasks"),
        ("credit", "credits", "credit"),
        ("loss", "Loss", "loss"),
        ("reward", "rewards", "reward"),
        ("context", "asks", "ask"),
        ("tools", "config", "Config"),
        ("engine", "maker", "make"),
    ],
)
def test_a_misspelt_mandatory_hook_is_refused_with_the_nearest_name(kind, wrong, meant):
    made = module(kind, without=meant, **{wrong: Config if meant == "Config" else function})
    assert f"its file has {wrong}, which is nearly the hook {meant}: rename {wrong}" in refusal(kind, made)


HOOKS = [(kind, hook) for kind in sorted(MANDATORY) for hook, _ in catalogue.hooks_of(catalogue.class_of(kind))]


@pytest.mark.parametrize(("kind", "hook"), [(kind, hook) for kind, hook in HOOKS if len(hook) > 2])
def test_one_letter_more_is_refused_for_every_hook(kind, hook):
    """The law behind the tables above: a hook whose last letter is written twice is not taken for a helper."""
    value = Config if hook == "Config" else (1,) if hook.isupper() else function
    wrong = hook + hook[-1]
    assert f"its file has {wrong}, which is nearly the hook {hook}" in refusal(
        kind, module(kind, without=hook, **{wrong: value})
    )


@pytest.mark.parametrize(("kind", "hook"), [(kind, hook) for kind, hook in HOOKS if not hook.isupper()])
def test_a_hook_of_lower_case_must_be_a_function(kind, hook):
    word = {"Config": "a class", "commands": "a mapping"}.get(hook, "a function")
    assert f"its {hook} is 3, and must be {word}" in refusal(kind, module(kind, **{hook: 3}))


@pytest.mark.parametrize(
    ("kind", "hook", "value", "due"),
    [
        ("credit", "NEEDS", "value", "its NEEDS is 'value', and must be a tuple of names, such as ('a',)"),
        ("credit", "READS", 3, "its READS is 3, and must be a tuple of names"),
        ("credit", "NEEDS", (1, 2), "its NEEDS is (1, 2), and must be a tuple of names"),
        ("envs", "EXPERTS", "best", "its EXPERTS is 'best', and must be a tuple of names"),
        ("envs", "MEASURES", "won", "its MEASURES is 'won', and must be a tuple of names"),
        ("rollout", "FILLS", "tree", "its FILLS is 'tree', and must be a tuple of names"),
        ("credit", "ON", "node", "its ON is 'node', and must be 'chains' or 'nodes' or 'tokens'"),
        ("credit", "WRAPS", "yes", "its WRAPS is 'yes', and must be True or False"),
        ("loss", "ZERO_WITHOUT_CREDIT", 1, "its ZERO_WITHOUT_CREDIT is 1, and must be True or False"),
        ("envs", "WAITS", "no", "its WAITS is 'no', and must be True or False or a function"),
        ("envs", "GYMNASIUM_IDS", ("a",), "its GYMNASIUM_IDS is ('a',), and must be a mapping"),
        ("context", "PAPER", 2510, "its PAPER is 2510, and must be a text"),
    ],
)
def test_a_constant_of_another_type_is_refused(kind, hook, value, due):
    assert due in refusal(kind, module(kind, **{hook: value}))


@pytest.mark.parametrize("names", [("value",), ["value"], frozenset({"value"}), ()])
def test_names_may_stand_in_any_collection(names):
    assert list(read("credit", module("credit", NEEDS=names)).needs) == list(names)


@pytest.mark.parametrize("waits", [True, False, function])
def test_whether_steps_wait_may_be_a_constant_or_a_function(waits):
    assert read("envs", module("envs", WAITS=waits)).waits is waits


@pytest.mark.parametrize("hook", [hook for kind, hook in HOOKS if kind == "envs" and hook not in MANDATORY["envs"]])
def test_a_sub_module_with_a_hooks_name_is_no_hook(hook):
    if hook == "Config":
        assert "has no Config" in refusal("envs", module("envs", Config=ModuleType("mine.Config")))
        return
    plain, beside = module("envs"), module("envs", **{hook: ModuleType(f"mine.{hook}")})
    assert read("envs", beside) == read("envs", plain)


def test_alfworld_has_a_sub_module_facts_and_no_hook_of_that_name():
    from agentrl.envs.alfworld import facts

    assert isinstance(facts, ModuleType) and catalogue.load("envs", "alfworld").facts is None


@pytest.mark.parametrize("kind", sorted(MANDATORY))
def test_helpers_and_constants_of_other_names_are_fine(kind):
    helpers = {"helper": function, "advantage": function, "EPSILON": 1e-6, "Table": Config, "_maker": function}
    assert read(kind, module(kind, **helpers)) == read(kind, module(kind))


def test_an_imported_function_with_nearly_a_hooks_name_is_no_slip():
    """`from elsewhere import experts` is used by the file, and is not its own."""

    def experts() -> None: ...

    assert experts.__module__ != "mine"
    assert read("envs", module("envs", experts=experts)).expert is None


def test_what_is_no_entry_is_refused_with_the_nearest_names():
    with pytest.raises(ValueError, match=r"unknown credit method 'gigp0': did you mean gigpo\?"):
        catalogue.load("credit", "gigp0")
    with pytest.raises(ValueError, match="unknown engine 'zzz': known are hf, openai"):
        catalogue.load("engine", "zzz")
    with pytest.raises(ValueError, match=r"tool 'no\.such\.module' cannot be imported"):
        catalogue.load("tools", "no.such.module")
