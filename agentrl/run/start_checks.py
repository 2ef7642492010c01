"""The checks before a run begins, and the notes of a dry run."""

import re
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from agentrl.config import Entry
from agentrl.env import ENDLESS, EnvironmentFile, panel_tasks, read_panel, tasks_of
from agentrl.model import ModelConfig, check_fits, check_stored, check_tokenizer, device_named
from agentrl.run.endpoints import tried_endpoints
from agentrl.run.entry_check import check_made, check_sampler
from agentrl.run.first_task import first_tasks, only_here
from agentrl.run.folder import RunFolder, check_folder
from agentrl.run.known_rows import first_prompt_notes, model_chat, program_notes
from agentrl.settings import Settings, turns_of
from agentrl.tool_env import RowTasks
from agentrl.types import Task
from agentrl.user_code import placed

FIRST = re.compile(r"(?:\([^)]*\)|[^,(])+")  # the first item of a list; commas inside brackets do not divide items
OWN_LIMITS = ("max_steps", "max_turns")  # options of environments for the largest number of steps of an episode

CheckTrackers = Callable[[Sequence[Any]], None]
"""Raises ValueError if a package that one of the trackers needs is missing."""


class Objection(NamedTuple):
    """One thing that a run lacks before its first rollout.

    Attributes:
        part: data, model, device, engine, endpoint, package, folder or recipe.
        text: one sentence.
        here: True: this machine lacks something, and another may have it. False: the recipe is wrong everywhere.
    """

    part: str
    text: str
    here: bool


def objections(settings: Settings, check_trackers: CheckTrackers, *, resume: bool = False) -> list[Objection]:
    """What speaks against a run, as far as this can be known without torch and without servers.

    `agentrl train`, `agentrl train --dry-run` and `agentrl doctor` call this function, so they agree.

    Args:
        settings: the run's settings.
        check_trackers: `agentrl.trackers.check_packages`, which the core does not import.
        resume: whether a stored run continues. If it does, models are not checked, because the checkpoint may hold
            them, and nothing is tried of the expert.
    """
    found = [] if resume else [Objection("recipe", text, False) for text in _refusal(settings.check_new)]
    found += [Objection("recipe", text, False) for text in _refusal(check_made, settings)]
    found += _of_folder(settings, resume)
    found += [Objection("data", *wrong) for wrong in _of_tasks(settings, resume)]
    context = getattr(settings.engine.config, "max_context", None)
    for plan in () if resume else settings.policies.values():
        remote = settings.tables.learner.remote
        found += _of_tokenizer(plan.model) if remote else _of_model(plan.model, context)
    found += [Objection("package", text, True) for text in _of_packages(settings, check_trackers)]
    return list(dict.fromkeys(found))


def _of_folder(settings: Settings, resume: bool) -> list[Objection]:
    if wrong := _refusal(check_folder, settings.folder):
        return [Objection("folder", text, False) for text in wrong]
    stored = (settings.folder / "config.toml").is_file()
    if resume and stored:  # `open_run` compares the stored configuration with the recipe
        return []
    refuse = RunFolder(settings.folder).refuse
    return [Objection("folder", text, stored) for text in _refusal(lambda: refuse({}, resume=resume))]


def _of_tasks(settings: Settings, resume: bool) -> Iterator[tuple[str, bool]]:
    same = settings.tables.eval.panel is None and settings.env.dump() == settings.eval_env.dump()
    if same:
        yield (
            "env and eval.env have the same options, so the evaluation tasks are training tasks too: give env and "
            "eval.env different splits",
            False,
        )
    where = ""
    try:
        tasks = tasks_of(settings.env)
        where = "in [eval.env]: " if settings.tables.eval.panel is None else ""
        held_out = held_out_tasks(settings)
    except (ValueError, OSError) as error:
        yield f"{where}{placed(error)}", only_here(error)
        return
    if not same:
        yield from ((text, False) for text in _refusal(check_disjoint, tasks, held_out))
    yield from ((text, False) for text in _refusal(check_sampler, settings, tasks))
    if not resume:
        yield from first_tasks(settings, tasks, held_out)


def _of_model(model: ModelConfig, max_context: int | None) -> list[Objection]:
    if missing := _refusal(check_stored, model):
        return [Objection("model", text, not Path(model.path).expanduser().exists()) for text in missing]
    return [
        Objection("package" if "needs peft" in text else "model", text, "needs peft" in text)
        for text in _refusal(check_fits, model, max_context)
    ]


def _of_tokenizer(model: ModelConfig) -> list[Objection]:
    """What speaks against the tokenizer of a model whose weights a training service holds."""
    here = not Path(model.path).expanduser().exists()
    return [Objection("model", text, here) for text in _refusal(check_tokenizer, model)]


