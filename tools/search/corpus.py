"""A corpus: a JSONL file of passages, of which only the places of its lines are kept in memory."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from agentrl.tool import Passage


class Corpus:
    """Passages by row.

    Args:
        path: the file.
        places: [N + 1, 2] int64, (offset, line number) of each passage; the last row is the file's end.
    """

    def __init__(self, path: Path, places: np.ndarray) -> None:
        self.path, self.places = path, places
        self._file = os.open(path, os.O_RDONLY)

    @classmethod
    def scan(cls, path: Path) -> "Corpus":
        """Find the passages of a file, checking every line.

        Raises:
            ValueError: no such file, a line that is not JSON or no passage, or no passage at all.
        """
        places: list[tuple[int, int]] = []
        offset = 0
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    _passage(path, number, line)
                    places.append((offset, number))
                offset += len(line)
        if not places:
            raise ValueError(f"the corpus {path} holds no passage: give one JSON object per line, with id and contents")
        places.append((offset, 0))
        return cls(path, np.array(places, np.int64))

    def __len__(self) -> int:
        return len(self.places) - 1

    def __getitem__(self, row: int) -> Passage:
        start, number = self.places[row].tolist()
        line = os.pread(self._file, int(self.places[row + 1][0]) - start, start)
        return _passage(self.path, number, line)

    def __iter__(self) -> Iterator[Passage]:
        return (self[row] for row in range(len(self)))

    _close = staticmethod(os.close)  # when the interpreter ends, the name `os` of this module may be gone already

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._close(self._file)


def find(path: str, option: str) -> Path:
    """The corpus a user names; ValueError if there is none."""
    if not path:
        raise ValueError(f"{option} is missing: name a JSONL file with one passage per line")
    found = Path(path).expanduser()
    if not found.is_file():
        raise ValueError(f"{option} = {path!r}: no such file; name a JSONL file with one passage per line")
    return found


def contents(document: object) -> str | None:
    """The words of a document as servers and corpora give it: `contents`, else `title` and `text`; None if neither."""
    if not isinstance(document, dict):
        return None
    if isinstance(document.get("contents"), str):
        return whole(document["contents"])
    if isinstance(document.get("text"), str):
        title = str(document.get("title") or "").strip('"')
        return whole(f'"{title}"\n{document["text"]}')
    return None


def whole(text: str) -> str:
    """The text, with "?" for half of a surrogate pair, which JSON can hold and no tokenizer takes."""
    return text.encode("utf-8", "replace").decode()


def _passage(path: Path, number: int, line: bytes) -> Passage:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:  # half of the file's last line, a text, another encoding
        raise ValueError(f"line {number} of the corpus {path} is not JSON: {error}") from None
    words = contents(document)
    if words is None:
        raise ValueError(f"line {number} of the corpus {path} is no passage: it needs contents, or title and text")
    named = document.get("id")
    return Passage(whole(str(number if named is None else named)), words)
