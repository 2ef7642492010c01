"""Tries everything that a recipe needs, before a run: data, models, device, engine, endpoints, packages, run folder.

Nothing is trained, no model is downloaded, and no file is left behind. Rows of the hub (`hub:`) are downloaded. An
endpoint may take 3 s to accept a connection, and a running vLLM server 5 s to answer. An environment may take 30 s to
be made and to begin one task. On a GPU the attention kernel is compiled and run once.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from agentrl.chat import Chat, date_of
from agentrl.cluster import check_group, reach_cluster
from agentrl.env import ENDLESS, tasks_of
from agentrl.model import (
    device_named,
    faster_note,
    hub_cache,
    load_tokenizer,
    not_reached,
    precision_note,
    served_tokenizer,
)
from agentrl.model.sections import ModelConfig
from agentrl.run import (
    first_prompt_notes,
    held_out_tasks,
    machine_objections,
    model_chat,
    objections,
    program_notes,
    refusal,
    tried_endpoints,
)
from agentrl.settings import Settings
from agentrl.trackers import check_packages
from agentrl.watchdog import stall_words

HUB = "https://huggingface.co"


class TrialResult(NamedTuple):
    """What one trial found.

    Attributes:
        part: data, model, device, engine, endpoint, package, folder or recipe; watchdog for a run of this name that
            hung.
        state: found, missing (the run cannot work without it), or note.
        text: one sentence.
    """

    part: str
    state: Literal["found", "missing", "note"]
    text: str


def preflight(settings: Settings, needs: str = "") -> list[TrialResult]:
    """Try everything that a recipe needs. Returns the findings of all trials.

    What `agentrl train` would refuse before its first rollout is missing here, in the same words.

    Args:
        settings: the resolved recipe.
        needs: the text after `# Needs:` in the recipe; empty if the recipe has no such line.
    """
    wrong = [TrialResult(one.part, "missing", one.text) for one in objections(settings, check_packages)]
    wrong += [TrialResult(one.part, "missing", one.text) for one in machine_objections(settings, needs)]
    lacking = {finding.part for finding in wrong}
    return [
        *wrong,
        *(() if "data" in lacking else _data(settings)),
        *(() if "model" in lacking else _models(settings)),
        *(() if "device" in lacking else _device(settings)),
        *(() if "engine" in lacking else _engine(settings)),
        *_endpoints(settings),
        *(() if "package" in lacking else _cluster(settings)),
        *(() if "folder" in lacking else _stalls(settings)),
    ]


def _data(settings: Settings) -> Iterator[TrialResult]:
    """The numbers of tasks, and notes on rows that do not fit the context."""
    tasks, held_out = tasks_of(settings.env), held_out_tasks(settings)
    for entry, what in ((settings.env, "training"), (settings.eval_env, "evaluation")):
        of = tasks if what == "training" else tasks_of(entry)
        count = "unlimited" if len(of) > ENDLESS else f"{len(of)}"
        yield TrialResult("data", "found", f"{what} tasks of {entry.name}: {count}; the first task could be begun")
    try:
        for text in first_prompt_notes(settings, tasks, held_out, lambda: model_chat(settings)):
            yield TrialResult("data", "note", text)
    except ValueError as error:
        yield TrialResult("data", "missing", str(error))


def _models(settings: Settings) -> Iterator[TrialResult]:
    seen: set[str] = set()
    for plan in settings.policies.values():
        if plan.model.new is not None:
            yield TrialResult("model", "found", "a new model is made from scratch")
        elif plan.model.path not in seen:
            seen.add(plan.model.path)
            trial = _tokenizer if settings.tables.learner.remote else _model
            yield trial(plan.model, settings.tables.run.date)
    for text in program_notes(settings):
        yield TrialResult("model", "note", text)


def _model(config: ModelConfig, date: str) -> TrialResult:
    folder = Path(config.path).expanduser()
    if folder.is_dir():
        size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        try:
            Chat(load_tokenizer(folder, config), date_of(date))
        except (ValueError, OSError) as error:
            return TrialResult("model", "missing", str(error))
        return TrialResult("model", "found", f"the model folder {folder}, {size / 1e9:.2f} GB of weights")
    cached = hub_cache(config.path)
    if cached is not None:
        return TrialResult("model", "found", f"{config.path} is in the hub's cache: {cached}")
    if why := refusal(HUB):
        return TrialResult("model", "missing", not_reached(config.path, why))
    return TrialResult(
        "model", "note", f"{config.path} is not in the cache; the hub answers, and the run will fetch it"
    )


def _tokenizer(config: ModelConfig, date: str) -> TrialResult:
    """The tokenizer of a model whose weights a training service holds."""
    try:
        Chat(served_tokenizer(config, ask_hub=False), date_of(date))
    except (ValueError, OSError) as error:
        if Path(config.path).expanduser().is_dir() or hub_cache(config.path, "tokenizer_config.json") is not None:
            return TrialResult("model", "missing", str(error))
        if why := refusal(HUB):
            return TrialResult("model", "missing", not_reached(config.path, why))
        text = f"the tokenizer of {config.path} is not in the cache; the hub answers, and the run will fetch it"
        return TrialResult("model", "note", text)
    return TrialResult("model", "found", f"the tokenizer in {config.path}; the weights are at the training service")


def _device(settings: Settings) -> Iterator[TrialResult]:
    """What this machine computes with; nothing if a training service holds the weights."""
    if settings.tables.learner.remote:
        return
    import torch

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""
    try:
        check_group(settings, None)
        yield TrialResult("device", "found", gpu or f"the CPU, {os.cpu_count()} cores")
    except ValueError as error:  # for example, the learner has more processes than there are GPUs
        yield TrialResult("device", "missing", str(error))
        return
    yield from _kernel(settings)
    yield from _speed(settings)


def _kernel(settings: Settings) -> Iterator[TrialResult]:
    """Does attention over trees run on the GPU? The kernel is compiled for this."""
    from agentrl.model import kernel_failure

    devices = {device_named(plan.model.device) for plan in settings.policies.values()}
    for device in sorted((one for one in devices if one.type == "cuda"), key=str):
        failure = kernel_failure(device)
        text = failure or f"attention over trees on {device}: the kernel ran forward and backward"
        yield TrialResult("device", "missing" if failure else "found", text)


def _speed(settings: Settings) -> Iterator[TrialResult]:
    """Notes on pretrained models on this CPU: a slow type of the weights, and cores that are not used."""
    notes = []
    for plan in settings.policies.values():
        if plan.model.new is None:
            device = device_named(plan.model.device)
            notes += [precision_note(plan.model.dtype, device), faster_note(plan.model.dtype, device)]
            if device.type == "cpu" and settings.tables.learner.processes == 1:
                notes.append(_idle_cores(settings.tables.run.threads))
    for text in dict.fromkeys(filter(None, notes)):
        yield TrialResult("device", "note", text)


def _idle_cores(threads: int) -> str:
    """A sentence of advice if torch has fewer threads than this process has cores; else empty."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not 0 < threads < cores:
        return ""
    may = f"run.threads = {threads}, and this process may use {cores} cores"
    return f"{may}: run.threads={cores} is faster if no other run trains here"


