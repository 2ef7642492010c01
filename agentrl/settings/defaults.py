"""Chooses values that a recipe leaves open, by the kind of its model and by its environment.

There are three kinds: a model made from scratch (`[model.new]`), a pretrained model (`model.path`), and adapters
(`[model.lora]`, or the adapters of a training service).

- A recipe that sets none of `optim.name`, `optim.lr` and `optim.muon_lr` gets all values of its kind of model
  (`of_kind`): the optimiser and the rates for training and, if [warmup.optim] sets none of these three keys, for the
  warm-up. For a model made from scratch these are also the schedules, the weight decay, the numbers of mini-batches,
  the number of warm-up episodes per batch, the rate of the critic and the vocabulary. If the recipe sets only the name,
  the rates of training are chosen.
- A model made from scratch begins with a warm-up, answers only with listed actions, and gets the options that the
  environment's file proposes for such a model (`SMALL_MODEL`). The warm-up clones the environment's expert. Without an
  expert, it clones the best episodes of random actions, because a model that never wins learns nothing from rewards.
- The context of a model made from scratch has room for long episodes. If each observation shows everything (`MARKOV` of
  the environment's file), the model sees only the newest observation. A new run lowers `limits.turns` to what the
  expert's episodes need (`turns_of`), and `warmup.episodes` if these episodes are long (`clone_episodes_of`).
- With a training service as learner, `run.deterministic` is false, because services do not promise to repeat answers.
- The expert is `expert`, else the first name that the environment declares, else `random`.
- A recipe that sets `optim.lr` without `optim.name` is taken as it is written: AdamW trains at that rate, and only the
  expert is chosen.

Every chosen value is written into the run's configuration, and --resume reads it from there. Nothing is chosen for a
stored configuration: an option that is missing there is newer than the run, and gets its default, which does not change
the run.
"""

import datetime
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal

from agentrl.config import Entry, merge
from agentrl.engines import EngineFile, EngineOptions
from agentrl.env import RANDOM, EnvironmentFile, Limits
from agentrl.model.sections import ModelConfig, NewModel
from agentrl.settings.sections import Tables

Kind = Literal["new", "pretrained", "adapters"]
IN_WORDS: Mapping[Kind, str] = MappingProxyType(
    {"new": "a model made from scratch", "pretrained": "a pretrained model", "adapters": "adapters"}
)
RATES = ("name", "lr", "muon_lr")
OPTIM: Mapping[Kind, Mapping[str, Any]] = MappingProxyType(
    {
        "new": {"name": "muon", "lr": 1e-3, "muon_lr": 0.005},
        "pretrained": {"name": "adamw", "lr": 1e-6, "muon_lr": 1e-5},
        "adapters": {"name": "adamw", "lr": 1e-5, "muon_lr": 1e-4},
    }
)
CLONING: Mapping[Kind, Mapping[str, Any]] = MappingProxyType(  # section [warmup.optim]
    {
        "new": {"lr": 4e-3, "muon_lr": 0.03, "schedule": "cosine"},
        "pretrained": {"lr": 1e-5, "muon_lr": 1e-4},
        "adapters": {"lr": 1e-4, "muon_lr": 1e-3},
    }
)
BESIDE: Mapping[Kind, Mapping[str, Any]] = MappingProxyType(  # chosen together with the rates
    {
        "new": {
            "optim.schedule": "cosine",
            "optim.weight_decay": 0.0,
            "update.minibatches": 4,
            "warmup.episodes": 128,
            "warmup.minibatches": 8,
            "critic.lr": 1e-3,
            "model.new.vocabulary": "open",
        },
        "pretrained": {},
        "adapters": {},
    }
)
WARMUP_WORDS = 65_536  # largest number of words per update of the warm-up, if FEWEST_CLONED episodes have fewer
FEWEST_CLONED = 32
BY_ENVIRONMENT = {  # key whose value the kind of model alone does not decide -> its chosen values, in words
    "warmup.expert": 'the environment\'s expert, else "random"',
    "warmup.updates": 'for a model made from scratch 50, or 30 if its expert is "random"; for other models 0',
    "warmup.episodes": "if the recipe sets neither this key nor warmup.updates and a model made from scratch clones an "
    f"expert: fewer, at least {FEWEST_CLONED}, if the expert's episodes are so long that an update would have more "
    f"than {WARMUP_WORDS:,} words; the run plays the expert to count them when it begins",
    "warmup.clone": '"best" for a model made from scratch whose expert is "random", else "all"',
    "engine.hf.actions": '"listed" for a model made from scratch',
    "model.new.max_positions": "4096, or engine.max_context if that is larger",
    "engine.hf.max_context": "for a model made from scratch: the smallest max_positions of all models of the run that "
    "are made from scratch, those of other agents included",
    "context.name": '"last_k" with k = 0 for a model made from scratch whose environment shows everything in each '
    'observation (`MARKOV` of its file), else "full"',
    "run.date": "for models that are not made from scratch: today's date",
    "limits.turns": "for a model made from scratch that clones an expert: twice the number of turns of the expert's "
    "longest episode, but at least 10 and at most 50; the run plays the expert to count them when it begins",
}
WARMUP_UPDATES = 50  # warm-up updates of a model made from scratch that clones an expert
RANDOM_UPDATES = 30  # warm-up updates of a model made from scratch that clones the best random episodes
POSITIONS = 4096  # longest context in tokens; a large number is cheap, because only used tokens cost memory and time
ROOM = 2  # turns that a model may take per turn of the expert's longest episode
FEWEST_TURNS = 10


