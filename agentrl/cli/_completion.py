"""Proposes completions of a word to a shell, with the package argcomplete.

argcomplete starts the program with the command line in COMP_LINE and reads the proposals from file descriptor 8. Each
verb has its own parser, so the parser of the verb proposes the words after the verb.
"""

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

ASKED = "_ARGCOMPLETE"  # environment variable of argcomplete: position of the program's name in the line, from 1


def asked() -> bool:
    """Has a shell started the program to get proposals?"""
    return ASKED in os.environ


def words_of(verbs: Iterable[str]) -> Sequence[str]:
    """The words of the line from the verb up to the word at the cursor, without this word.

    If the word at the cursor is the verb itself, this proposes the verbs and ends the program.
    """
    import argcomplete
    from argcomplete.lexers import split_line

    line, point = os.environ["COMP_LINE"], int(os.environ["COMP_POINT"])
    *_, words, _ = split_line(line, point)
    start = int(os.environ[ASKED])
    if len(words) <= start:
        parser = argparse.ArgumentParser(add_help=False)
        parser.add_argument("verb", choices=list(verbs))
        argcomplete.autocomplete(parser, always_complete_options=False)
    os.environ[ASKED] = str(start + 1)
    return list(words[start:])


def propose(parser: argparse.ArgumentParser) -> None:
    """Print the proposals for the word at the cursor, and end the program."""
    import argcomplete

    for action in parser._actions:
        if not action.option_strings and action.dest in PROPOSALS:
            action.completer = PROPOSALS[action.dest]  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser, always_complete_options=False)


def _recipes(prefix: str, **_: Any) -> list[str]:
    from agentrl.settings import shipped_recipes

    return [recipe.name for recipe in shipped_recipes()] + _files(prefix, ".toml")


def _keys(prefix: str, **_: Any) -> list[str]:
    from agentrl.settings import known_keys

    return [f"{key}=" for key in known_keys() if "NAME" not in key]


def _names(kind: str) -> Callable[..., list[str]]:
    def proposals(prefix: str, **_: Any) -> list[str]:
        from agentrl import catalogue

        return [*catalogue.names(kind), *catalogue.aliases(kind)]

    return proposals


def _env(prefix: str, **_: Any) -> list[str]:
    return _names("envs")(prefix) + _files(prefix, ".toml")


def _subjects(prefix: str, **_: Any) -> list[str]:
    return _names("envs")(prefix) + [name for name in _recipes(prefix) if "." not in name] + _files(prefix, "")


def _runs(prefix: str, **_: Any) -> list[str]:
    return [str(file.parent) for file in Path("runs").glob("*/config.toml")] + _files(prefix, "")


def _files(prefix: str, ending: str) -> list[str]:
    from argcomplete.completers import FilesCompleter

    return list(FilesCompleter((ending.lstrip("."),) if ending else ())(prefix))


PROPOSALS: dict[str, Callable[..., list[str]]] = {
    "recipe": _recipes,
    "overrides": _keys,
    "env": _env,
    "subject": _subjects,
    "method": _names("credit"),
    "run": _runs,
    "a": _runs,
    "b": _runs,
    "graph": _runs,
    "path": _runs,
    "model": _runs,
}
