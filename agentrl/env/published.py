"""Files that a benchmark's authors publish and agentrl cannot fetch: describes each file, and checks a local copy."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HASHED_BYTES = 64 << 20  # `found` computes the sha256 of files up to this size


@dataclass(frozen=True, kw_only=True)
class PublishedFile:
    """A file that a benchmark's authors publish.

    Attributes:
        name: name of the file, or its path relative to the data folder.
        about: the content of the file, in words.
        size: number of bytes; None if not known.
        exact: True if the size is exact; a rounded size is not compared.
        sha256: the SHA-256 checksum in hexadecimal digits; empty if not known.
        url: the address at which the file is published.
    """

    name: str
    about: str
    size: int | None = None
    exact: bool = False
    sha256: str = ""
    url: str = ""

    def facts(self) -> str:
        """Name, content, size, checksum and address in one line."""
        if self.size is None:
            size = "size not known"
        else:
            size = f"{self.size:,} bytes" if self.exact else f"about {_rounded(self.size)}"
        checksum = f"sha256 {self.sha256}" if self.sha256 else "checksum not known"
        return f"{self.name}: {self.about}; {size}; {checksum}; {self.url}"

    def found(self, folder: Path) -> str:
        """One line: is the file in this folder, and is it equal to the published file as far as this can be checked?"""
        path = folder / self.name
        if not path.is_file():
            return f"missing: {path}"
        size = path.stat().st_size
        if self.exact and size != self.size:
            return f"differs: {path} has {size:,} bytes, the published file {self.size:,}: fetch it again"
        if self.sha256 and size <= HASHED_BYTES:
            if hashlib.sha256(path.read_bytes()).hexdigest() != self.sha256:
                return f"differs: {path} has another sha256 than the published file: fetch it again"
            return f"found: {path} ({size:,} bytes, sha256 as published)"
        check = f"compare sha256sum with {self.sha256}" if self.sha256 else "no checksum is known"
        return f"found: {path} ({size:,} bytes; {check})"


def published_report(folder: Path | None, files: Sequence[PublishedFile]) -> list[str]:
    """One line per file: the result of `found` in the folder, or the `facts` of the file if `folder` is None."""
    return [file.facts() if folder is None else file.found(folder) for file in files]


def _rounded(size: int) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size / 1e3:.3g} kB"
