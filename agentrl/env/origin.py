"""Where in the user's code an exception was raised."""

import sysconfig
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

_CORE = Path(__file__).parents[1].resolve()
_CATALOGUES = ("envs", "tools", "algorithms")  # folders of the core that count as a user's code
_PATHS = sysconfig.get_paths()
_INSTALLED = tuple(Path(_PATHS[name]).resolve() for name in ("purelib", "platlib"))
_PYTHON = tuple(Path(_PATHS[name]).resolve() for name in ("stdlib", "platstdlib"))


class _Frame(NamedTuple):
    """A place in a file that belongs neither to Python nor to the core (without its catalogues).

    `package` is the installed package of the file; empty for a user's file.
    """

    file: Path
    line: int
    function: str
    package: str


def raised_at(error: BaseException) -> str:
    """The last place of the user's code that an exception went through, as ` (stockroom.py:63, in reward)`.

    The user's code is every file that belongs neither to Python, nor to the core (without its catalogues), nor to an
    installed package. If the exception went through no such file, the result is the last place in the first installed
    package that the exception went through. If it went through no installed package either, the result is empty.
    """
    frames = list(_frames(error.__traceback__))
    users = [frame for frame in frames if not frame.package] or [f for f in frames if f.package == frames[0].package]
    return f" ({users[-1].file.name}:{users[-1].line}, in {users[-1].function})" if users else ""


def _frames(trace: TracebackType | None) -> "list[_Frame]":
    found = []
    while trace is not None:
        code = trace.tb_frame.f_code
        path = Path(code.co_filename).resolve()
        package = _package(path) if path.suffix == ".py" else None
        if package is not None:
            found.append(_Frame(path, trace.tb_lineno, code.co_name, package))
        trace = trace.tb_next
    return found


def _package(path: Path) -> str | None:
    """The installed package of a file, empty for a user's file; None for files of Python and of the core."""
    if path.is_relative_to(_CORE):
        return "" if path.relative_to(_CORE).parts[0] in _CATALOGUES else None
    for folder in _INSTALLED:
        if path.is_relative_to(folder):
            return path.relative_to(folder).parts[0]
    return None if any(path.is_relative_to(folder) for folder in _PYTHON) else ""