def _of_packages(settings: Settings, check_trackers: CheckTrackers) -> Iterator[str]:
    address = settings.tables.cluster.address
    if address and find_spec("ray") is None:
        how = "pip install 'agentrl-stepgraph[ray]', or leave cluster.address empty"
        yield f"cluster.address = {address!r} needs Ray: {how}"
    for tracker in settings.trackers:
        yield from _refusal(check_trackers, [tracker])


def machine_objections(settings: Settings, needs: str = "") -> list[Objection]:
    """What this machine lacks for a run: its devices, what its engine and its service need, and servers that answer.

    `agentrl train` and `agentrl doctor` call this function; a dry run does not, because it needs torch and tries
    servers.

    Args:
        settings: the run's settings.
        needs: the text after `# Needs:` in the recipe; empty if the recipe has no such line.
    """
    return [*_of_engine(settings), *_of_service(settings), *_of_devices(settings, needs), *_of_endpoints(settings)]


def _of_engine(settings: Settings) -> list[Objection]:
    hook, cluster = settings.engine.hooks.check_here, settings.tables.cluster
    if hook is None or (cluster.address and cluster.engines):  # a cluster's engines may be on other machines
        return []
    return [Objection("engine", text, True) for text in _refusal(hook, settings.engine.config)]


def _of_service(settings: Settings) -> list[Objection]:
    return [Objection("endpoint", text, True) for text in _refusal(settings.check_here)]


def _of_devices(settings: Settings, needs: str) -> list[Objection]:
    if settings.tables.learner.remote:  # its devices are not this machine's
        return []
    address = settings.tables.cluster.address
    wrong = [text for plan in settings.policies.values() for text in _of_device(plan.model, needs, address)]
    return [Objection("device", text, True) for text in dict.fromkeys(wrong)]


def _of_endpoints(settings: Settings) -> list[Objection]:
    """A machine of a cluster may reach servers that this machine does not reach, so they are not asked for one."""
    tried = [] if settings.tables.cluster.address else tried_endpoints(settings)
    return [
        Objection(
            "endpoint", f"{one.key} = {one.shown!r} accepts no connection ({one.why}): start the server there", True
        )
        for one in tried
        if one.why and not one.beside
    ]


def _of_device(model: ModelConfig, needs: str, address: str) -> list[str]:
    """The line of needs is about the recipe's own model, so it does not hold for a small model from scratch."""
    if model.device.startswith("cuda"):
        return _refusal(device_named, model.device)
    if model.device != "auto" or model.new is not None or address or not needs.startswith("a GPU"):
        return []
    import torch

    if torch.cuda.is_available():
        return []
    first = FIRST.match(needs)
    return [
        f"the recipe needs {first.group() if first else 'a GPU'}, and torch finds no CUDA device: model.device=cpu "
        "trains on the CPU all the same"
    ]


def check_beginning(
    settings: Settings, check_trackers: CheckTrackers, *, resume: bool = False, needs: str = ""
) -> None:
    """Check all that `objections` and `machine_objections` check.

    The recipe and the engine come first, so that their mistakes are told before torch is imported.

    Raises:
        ValueError: there are objections; the sentences are joined.
    """
    wrong = objections(settings, check_trackers, resume=resume) or [*_of_engine(settings), *_of_service(settings)]
    wrong = wrong or [*_of_devices(settings, needs), *_of_endpoints(settings)]
    if wrong:
        raise ValueError("; ".join(one.text for one in wrong))


def _refusal(check: Callable[..., object], *values: Any) -> list[str]:
    """The sentence of the ValueError or OSError that a check of `values` raises; empty if it raises none."""
    try:
        check(*values)
    except (ValueError, OSError) as error:
        return [placed(error)]
    return []


def held_out_tasks(settings: Settings) -> list[Task]:
    """The held-out tasks of a run: those in the file `eval.panel`, else the first `eval.tasks` of [eval.env]."""
    chosen = settings.tables.eval
    if chosen.panel is not None:
        return panel_tasks(settings.eval_env, read_panel(Path(chosen.panel)))
    tasks = tasks_of(settings.eval_env)
    return [tasks[i] for i in range(min(chosen.tasks, len(tasks)))]