def _engine(settings: Settings) -> Iterator[TrialResult]:
    """What was found of the needs of the engine, if the engine has the hook `check_here`."""
    engine, cluster = settings.engine, settings.tables.cluster
    if engine.hooks.check_here is None:
        return
    if cluster.address and cluster.engines:
        yield TrialResult(
            "engine", "note", f"the servers of {engine.name} will start on the cluster, and were not tried"
        )
        return
    yield TrialResult("engine", "found", f"the checks of {engine.name} found nothing missing")


def _cluster(settings: Settings) -> Iterator[TrialResult]:
    """Does a Ray cluster answer at `cluster.address`, and has it enough CPUs?"""
    try:
        reach_cluster(settings.tables.cluster, settings.tables.learner)
    except ValueError as error:
        yield TrialResult("endpoint", "missing", str(error))


def _stalls(settings: Settings) -> Iterator[TrialResult]:
    """What the watchdog wrote of a run of this name that hung."""
    for text in stall_words(settings.folder):
        yield TrialResult("watchdog", "note", text)


def _endpoints(settings: Settings) -> Iterator[TrialResult]:
    """The servers that accept connections, and those that do not while another server of the same key does."""
    cluster = bool(settings.tables.cluster.address)  # its machines may reach servers that this machine does not
    for one in tried_endpoints(settings):
        if not one.why:
            yield TrialResult("endpoint", "found", f"{one.key} = {one.shown!r} accepts connections")
        elif one.beside or cluster:
            yield TrialResult("endpoint", "note", f"{one.key} = {one.shown!r} accepts no connection ({one.why})")