def of_kind(kind: Kind) -> dict[str, Any]:
    """The values that are chosen for a kind of model in every environment, by dotted key."""
    optim = {f"optim.{key}": value for key, value in OPTIM[kind].items()}
    return {**optim, **{f"warmup.optim.{key}": value for key, value in CLONING[kind].items()}, **BESIDE[kind]}


def kind_of_model(model: ModelConfig) -> Kind:
    """The kind of a model, by which rates are chosen."""
    if model.lora is not None:
        return "adapters"
    return "pretrained" if model.new is None else "new"


def kind_trained(tables: Tables) -> Kind:
    """The kind of what a recipe trains: a training service trains adapters of a pretrained model."""
    kind = kind_of_model(tables.model)
    return "adapters" if tables.learner.remote and kind == "pretrained" else kind


def choose(given: Tables, env: Entry[EnvironmentFile], engine: EngineFile) -> dict[str, Any]:
    """The values for what a recipe leaves open, by dotted key; see the module.

    Args:
        given: the recipe as it is written.
        env: the environment of the recipe.
        engine: the catalogue file of the recipe's engine.
    """
    kind = kind_trained(given)
    written = as_written(given)
    values = {} if written else _rates(given, kind)
    if "expert" not in given.warmup.model_fields_set:
        values["warmup.expert"] = first_expert(env.hooks)
    if given.learner.remote:
        values["run.deterministic"] = False
    if pretrained(given):
        values["run.date"] = datetime.date.today().isoformat()
    if given.model.new is not None and not written:
        expert = values.get("warmup.expert", given.warmup.expert)
        if "updates" not in given.warmup.model_fields_set:
            values["warmup.updates"] = RANDOM_UPDATES if expert == RANDOM else WARMUP_UPDATES
        if expert == RANDOM:
            values["warmup.clone"] = "best"
        if issubclass(engine.config, EngineOptions):
            values["engine.actions"] = "listed"
        values |= {f"env.{name}": value for name, value in env.hooks.proposed(env.config).items()}
        values |= _room(given, env, engine, given.model.new)
    idle = ["critic."] if given.critic.model == "none" else []
    if not values.get("warmup.updates", given.warmup.updates):
        idle += ["warmup.optim.", "warmup.episodes", "warmup.minibatches", "warmup.clone"]
    return {key: value for key, value in values.items() if not key.startswith((*idle,)) and not _is_set(given, key)}


def pretrained(given: Tables) -> bool:
    """Has the recipe a model that is not made from scratch, whose chat template may write the date?"""
    models = [one.get("model") for one in given.agents.values()]
    return given.model.new is None or any(isinstance(model, dict) and model.get("path") for model in models)


def _room(given: Tables, env: Entry[EnvironmentFile], engine: EngineFile, new: NewModel) -> dict[str, Any]:
    """How much of an episode a model made from scratch sees, and how long its episodes may be."""
    room: dict[str, Any] = {"limits.turns": Limits().turns}  # lowered when the run begins
    if issubclass(engine.config, EngineOptions):
        asked = given.engine.get("max_context")
        positions = new.max_positions if "max_positions" in new.model_fields_set else POSITIONS
        positions = max(positions, asked) if isinstance(asked, int) else positions
        room["model.new.max_positions"] = positions
        room["engine.max_context"] = min([positions, *_other_positions(given)])
    programs = any(one.get("command") or one.get("agent") for one in given.agents.values())
    if "context" not in given.model_fields_set and not programs and env.hooks.is_markov(env.config):
        room |= {"context.name": "last_k", "context.k": 0}
    return room


