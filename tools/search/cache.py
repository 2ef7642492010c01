"""The folders of indexes beside a corpus. Such a folder is complete or absent, never half written."""

import json
import os
import shutil
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agentrl.tools.search.corpus import Corpus

PLACES, ABOUT = "places.npy", "about.json"  # in every index folder: `Corpus.places`, and what the index was made from


def fingerprint(path: Path) -> dict[str, int]:
    """What tells versions of a file apart: its size in bytes, and the time of its last change in ns."""
    stat = path.stat()
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def put_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Fill a folder beside its final place, then move it there, replacing an older folder.

    If the folder cannot be written (the disk is read-only or full), the function only warns, because the index can be
    built again.
    """
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    older = folder.with_name(f".{folder.name}.{os.getpid()}.older")
    try:
        partial.mkdir(parents=True)
        write(partial)
        if folder.exists():
            folder.rename(older)
        partial.rename(folder)
    except OSError as error:
        warnings.warn(f"the index {folder} could not be stored, and will be built again: {error}", stacklevel=2)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(older, ignore_errors=True)


class StoredIndex(ABC):
    """A corpus and its index.

    The index is read from `folder` if the folder holds an index of this corpus with these options. Else the index is
    built and stored there; where nothing can be written, it is only in memory.
    """

    corpus: Corpus

    def __init__(self, path: Path, folder: Path, options: Mapping[str, Any]) -> None:
        """Raises ValueError as `Corpus.scan` and `build` do."""
        self.folder = folder
        self._about = json.dumps({**fingerprint(path), **options}, sort_keys=True)
        if not self._stored(path):
            self.corpus = Corpus.scan(path)
            self.build(path)
            put_folder(folder, self._put)

    @abstractmethod
    def build(self, path: Path) -> None:
        """Build the index of `corpus`, which was read from the file `path`."""

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write the index into a folder."""

    @abstractmethod
    def read(self, folder: Path) -> None:
        """Read the index from a folder; OSError, ValueError, KeyError or RuntimeError if it is damaged."""

    def _put(self, folder: Path) -> None:
        self.write(folder)
        np.save(folder / PLACES, self.corpus.places)
        (folder / ABOUT).write_text(self._about)

    def _stored(self, path: Path) -> bool:
        about = self.folder / ABOUT
        if not about.is_file():
            return False
        if (old := about.read_text()) != self._about:
            if _words(old) != _words(self._about):
                warnings.warn(
                    f"the index {self.folder} was made by another rule for words, so it is built again", stacklevel=2
                )
            return False
        try:
            self.read(self.folder)
            self.corpus = Corpus(path, np.load(self.folder / PLACES))
        except (OSError, ValueError, KeyError, RuntimeError):  # damaged by hand or by a full disk: build again
            shutil.rmtree(self.folder, ignore_errors=True)
            return False
        return True


def _words(about: str) -> object:
    """The number of the rule for words by which an index was made; None if the text tells none."""
    try:
        return json.loads(about).get("words")
    except (ValueError, AttributeError):
        return None
