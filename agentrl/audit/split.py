"""The rows of one split of a source, and the question and answers of each row."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentrl.config import Entry
from agentrl.env import Asked, EnvironmentFile
from agentrl.rows import Rows, plain, split_readers

NAMES = ("key", "id", "seed", "index", "task_id", "question_id", "unique_id")  # columns that are no part of the task
QUESTIONS = ("question", "problem", "prompt", "instruction", "story", "query", "input", "text", "messages")
ANSWERS = ("answer", "answers", "golden_answers", "target", "solution", "gold", "label", "output", "completion")


@dataclass(kw_only=True)
class Split:
    """One split of a source.

    Attributes:
        name: name of the split, such as train. If a source has a single split without a name, the value is empty. If
            there are two sources, it is then `the source` for the first and `held-out rows` for the second.
        source: the name by which `agentrl.rows.read_rows` reads the split.
        rows: the rows.
        held_out: True if the split serves for evaluation and not for training.
        asked: question and answers of each row; None if the row cannot be read. `readable` fills this list.
    """

    name: str
    source: str
    rows: Rows
    held_out: bool
    asked: list[Asked | None] = field(default_factory=list)

    def place(self, i: int) -> str:
        """The place of a row in words: "line 7", or "line 7 of test"."""
        return self.rows.place(i) + (f" of {self.name}" if self.name else "")

    def readable(self, entry: Entry[EnvironmentFile] | None) -> dict[str, list[int]]:
        """Read every row and fill `asked`; returns error message -> numbers of the rows that cannot be read.

        The environment's hook `read_row` reads a row. `asked_by_name` does so if there is no such hook, or if the hook
        returns None.
        """
        wrong: dict[str, list[int]] = {}
        read = entry.hooks.read_row if entry is not None else None
        for i, row in enumerate(self.rows):
            found: Asked | None = None
            try:
                found = read(entry.config, row, "this row") if read is not None and entry is not None else None
                self.asked.append(found or asked_by_name(row))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                self.asked.append(None)
                wrong.setdefault(" ".join(str(error).split())[:300] or type(error).__name__, []).append(i)
        return wrong


def asked_by_name(row: Mapping[str, Any]) -> Asked:
    """Question and answers of a row, from columns with usual names; without a question column, the question is the
    whole row."""
    question = next((row[name] for name in QUESTIONS if _filled(row.get(name))), None)
    if question is None:
        question = {name: value for name, value in row.items() if name not in NAMES}
    answer = next((row[name] for name in ANSWERS if _filled(row.get(name))), ())
    answers = answer if isinstance(answer, list | tuple) else [answer]
    return Asked(as_text(question), tuple(map(as_text, answers)))


def as_text(value: Any) -> str:
    """A value as text: a text unchanged, any other value as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(plain(value), ensure_ascii=False, sort_keys=True, default=str)


def _filled(value: Any) -> bool:
    return value is not None and not (isinstance(value, str) and not value.strip())


def read_splits(source: str, held_out: str = "") -> list[Split]:
    """The splits of a source, and those of a second source (`held_out`), which are all held out.

    Splits of the first source count as held out if their names begin with val, dev or test.

    Raises:
        ValueError: a source cannot be read, or has no rows.
    """
    found: list[Split] = []
    for one, held in ((source, False), (held_out, True)):
        for name, reader in split_readers(one).items() if one else ():
            rows = reader.read()
            if not len(rows):
                raise ValueError(f"there are no rows in {reader.source}: add one")
            label = name if not held_out else "held-out rows" if held and not name else name or "the source"
            out = held or name.startswith(("val", "dev", "test"))
            found.append(Split(name=label, source=reader.source, rows=rows, held_out=out))
    return found


def contents(row: Mapping[str, Any]) -> str:
    """A row as text without the columns `NAMES`; equal rows have equal texts."""
    return as_text({name: value for name, value in row.items() if name not in NAMES})
