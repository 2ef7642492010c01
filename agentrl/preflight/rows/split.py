"""The rows of one split of a source, and the question and answers of each row."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentrl.config import Entry
from agentrl.env import EnvironmentFile, RowQuestion
from agentrl.rows import Rows, plain, split_readers

NAMES = ("key", "id", "seed", "index", "task_id", "question_id", "unique_id")  # columns that only identify a row
# Usual names of the question's column and of the answer's; `asked_by_name` takes the first column that has a value.
QUESTIONS = ("question", "problem", "prompt", "instruction", "story", "query", "input", "text", "messages")
ANSWERS = ("answer", "answers", "golden_answers", "target", "solution", "gold", "label", "output", "completion")


@dataclass(kw_only=True)
class Split:
    """One split of a source.

    Attributes:
        name: name of the split, such as train. For a split that has no name in its source, the value is empty if there
            is one source. If there are two sources, it is `the source` in the first and `held-out rows` in the second.
        source: the name by which `agentrl.rows.read_rows` reads the split.
        rows: the rows.
        held_out: True if the split is for evaluation and not for training.
        asked: question and answers of each row; None if the row cannot be read. `readable` fills this list.
    """

    name: str
    source: str
    rows: Rows
    held_out: bool
    asked: list[RowQuestion | None] = field(default_factory=list)

    def place(self, i: int) -> str:
        """The place of a row in words: "line 7", or "line 7 of test"."""
        return self.rows.place(i) + (f" of {self.name}" if self.name else "")

    def readable(self, entry: Entry[EnvironmentFile] | None) -> dict[str, list[int]]:
        """Read every row and fill `asked`; returns error message -> numbers of the rows that cannot be read.

        The environment's hook `read_row` reads a row. If there is no such hook, or if it returns None, `asked_by_name`
        reads the row.
        """
        wrong: dict[str, list[int]] = {}
        read = entry.hooks.read_row if entry is not None else None
        for i, row in enumerate(self.rows):
            found: RowQuestion | None = None
            try:
                found = read(entry.config, row, "this row") if read is not None and entry is not None else None
                self.asked.append(found or asked_by_name(row))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                self.asked.append(None)
                wrong.setdefault(" ".join(str(error).split())[:300] or type(error).__name__, []).append(i)
        return wrong


def asked_by_name(row: Mapping[str, Any]) -> RowQuestion:
    """Question and answers of a row, from columns with usual names.

    If no question column has a value, the question is the whole row without the columns `NAMES`.
    """
    question = next((row[name] for name in QUESTIONS if _filled(row.get(name))), None)
    if question is None:
        question = {name: value for name, value in row.items() if name not in NAMES}
    answer = next((row[name] for name in ANSWERS if _filled(row.get(name))), ())
    answers = answer if isinstance(answer, list | tuple) else [answer]
    return RowQuestion(as_text(question), tuple(map(as_text, answers)))


def as_text(value: Any) -> str:
    """A value as text: a text unchanged, any other value as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(plain(value), ensure_ascii=False, sort_keys=True, default=str)


def _filled(value: Any) -> bool:
    return value is not None and not (isinstance(value, str) and not value.strip())


def read_splits(source: str, held_out: str = "") -> list[Split]:
    """The splits of a source, then the splits of a second source (`held_out`; empty: there is no second source).

    All splits of the second source are held out. A split of the first source is held out if its name begins with val,
    dev or test.

    Raises:
        ValueError: a source cannot be read, or has no rows.
    """
    found: list[Split] = []
    for one, held in ((source, False), (held_out, True)):
        for name, reader in split_readers(one).items() if one else ():
            rows = reader.read()
            if not len(rows):
                raise ValueError(f"there are no rows in {reader.source}: add at least one row")
            label = name if not held_out else "held-out rows" if held and not name else name or "the source"
            out = held or name.startswith(("val", "dev", "test"))
            found.append(Split(name=label, source=reader.source, rows=rows, held_out=out))
    return found


def contents(row: Mapping[str, Any]) -> str:
    """A row as text without the columns `NAMES`; equal rows have equal texts."""
    return as_text({name: value for name, value in row.items() if name not in NAMES})
