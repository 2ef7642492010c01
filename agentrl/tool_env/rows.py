"""Reads rows of data: a list, an object with `len` and `[i]` (a Hugging Face dataset), or a file."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time
from pathlib import Path
from typing import Any

from agentrl.files import read_json, read_jsonl

Row = Mapping[str, Any]


def read_rows(source: Sequence[Row] | str | Path, beside: Path | None = None) -> Sequence[Row]:
    """The rows of a source.

    Args:
        source: rows, or a file of them.
        beside: the folder of relative paths; None takes the working folder.

    Raises:
        ValueError: the file is missing, of another kind, has a line that is no JSON object, or there are no rows.
    """
    if not isinstance(source, str | Path):
        if not hasattr(source, "__len__") or not hasattr(source, "__getitem__"):
            raise ValueError(f"rows of type {type(source).__name__} cannot be counted: give a list or a file")
        if isinstance(source, Mapping):
            known = ", ".join(map(str, source)) or "nothing"
            raise ValueError(
                f"rows are a mapping of {known}, not a list: choose one of its splits, such as data['train']"
            )
        rows = source
    else:
        rows = _read_file(Path(source) if beside is None else beside / source)
    if not len(rows):
        raise ValueError(f"there are no rows in {source if isinstance(source, str | Path) else 'the list'}: add one")
    return rows


def _read_file(path: Path) -> Sequence[Row]:
    readers = {".jsonl": _jsonl, ".json": _json, ".parquet": _parquet}
    if path.suffix not in readers:
        raise ValueError(f"rows are read from .jsonl, .json or .parquet, not from {path}")
    return readers[path.suffix](path)


def _jsonl(path: Path) -> list[Row]:
    rows: list[Row] = []
    for number, value in read_jsonl(path, "file of rows"):
        if not isinstance(value, dict):
            raise ValueError(f"line {number} of {path} is no JSON object")
        rows.append(value)
    return rows


def _json(path: Path) -> list[Row]:
    values = read_json(path, "file of rows")
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise ValueError(f"{path} must be a JSON list of objects")
    return values


class _Table(Sequence[Row]):
    """A Parquet table row by row."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        position = range(len(self))[i]
        row: Row = self._table.slice(position, 1).to_pylist()[0]
        return row

    def __iter__(self) -> Iterator[Row]:
        for batch in self._table.to_batches():
            yield from batch.to_pylist()


def _parquet(path: Path) -> Sequence[Row]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError(f"{path} needs pyarrow: pip install 'agentrl-stepgraph[data]'") from None
    if not path.is_file():
        raise ValueError(f"no such file of rows: {path}")
    try:
        return _Table(pyarrow.parquet.read_table(path))
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} is no Parquet file: {error}") from None


def plain(value: Any) -> Any:
    """A value of a row as a JSON value: arrays become lists, NumPy scalars numbers, dates and times texts."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value.isoformat() if isinstance(value, date | time) else value  # a datetime is a date
