"""Panels: the tasks that an evaluation plays, named by their keys."""

import hashlib
import json
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from agentrl.config import Entry
from agentrl.env.hooks import ENDLESS, EnvironmentFile, tasks_of
from agentrl.files import read_text
from agentrl.types import Task


def read_panel(path: Path) -> list[str]:
    """Task keys from a file: a JSON list if its name ends in `.json`, else one per line (`#` starts a remark)."""
    text = read_text(path, "panel")
    if path.suffix == ".json":
        keys = _json_keys(path, text)
    else:
        keys = [line.partition("#")[0].strip() for line in text.split("\n")]
    keys = [key for key in keys if key]
    if not keys or len(set(keys)) < len(keys):
        raise ValueError(f"panel {path} is empty or lists a task twice: list at least one task, and each task once")
    return keys


def _json_keys(path: Path, text: str) -> list[str]:
    try:
        keys = json.loads(text)
    except (ValueError, RecursionError):
        keys = None
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ValueError(f"panel {path} is no JSON list of task keys")
    return keys


def panel_tasks(entry: Entry[EnvironmentFile], keys: Sequence[str]) -> list[Task]:
    """The tasks of some keys, from the environment's `find(config, key)` if it has one, else from its list of tasks."""
    if entry.hooks.find is not None:
        return [entry.hooks.find(entry.config, key) for key in keys]
    tasks = tasks_of(entry)
    if len(tasks) > ENDLESS:
        raise ValueError(
            f"environment {entry.name} has {len(tasks)} tasks, too many to search for {keys[0]!r}: give its file a "
            "find(config, key)"
        )
    known = {task.key: task for task in tasks}
    missing = [key for key in keys if key not in known]
    if missing and len(keys) == 1:
        raise ValueError(f"the task {missing[0]!r} is unknown to {entry.name}{_nearest_key(missing[0], list(known))}")
    if missing:
        raise ValueError(
            f"{len(missing)} of {len(keys)} panel tasks are unknown to {entry.name}, such as {missing[0]!r}"
        )
    return [known[key] for key in keys]


def _nearest_key(key: str, known: Sequence[str]) -> str:
    """The end of an error's sentence: keys that end with `/key`, else keys close to `key`, else the first three."""
    close = [one for one in known if one.endswith(f"/{key}")] or get_close_matches(key, known[:2000], n=3, cutoff=0.6)
    if close:
        return f": did you mean {' or '.join(close[:3])}?"
    return f": its {len(known)} tasks begin with {', '.join(known[:3])}"


def panel_hash(keys: Sequence[str]) -> str:
    """The first 12 hexadecimal digits of the SHA-256 of a panel's keys, in order, one per line."""
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()[:12]
