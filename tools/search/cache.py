"""What lies beside a corpus: index folders that appear whole or not at all."""

import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path


def fingerprint(path: Path) -> dict[str, int]:
    """What changes when a file does: size in bytes, and the time of its last change in ns."""
    stat = path.stat()
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def put_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Fill a folder beside its final place, then put it there, in place of an older one.

    Where nothing can be written (a read-only disk, a full one) a warning says so: an index can be made again.
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
        warnings.warn(f"the index {folder} is not kept for the next time: {error}", stacklevel=2)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(older, ignore_errors=True)
