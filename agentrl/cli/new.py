"""`agentrl new env|tool NAME [--into FOLDER]`: make a package for an environment or a tool of your own.

It writes the folder NAME with one module, its test and a pyproject.toml; for an environment also a recipe and a README.
After `pip install -e NAME` every command finds the environment or the tool by its name. The test and the recipe also
work without an installation.
"""

import json
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from agentrl import __version__, catalogue
from agentrl.cli import _scaffold
from agentrl.cli._parser import Parser

TAKEN = ("None", "True", "False", "Config", "BaseModel", "Field")  # names that the written files use for something else
NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")


def main(words: Sequence[str]) -> int:
    """See the module."""
    parser = Parser("agentrl new", __doc__)
    parser.add_argument("kind", choices=("env", "tool"))
    parser.add_argument("name", help="a word of small letters, digits and _")
    parser.add_argument("--into", type=Path, default=Path(), help="folder in which NAME is made; default: here")
    parser.add_argument("--json", action="store_true", help="one JSON object: folder, files, next")
    arguments = parser.parse_args(words)
    check(arguments.kind, arguments.name)
    folder = arguments.into / arguments.name
    if folder.exists():
        raise ValueError(f"{folder} exists already: choose another name or --into another folder")
    write(arguments.kind, arguments.name, folder)
    files = sorted(str(path) for path in folder.iterdir())
    steps = _scaffold.STEPS[arguments.kind].format(name=arguments.name, folder=shlex.quote(str(folder)))
    if arguments.json:
        print(json.dumps({"folder": str(folder), "files": files, "next": steps.splitlines()}))
        return 0
    print(f"wrote {', '.join(files)}")
    print("next:", *steps.splitlines(), sep="\n  ")
    return 0


def check(kind: str, name: str) -> None:
    """Raises ValueError if the name is not valid, or is the name of an existing catalogue entry."""
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no name: use small letters, digits and _, begin with a letter, and use at most 41 characters"
        )
    if name in catalogue.names(f"{kind}s"):
        raise ValueError(f"{kind} {name!r} exists already: choose another name")


def write(kind: str, name: str, folder: Path) -> None:
    """Write all files of the package; if a file cannot be written, all files are removed again."""
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir(parents=True)
        title = "".join(word.capitalize() for word in name.split("_"))
        title += kind.capitalize() if title in TAKEN else ""
        for path, text in _scaffold.FILES[kind].items():
            filled = text.replace("NAME", name).replace("TITLE", title).replace("VERSION", __version__)
            (part / path.replace("NAME", name)).write_text(filled, "utf-8")
        part.rename(folder)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise ValueError(f"cannot write {folder}: {error.strerror or error}") from None
