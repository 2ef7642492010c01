"""Resolves the environment that an evaluation plays, with its held-out tasks, and describes it in one line."""

from collections.abc import Mapping
from typing import Any, get_args

from agentrl.config import Entry, merge, resolve
from agentrl.env import EnvironmentFile, Prompt, benchmark_of, native

TRAINED_ON = "train"
CONFIG_KEYS = ("preset", "source", "level", "levels", "data", "games", "rows")  # options that say which tasks there are


def evaluated_entry(
    name: str, base: Mapping[str, Any], told: Mapping[str, Any], *, language_model: bool
) -> Entry[EnvironmentFile]:
    """The environment as an evaluation plays it.

    The environment plays the held-out tasks (see `held_out`), unless `told` chooses other tasks. A language model that
    was not trained here gets the options `EnvironmentFile.for_models`, except options that `told` names or that `base`
    sets to another value than the default.

    Args:
        name: name of the environment.
        base: options that the policy was trained with.
        told: options for the evaluation, from the user or from a run's section [eval.env]; they override all others.
        language_model: is the policy a language model that was not trained here?
    """
    options = merge({"name": name, **base}, told)
    entry = resolve(EnvironmentFile, options, "env")
    chosen = {key: value for key, value in held_out(entry).items() if key not in told}
    if language_model:
        own = type(entry.config).model_fields
        chosen |= {
            key: value
            for key, value in entry.hooks.for_models.items()
            if key not in told and getattr(entry.config, key) == own[key].default
        }
    return resolve(EnvironmentFile, merge(options, chosen), "env") if chosen else entry


def held_out(entry: Entry[EnvironmentFile]) -> Mapping[str, Any]:
    """The options that select the held-out tasks.

    The result is empty in these cases:

    - the environment has no option `split`, or does not say which tasks are held out;
    - the option `split` has another value than `train` and the default;
    - `games` names files of the user; or `rows` does, and the split is not `train`.
    """
    split = getattr(entry.config, "split", None)
    field = type(entry.config).model_fields.get("split")
    if field is None or split not in (TRAINED_ON, field.default):
        return {}
    if getattr(entry.config, "games", "") or (split != TRAINED_ON and getattr(entry.config, "rows", "")):
        return {}  # all tasks of the user's own files are played
    if entry.hooks.held_out:
        return entry.hooks.held_out
    return {"split": "test"} if split == TRAINED_ON and "test" in get_args(field.annotation) else {}


def header(
    entry: Entry[EnvironmentFile],
    prompt: Prompt,
    policy: Mapping[str, object],
    *,
    tasks: int,
    samples: int,
    panel: str = "",
    masked: bool = False,
    speaks: bool = True,
) -> str:
    """One line that says what is played.

    Args:
        entry: the environment.
        prompt: the environment's prompt.
        policy: description of the policy.
        tasks: number of tasks.
        samples: how often each task is played.
        panel: file of task keys, if there is one.
        masked: answers are restricted to the admissible actions.
        speaks: True if the policy is a language model; the line then also names the prompt and the sampling.
    """
    parts = [f"panel {panel}" if panel else _split(entry), *_options(entry)]
    parts.append(f"{tasks} tasks, " + ("each once" if samples == 1 else f"{samples} samples of each"))
    if speaks:
        parts += [_prompt(entry, prompt), "answers masked to the admissible actions" if masked else "free answers"]
        parts.append(_sampling(policy))
    return f"playing {benchmark_of(entry)}: " + "; ".join(part for part in parts if part)


def _split(entry: Entry[EnvironmentFile]) -> str:
    split = getattr(entry.config, "split", None)
    if getattr(entry.config, "games", ""):
        return ""
    if split is None:
        return "no splits"
    if split == "all":
        return "split all (training tasks included; split=test for the held-out ones)"
    return f"split {split} " + ("(training tasks)" if split == TRAINED_ON else "(held out)")


def _options(entry: Entry[EnvironmentFile]) -> list[str]:
    """The words that say which tasks there are: from the hook `played`, else the options `CONFIG_KEYS` that are set."""
    if entry.hooks.played is not None:
        return [entry.hooks.played(entry.config)]
    values = {key: getattr(entry.config, key, None) for key in CONFIG_KEYS}
    return [f"{key} {value}" for key, value in values.items() if value and value != "none"]


def _prompt(entry: Entry[EnvironmentFile], prompt: Prompt) -> str:
    if native(prompt):
        return "tools and calls as data (native)"
    form = getattr(prompt, "form", None)
    named = getattr(entry.config, "prompt", None) or type(prompt).__name__.lower()
    return f"tools and calls as text ({form.name})" if form is not None else f"prompt {named}"


def _sampling(policy: Mapping[str, object]) -> str:
    sampling = policy.get("sampling", policy)
    assert isinstance(sampling, Mapping)
    temperature, top_p = sampling.get("temperature"), sampling.get("top_p")
    words = [f"top_p {top_p:g}"] if top_p not in (None, 1, 1.0) else []
    if temperature is None:
        words = ["the server's own temperature", *words]
    else:
        words = ["greedy" if temperature == 0 else f"temperature {temperature:g}", *words]
    most = sampling.get("max_tokens")
    return "sampling: " + ", ".join([*words, *([f"at most {most} tokens per turn"] if most else [])])
