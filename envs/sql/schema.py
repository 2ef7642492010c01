"""Generated databases: tables, their columns, and rows that a seed draws."""

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agentrl.envs._rows import Part
from agentrl.envs.sql.themes import ENTITIES, VALUES, choose

MOST_NUMBER = 99  # largest number in a column of numbers
ROWS = (9, 14)  # smallest and largest number of rows of a table that belongs to no other table
CHILD_ROWS = (12, 18)  # the same for a table that belongs to another table
SHOWN_VALUES = 4  # largest number of different words of a column


class Table(NamedTuple):
    """One table.

    Attributes:
        name: such as club_member.
        holds: what a row is, such as member.
        label: column whose values name the rows.
        texts: columns of words, with the words that occur.
        numbers: columns of whole numbers, no number twice.
        parent: the table to which its rows belong, by the column `link`; empty if there is none.
    """

    name: str
    holds: str
    label: str
    texts: Mapping[str, tuple[str, ...]]
    numbers: tuple[str, ...]
    parent: str = ""
    link: str = ""

    @property
    def one(self) -> str:
        """A row in words."""
        return self.name.replace("_", " ")

    @property
    def with_article(self) -> str:
        """A row in words, with its article."""
        return f"{'an' if self.name[0] in 'aeiou' else 'a'} {self.one}"

    @property
    def many(self) -> str:
        """Its rows in words."""
        return f"{self.one}s"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of its columns in their order."""
        return ("id", self.label, *self.texts, *self.numbers, *([self.link] if self.link else []))

    @property
    def created(self) -> str:
        """The statement that creates it."""
        kinds = {"id": "INTEGER PRIMARY KEY", **dict.fromkeys((self.label, *self.texts), "TEXT")}
        columns = [f"{name} {kinds.get(name, 'INTEGER')}" for name in self.columns]
        if self.parent:
            columns[-1] += f" REFERENCES {self.parent}(id)"
        return f"CREATE TABLE {self.name} ({', '.join(columns)})"


Schema = tuple[Table, ...]


def draw_schema(rng: random.Random, part: Part, tables: int) -> Schema:
    """Tables of one theme; each but the first belongs to one before it.

    Args:
        rng: draws the tables and their columns.
        part: the part of the tasks (train, valid or test) to which the tables belong.
        tables: number of tables, 1 to 3.
    """
    theme, chosen = choose(rng, part, tables)
    made: list[Table] = []
    for entity in chosen:
        holds = ENTITIES[entity]
        texts = {
            name: tuple(sorted(rng.sample(VALUES[name], min(SHOWN_VALUES, len(VALUES[name])))))
            for name in rng.sample(holds.texts, 2)
        }
        numbers = tuple(rng.sample(holds.numbers, 2))
        parent = rng.choice(made) if made else None
        link = f"{parent.holds}_id" if parent else ""
        made.append(
            Table(f"{theme}_{entity}", entity, holds.label, texts, numbers, parent.name if parent else "", link)
        )
    return tuple(made)


def draw_rows(rng: random.Random, schema: Schema) -> dict[str, list[tuple[object, ...]]]:
    """Rows of every table. At least one in five (rounded down) of a parent's rows have no row in the table below it."""
    rows: dict[str, list[tuple[object, ...]]] = {}
    for table in schema:
        count = rng.randint(*(CHILD_ROWS if table.parent else ROWS))
        columns: list[Sequence[object]] = [range(1, count + 1), rng.sample(ENTITIES[table.holds].names, count)]
        columns += [[rng.choice(values) for _ in range(count)] for values in table.texts.values()]
        columns += [rng.sample(range(1, MOST_NUMBER + 1), count) for _ in table.numbers]
        if table.parent:
            owners = len(rows[table.parent])
            some = rng.sample(range(1, owners + 1), owners - max(1, owners // 5))
            columns.append([rng.choice(some) for _ in range(count)])
        rows[table.name] = list(zip(*columns, strict=True))
    return rows


def script(schema: Schema, rows: Mapping[str, Sequence[Sequence[object]]]) -> str:
    """The statements that make the database. No value needs escaping: values are our own words and whole numbers."""
    lines = []
    for table in schema:
        lines.append(f"{table.created};")
        values = (
            ", ".join(f"'{cell}'" if isinstance(cell, str) else str(cell) for cell in row) for row in rows[table.name]
        )
        lines.append(f"INSERT INTO {table.name} VALUES {', '.join(f'({row})' for row in values)};")
    return "\n".join(lines)