def dry_run_notes(
    settings: Settings, check_trackers: CheckTrackers, *, resume: bool = False, needs: str = ""
) -> list[str]:
    """The notes of a dry run; the arguments are those of `check_beginning`.

    They name options of the environment that end an episode before `limits.turns`, things that are missing on this
    machine, the column that divides a user's rows into training and held-out rows, and rows whose first prompts do not
    fit the model's context. If a program plays the tasks, they describe the chat template of its model.

    Raises:
        ValueError: there are `objections` that hold on every machine, or the first prompts of too many rows do not fit
            the model's context. What is missing on this machine is then named, too.
    """
    found = objections(settings, check_trackers, resume=resume)
    if any(not one.here for one in found):
        raise ValueError("; ".join(one.text for one in sorted(found, key=lambda one: one.here)))
    notes = [*turns_note(settings), *program_notes(settings)]
    if not any(one.part == "data" for one in found):
        tasks, held_out = tasks_of(settings.env), held_out_tasks(settings)
        notes += filter(None, [division_note(tasks)])
        notes += first_prompt_notes(settings, tasks, held_out, lambda: model_chat(settings))
    for part, text, _ in found:
        unread = "the tasks cannot be read here, so they were not checked: " if part == "data" else ""
        notes.append(f"{unread}{text}")
    return [*notes, *_doctor(settings, found, needs)]


def _doctor(settings: Settings, missing: Sequence[Objection], needs: str) -> list[str]:
    """A note that names `agentrl doctor` if something is missing, or if needs of this machine were not checked."""
    if missing:
        return ["agentrl doctor, with the same recipe and options, lists all that is missing on this machine"]
    unchecked = [f"engine.name={settings.engine.name}"] if settings.engine.hooks.check_here is not None else []
    plans = () if settings.tables.learner.remote else settings.policies.values()
    devices = list(dict.fromkeys(plan.model.device for plan in plans))
    unchecked += [f"model.device={name}" for name in devices if name.startswith("cuda")]
    unchecked += ["a recipe for GPUs"] if "auto" in devices and needs.startswith("a GPU") else []
    if settings.tables.cluster.address not in ("", "local"):
        unchecked.append(f"cluster.address={settings.tables.cluster.address}")
    if settings.tables.learner.processes > 1:
        unchecked.append(f"learner.processes={settings.tables.learner.processes}")
    if not unchecked:
        return []
    return [
        f"the needs of {' and '.join(unchecked)} were not checked: agentrl doctor, with the same recipe and options, "
        "checks them"
    ]


def turns_note(settings: Settings) -> list[str]:
    """Notes on environment options that end an episode before `limits.turns`.

    One more note follows if the run will choose `limits.turns` itself, from the expert's longest episode.
    """
    turns, chosen = settings.tables.limits.turns, settings.chosen.get("limits.turns")
    found = []
    for name in OWN_LIMITS:
        limit = getattr(settings.env.config, name, None)
        if isinstance(limit, int) and limit < turns:
            found.append(f"the environment ends its episodes before limits.turns = {turns}: env.{name} = {limit}")
    if chosen is not None and settings.tables.warmup.updates:
        found.append(
            f"limits.turns = {chosen} is the upper limit: when the run begins, it becomes twice the turns of the "
            f"longest episode of warmup.expert={settings.tables.warmup.expert}, and at least {turns_of(0)}"
        )
    return found


def leaves_report(settings: Settings) -> str:
    """A note on the number of episodes per task; empty if this number is `batch.copies`."""
    copies = settings.tables.batch.copies
    leaves = settings.rollout.hooks.leaves(settings.rollout.config, copies)
    if leaves == copies:
        return ""
    return f"rollout.name={settings.rollout.name} scores {leaves} episodes per task; batch.copies={copies} is not used"


def leak_note(entry: Entry[EnvironmentFile]) -> str:
    """A note if a trial shows that a tool server keeps state from one episode to the next; else empty.

    The trial plays short random episodes, each of them twice. It is made only if the environment has a tool server that
    all episodes share.
    """
    setup = getattr(entry.hooks.make, "setup", None)
    servers = [] if setup is None else setup.shared_servers(entry.config)
    if not servers:
        return ""
    from agentrl.gym import difference_when_repeated  # importing gymnasium is slow

    found = difference_when_repeated(entry)
    if not found:
        return ""
    name = servers[0]
    return (
        f"{found}; the server of the tool {name!r} keeps state from one episode to the next, so rewards depend on what "
        f"was played before: set env.tools.{name}.episode=restart, or episode=reset with reset_tool (docs/tools.md)"
    )


def division_note(tasks: Sequence[Task]) -> str:
    """A note on the column that divides a user's rows into training and held-out rows; empty if there is none."""
    return str(tasks.division or "") if isinstance(tasks, RowTasks) and tasks.split != "all" else ""


def check_disjoint(train: Sequence[Task], held_out: Sequence[Task]) -> None:
    """Raises ValueError if a held-out task is among the training tasks.

    If the list of training tasks has no end, only its first n tasks are searched, where n is the number of held-out
    tasks. This search finds the usual mistake, that both environments have the same tasks.
    """
    searched = len(train) if len(train) <= ENDLESS else len(held_out)
    both = {task.key for task in held_out} & {train[i].key for i in range(searched)}
    if both:
        raise ValueError(
            f"{len(both)} evaluation tasks are training tasks too, such as {sorted(both)[0]}: "
            "give env and eval.env different splits"
        )
