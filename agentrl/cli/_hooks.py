"""The list that `agentrl check --hooks` prints: the hooks of each catalogue, read from the fields of its class."""

import json as notation
from dataclasses import MISSING
from typing import Any

from agentrl import catalogue


def listing(kind: str = "", *, json: bool = False) -> str:
    """The hooks of a catalogue as a table or as JSON; if `kind` is empty, of all catalogues.

    Raises:
        ValueError: there is no such catalogue.
    """
    if kind and kind not in catalogue.KINDS:
        raise ValueError(f"unknown catalogue {kind!r}{catalogue.nearest(kind, catalogue.KINDS)}")
    found = {one: rows(one) for one in ([kind] if kind else catalogue.KINDS)}
    if json:
        return notation.dumps(found, indent=2)
    return "\n\n".join(table(one, of_one) for one, of_one in found.items())


def rows(kind: str) -> list[dict[str, Any]]:
    """One entry per hook: `hook`, `mandatory`, `help`, and `default` if the hook is not mandatory."""
    found = []
    for hook, field in catalogue.hooks_of(catalogue.class_of(kind)):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        mandatory = default is MISSING
        row = {"hook": hook, "mandatory": mandatory, "help": field.metadata["help"]}
        found.append(row if mandatory else {**row, "default": default})
    return sorted(found, key=lambda row: not row["mandatory"])  # stable: else in the class's order


def table(kind: str, of_kind: list[dict[str, Any]]) -> str:
    """The table of one catalogue: its name and package, then one line per hook.

    The line of a hook has its name, its default (or the word `mandatory`) and its help.
    """
    heading = f"{kind}: hooks of one {catalogue.KINDS[kind].word}, a file in {catalogue.KINDS[kind].package}"
    cells = [(row["hook"], "mandatory" if row["mandatory"] else repr(row["default"]), row["help"]) for row in of_kind]
    cells.insert(0, ("hook", "default", "help"))
    widths = [max(len(cell[i]) for cell in cells) for i in range(2)]
    lines = [f"  {hook:{widths[0]}}  {default:{widths[1]}}  {help}" for hook, default, help in cells]
    return "\n".join([heading, *lines])
