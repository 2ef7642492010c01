"""Notes that are too long for a context: many lines say who has which key, and the task asks for one person's key.

A small synthetic task for contexts in which the model rewrites a memory of what it has read. The notes are shown page
by page (show = "pages"; the action `next` turns the page), or all in one observation (show = "whole"). If several lines
name the person, the key of the last of these lines is the right answer. Results are reported as `notes-gen`.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from random import Random
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, Field

from agentrl.env import Env, Move
from agentrl.types import Observation, Status, StepResult, Task

ERRING: dict[str, int] = {}
EXPERTS = ("expert", "forgetful")
GYMNASIUM_IDS: Mapping[str, Mapping[str, Any]] = {"agentrl/Notes-v0": {}}
ENDLESS = 1 << 40
NAMES = (
    *("Ada", "Ben", "Cora", "Dan", "Eva", "Finn", "Gus", "Hana", "Ivo", "Jana", "Karl", "Lena"),
    *("Max", "Nora", "Otto", "Pia", "Quin", "Rosa", "Sven", "Tara", "Ugo", "Vera", "Wim", "Xenia"),
)
KEYS = ("red", "blue", "green", "black", "white", "brown", "pink", "grey", "gold", "silver")
KEY = re.compile(r"notes-gen/(?P<pages>\d{1,4})x(?P<lines>\d{1,4})/(?P<split>train|valid|test)/\d+-\d+")
# Split -> (first, last + 1) of the tenths into which hash values are divided; notes belong to the split of their hash.
SPLITS = {"train": (0, 8), "valid": (8, 9), "test": (9, 10)}


class Config(BaseModel, frozen=True, extra="forbid"):
    """Options of the notes.

    Attributes:
        show: `pages`: one page per observation; `whole`: all pages in every observation.
        pages: number of pages of the notes of a task.
        lines: number of lines of a page.
        split: train, valid or test. No set of notes is in two splits.
        seed: another seed gives other notes.
        count: number of tasks; None for an endless list.
        brief: fewer words, for small models.
    """

    show: Literal["pages", "whole"] = "pages"
    pages: int = Field(8, ge=1, le=1000)
    lines: int = Field(6, ge=1, le=1000)
    split: Literal["train", "valid", "test"] = "train"
    seed: int = Field(0, ge=0)
    count: int | None = Field(None, ge=1)
    brief: bool = False


class Notes(NamedTuple):
    """The notes of a task.

    Attributes:
        name: the person whose key is asked for.
        key: the right key.
        pages: the (name, key) of each line, by page.
    """

    name: str
    key: str
    pages: list[list[tuple[str, str]]]


def SMALL_MODEL(config: Config) -> Mapping[str, Any]:
    """Three pages of one brief line each, unless the recipe sets `pages` or `lines`."""
    return {} if {"pages", "lines"} & config.model_fields_set else {"pages": 3, "lines": 1, "brief": True}


def make_notes(task: Task) -> Notes:
    """The notes of a task: one to three lines name the person asked for, all other lines name other people.

    Notes are drawn again until their hash falls into the share of the task's split.
    """
    pages, lines, split = task.params["pages"], task.params["lines"], task.params["split"]
    for attempt in range(1000):
        name = f"{task.key}/{attempt}".encode()
        random = Random(int.from_bytes(sha256(name).digest()[:8], "big")).random
        asked = NAMES[int(random() * len(NAMES))]
        others = [one for one in NAMES if one != asked]
        total = pages * lines
        told = [(others[int(random() * len(others))], KEYS[int(random() * len(KEYS))]) for _ in range(total)]
        for _ in range(1 + int(random() * 3)):
            told[int(random() * total)] = (asked, KEYS[int(random() * len(KEYS))])
        key = next(k for who, k in reversed(told) if who == asked)
        notes = Notes(asked, key, [told[i * lines : (i + 1) * lines] for i in range(pages)])
        low, high = SPLITS[split]
        if low <= sha256(repr(notes).encode()).digest()[0] * 10 // 256 < high:
            return notes
    raise AssertionError("no split is that rare")


class NotesEnv:
    """One set of notes per task."""

    def __init__(self, config: Config) -> None:
        self.config, self.notes, self.page, self.task = config, Notes("", "", []), 0, Task(key="", env="")

    def reset(self, task: Task) -> Observation:
        """Make the notes of a task, and show their first page or all of them."""
        self.task, self.notes, self.page = task, make_notes(task), 0
        return self.observation()

    def step(self, action: str) -> StepResult:
        """`next` turns the page, unless it is the last one or all pages are shown. A key is the answer, which ends the
        episode. Any other action changes nothing."""
        action = action.strip()
        last = self.page == len(self.notes.pages) - 1
        if action in KEYS:
            right = action == self.notes.key
            info = {"success": right, "answer": action}
            return StepResult(self.observation(), float(right), True, False, info)
        turned = action == "next" and not last and self.config.show == "pages"
        self.page += turned
        info = {"success": False, "status": Status.OK if turned else Status.PARSE_ERROR}
        return StepResult(self.observation(), 0.0, False, False, info)

    def observation(self) -> Observation:
        """The page or all pages, the question, and the listed actions: `next`, or all keys if no page follows."""
        whole = self.config.show == "whole"
        shown = self.notes.pages if whole else self.notes.pages[self.page : self.page + 1]
        lines = [self._line(name, key) for page in shown for name, key in page]
        text = "\n".join(lines if whole else [f"Page {self.page + 1} of {len(self.notes.pages)}", *lines])
        asked = f"{self.notes.name} ?" if self.config.brief else f"Which key does {self.notes.name} have now?"
        on = not whole and self.page < len(self.notes.pages) - 1
        return Observation(text=text, task=asked, actions=("next",) if on else KEYS)

    def _line(self, name: str, key: str) -> str:
        return f"{name} {key}" if self.config.brief else f"{name} was given the key {key}."

    def snapshot(self) -> tuple[Task, int]:
        """Task and page."""
        return self.task, self.page

    def restore(self, snapshot: tuple[Task, int]) -> Observation:
        """Go back to the page of a snapshot."""
        self.reset(snapshot[0])
        self.page = snapshot[1]
        return self.observation()

    def close(self) -> None:
        """Nothing to release."""


class Reader:
    """Remembers the last key that it has read for the person asked for.

    `act` answers with this key. `write` writes the key that it finds in its texts; a forgetful reader writes `nothing`
    instead with probability 0.5.
    """

    def __init__(self, seed: int, forgetful: bool) -> None:
        self.seed, self.forgetful, self.random, self.key, self.name = seed, forgetful, Random(0), "", ""

    def reset(self, task: Task) -> None:
        """Forget the last task, and take the name of the person that the new task asks for."""
        name = f"notes\n{self.seed}\n{task.key}".encode()
        self.random, self.key = Random(int.from_bytes(sha256(name).digest()[:8], "big")), ""
        self.name = make_notes(task).name

    def act(self, observation: Observation) -> Move:
        """`next` if it is the listed action, else the last key read; a random key if none was read."""
        self.key = _last_key(self.name, observation.text) or self.key
        return Move("next" if observation.actions == ("next",) else self.key or KEYS[int(self.random.random() * 10)])

    def write(self, memory: str, text: str) -> Move:
        """The new memory: the name, and the last key that the text states for it, or else the key in the old memory."""
        found = _last_key(self.name, text) or _last_key(self.name, memory)
        if self.forgetful and self.random.random() < 0.5:
            found = ""
        return Move(f"{self.name} {found}" if found else "nothing")


def _last_key(name: str, text: str) -> str:
    lines = [line.replace(".", " ").split() for line in text.splitlines()]
    return next((words[-1] for words in reversed(lines) if words and words[0] == name and words[-1] in KEYS), "")


class Tasks(Sequence[Task]):
    """The tasks. A task holds no notes: they are made when an environment is reset to it."""

    def __init__(self, config: Config) -> None:
        self.config, self.size = config, config.count or ENDLESS

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.size))]
        if not -self.size <= index < self.size:
            raise IndexError(f"notes {index} of {self.size}")
        c = self.config
        return _task(f"notes-gen/{c.pages}x{c.lines}/{c.split}/{c.seed}-{index % self.size}", c.pages, c.lines, c.split)


def _task(key: str, pages: int, lines: int, split: str) -> Task:
    return Task(key=key, env="notes", params={"pages": pages, "lines": lines, "split": split})


def make(config: Config) -> NotesEnv:
    """An instance."""
    return NotesEnv(config)


def tasks(config: Config) -> Sequence[Task]:
    """The tasks, one set of notes each."""
    return Tasks(config)


def find(config: Config, key: str) -> Task:
    """The task of a key; ValueError if the key does not have the form of `KEY`."""
    found = KEY.fullmatch(key)
    if found is None:
        raise ValueError(f"{key!r} names no notes: a key is notes-gen/PAGESxLINES/SPLIT/SEED-NUMBER")
    return _task(key, int(found["pages"]), int(found["lines"]), found["split"])


def expert(env: Env, name: str, seed: int) -> Reader:
    """`expert`, or `forgetful`, which writes `nothing` into its memory with probability 0.5."""
    if name not in EXPERTS:
        raise ValueError(f"unknown notes player {name!r}: use one of {', '.join(EXPERTS)}")
    return Reader(seed, name == "forgetful")


def benchmark(config: Config) -> str:
    """`notes-gen`."""
    return "notes-gen"
