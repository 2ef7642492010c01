"""Questions from files: FlashRAG and Search-R1 Parquet (extra `data`), JSONL and whatever else `agentrl.rows` reads.

A row has a question, in `question` or `env_kwargs.question`; its golden answers, in `golden_answers`, `answers`,
`answer`, `reward_model.ground_truth.target` or `env_kwargs.ground_truth`. It may have a `prompt` (a text or a list of
messages), which is then used unchanged. Answers may be a list, a text or an array.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentrl.rows import SUFFIXES, read_rows, split_readers

ANSWERS = ("golden_answers", "answers", "answer", "reward_model.ground_truth.target", "reward_model.ground_truth",
           "env_kwargs.ground_truth.target", "env_kwargs.ground_truth")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Row:
    """One question. `key` is unique in its file; `prompt` is empty if the row has none; `hops` is 0 if unknown."""

    key: str
    question: str
    answers: tuple[str, ...]
    source: str = ""
    prompt: str = ""
    hops: int = 0


def rows(path: str, split: str) -> Sequence[Row]:
    """The questions of a source (`agentrl.rows.source`); of a source with several splits, those of `split`.

    Raises:
        ValueError: the file does not exist, cannot be read or has no rows, or a row has no question or no answers.
    """
    path = str(Path(path).expanduser()) if not path.startswith("hub:") else path
    source, one_of_several = (path, False) if Path(path).is_file() else _of_split(path, split)
    found = Path(source) if Path(source).exists() else Path(source.rpartition("#")[0])
    files = [found, *sorted(found.rglob("*"))] if found.exists() else []
    stamps = tuple((stat.st_size, stat.st_mtime_ns) for stat in (file.stat() for file in files))
    return _rows(source, split if one_of_several else "", stamps)


def _of_split(path: str, split: str) -> tuple[str, bool]:
    """(the source of the split, True), or (the source of the only split, False) if there is only one."""
    if not path.startswith("hub:") and "#" not in path and not Path(path).expanduser().exists():
        raise ValueError(
            f"env.data = {path!r}: no such file; name a file of questions ({', '.join(SUFFIXES)}), a folder with "
            f"{split}.parquet or {split}.jsonl in it, or hub:OWNER/NAME"
        )
    splits = split_readers(path)
    if len(splits) == 1:
        return next(iter(splits.values())).source, False
    if split not in splits:
        raise ValueError(f"env.data = {path!r} has no split {split!r}: set env.split to one of {', '.join(splits)}")
    return splits[split].source, True


@lru_cache(maxsize=4)
def _rows(source: str, split: str, stamps: tuple[tuple[int, int], ...]) -> tuple[Row, ...]:
    """The rows. A key without the name of the split begins with it, because each split may number its rows from 1."""
    found: dict[str, Row] = {}
    for number, told in enumerate(read_rows(source), 1):
        row = read_row(told, number, f"row {number} of {source}")
        key = row.key if not split or split in row.key.split("/") else f"{split}/{row.key}"
        unique = key if key not in found else f"{key}#{number}"
        found[unique] = replace(row, key=unique)
    return tuple(found.values())


def read_row(told: Mapping[str, Any], number: int, where: str) -> Row:
    """One row as a question; ValueError says what the row lacks."""
    question = _at(told, "question") or _at(told, "env_kwargs.question")
    if not isinstance(question, str) or not question.strip():
        raise ValueError(f"{where} has no question: it needs `question`, a text")
    answers = next((texts for path in ANSWERS if (texts := _texts(_at(told, path)))), ())
    if not answers:
        raise ValueError(f"{where} has no answers: it needs `golden_answers`, or reward_model.ground_truth.target")
    source = str(told.get("data_source") or _at(told, "env_kwargs.data_source") or "")
    named = told.get("id", _at(told, "extra_info.index"))
    parts = [source, str(_at(told, "extra_info.split") or ""), str(number if named is None else named)]
    return Row(
        key="/".join(filter(None, parts)),
        question=asked(question),
        answers=answers,
        source=source,
        prompt=_prompt(told.get("prompt"), where),
    )


def asked(question: str) -> str:
    """The question without blanks around it, and with a question mark at its end."""
    text = question.strip()
    return text if text.endswith("?") else f"{text}?"


def _prompt(told: object, where: str) -> str:
    """The words of a prompt: a text, or messages, of which the last is the user's and all others are the system's."""
    if told is None or isinstance(told, str):
        return told or ""
    messages = told if isinstance(told, list) else []
    roles = [m.get("role") if isinstance(m, dict) else None for m in messages]
    if not roles or roles[-1] != "user" or any(role != "system" for role in roles[:-1]):
        raise ValueError(f"{where} has a prompt that is no text and no single user message: {str(told)[:80]}")
    return "\n\n".join(str(m["content"]) for m in messages)


def _at(told: Mapping[str, Any], path: str) -> Any:
    value: Any = told
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _texts(value: Any) -> tuple[str, ...]:
    """Answers as texts. `value` is one answer, or a list or an array of answers; () for anything else."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        value = [value]
    if hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, list | tuple) or any(isinstance(one, dict | list) for one in value):
        return ()
    return tuple(str(one) for one in value if one is not None and str(one).strip())