def _other_positions(given: Tables) -> Iterator[int]:
    """Yields `max_positions` of the models made from scratch in sections [agents.NAME.model]."""
    for one in given.agents.values():
        model = one.get("model")
        new = model.get("new") if isinstance(model, Mapping) else None
        if isinstance(new, Mapping):
            positions = new.get("max_positions", NewModel().max_positions)
            yield from [positions] if isinstance(positions, int) else []  # validation refuses other values


def turns_of(longest: int) -> int:
    """`limits.turns` of a model that clones an expert whose longest episode had `longest` turns."""
    return min(max(ROOM * longest, FEWEST_TURNS), Limits().turns)


def clone_episodes_of(length: int, minibatches: int) -> int:
    """`warmup.episodes` of a model that clones an expert whose episodes have `length` words on average.

    It is the largest multiple of `minibatches` with which an update has at most WARMUP_WORDS words, but at least
    FEWEST_CLONED, and at most the number that is chosen for short episodes.
    """
    most = int(BESIDE["new"]["warmup.episodes"])
    fitting = WARMUP_WORDS // max(1, length) // minibatches * minibatches
    return min(max(fitting, FEWEST_CLONED), most)


def _rates(given: Tables, kind: Kind) -> dict[str, Any]:
    """The chosen values of [optim], [warmup.optim] and `BESIDE`, by dotted key."""
    rates = {*RATES} & given.optim.model_fields_set
    values = {f"optim.{key}": value for key, value in OPTIM[kind].items()}
    if "name" in rates and given.optim.name == "adamw":
        del values["optim.muon_lr"]  # has no effect
    if not rates:
        values |= BESIDE[kind]
        if not {*RATES} & {*given.warmup.optim}:
            values |= {f"warmup.optim.{key}": value for key, value in CLONING[kind].items()}
    return values


def as_written(given: Tables) -> bool:
    """Does the recipe set `optim.lr` without `optim.name`? Then only the expert is chosen."""
    fields = given.optim.model_fields_set
    return "lr" in fields and "name" not in fields


def first_expert(env: EnvironmentFile) -> str:
    """The default expert of an environment, if the recipe names no expert."""
    if env.knows_expert("expert"):
        return "expert"
    return env.experts[0] if env.experts else RANDOM


def for_own_model(model: ModelConfig, main: ModelConfig, optim: Mapping[str, Any], chosen: bool) -> dict[str, Any]:
    """Section [agents.NAME.optim] of an agent with a model of its own.

    Args:
        model: the agent's model.
        main: the model of [model].
        optim: what the recipe sets in this section.
        chosen: True if the rates of [optim] were chosen for `main`, False if the recipe sets them.
    """
    kind = kind_of_model(model)
    if not chosen or kind == kind_of_model(main) or {*RATES} & {*optim}:
        return dict(optim)
    return {**OPTIM[kind], **optim}


def note(given: Tables) -> str:
    """A note if the recipe sets `optim.lr` without `optim.name` for a model made from scratch; else empty."""
    if kind_of_model(given.model) != "new" or not as_written(given):
        return ""
    return (
        "optim.lr is set and optim.name is not: AdamW trains at that rate, and no warm-up, mini-batches, schedule or "
        "form of answers is chosen for a model made from scratch; add optim.name (muon or adamw) to have them chosen"
    )


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Tables from dotted keys."""
    tables: dict[str, Any] = {}
    for path, value in values.items():
        for key in reversed(path.split(".")):
            value = {key: value}
        tables = merge(tables, value)
    return tables


def stored_value(tables: Mapping[str, Any], path: str) -> Any:
    """The value of a dotted key in nested tables; None if the tables do not have the key."""
    value: Any = tables
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _is_set(given: Tables, path: str) -> bool:
    """Does the recipe set this key?"""
    value: Any = given
    for key in path.split("."):
        if isinstance(value, Mapping):
            if key not in value:
                return False
            value = value[key]
        elif key not in value.model_fields_set:
            return False
        else:
            value = getattr(value, key)
    return True
