"""docs/credit.md lists the functions and the facts of a step graph that credit methods are written with.

The functions are those of `agentrl.credit` that the methods of the catalogue import. After a change, this writes them:

    PYTHONPATH=. python tests/project/test_credit_doc.py --write
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentrl import credit
from agentrl.graph.step_graph import COLUMNS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "credit.md"
BEGIN, END = "<!-- written by tests/project/test_credit_doc.py -->\n", "<!-- until here -->\n"
FACTS = (
    "score",
    "peers",
    "counted",
    "lead",
    "first",
    "last",
    "succeeded",
    "branched",
    "failed",
    "has",
    "column",
    "has_token_column",
)
FACTS = (*FACTS, "token_column")


def used() -> list[str]:
    """Functions of `agentrl.credit` that methods of the catalogue import, first those that most methods import."""
    times: dict[str, int] = {}
    for path in sorted((ROOT / "algorithms" / "credit").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module in ("agentrl.credit", "agentrl.graph"):
                for one in node.names:
                    times[one.name] = times.get(one.name, 0) + 1
    names = [name for name in times if name in credit.__all__ and inspect.isfunction(getattr(credit, name))]
    return sorted(names, key=lambda name: (-times[name], name))


def signature(function: Any) -> str:
    """The arguments in few words: arrays are `array`, choices are listed."""
    text = (
        str(inspect.signature(function)).replace("numpy.ndarray", "array").replace("self, ", "").replace("(self)", "()")
    )
    text = re.sub(r"(agentrl|collections|typing)[\w.]*\.", "", text)
    return re.sub(r"Literal\[([^]]*)\]", lambda choices: choices[1].replace(", ", " or "), text).replace("'", '"')


def about(documented: Any) -> str:
    """The first paragraph of the docstring."""
    return " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())


def lines() -> Iterator[str]:
    yield "Functions of `agentrl.credit`, first those that most methods use. [N] means one entry per step. "
    yield "Steps with an equal value of `key` form a group of steps.\n\n"
    yield f"- `Credit.of{signature(credit.Credit.of)}`: {about(credit.Credit.of)}\n"
    for name in used():
        yield f"- `{name}{signature(getattr(credit, name))}`: {about(getattr(credit, name))}\n"
    yield "\nOf the `graph` that a method gets, beside its columns (below):\n\n"
    for name in FACTS:
        member = inspect.getattr_static(credit.StepGraph, name)
        call = "" if isinstance(member, property) else signature(member)
        yield f"- `graph.{name}{call}`: {about(member)}\n"
    yield f"\nIts columns, an array [N] each: {', '.join(f'`graph.{name}`' for name in COLUMNS)}.\n"


def written() -> str:
    head, _, rest = PAGE.read_text().partition(BEGIN)
    return f"{head}{BEGIN}{''.join(lines())}{END}{rest.partition(END)[2]}"


def test_the_page_lists_what_methods_are_written_with():
    assert PAGE.read_text() == written(), __doc__
    assert {"scan", "keys", "group_norm", "mean"} <= set(used())
    text = PAGE.read_text()
    assert "- `scan(x: array, decay: array | float, parent: array) -> array`: " in text
    assert "- `graph.first`: [N] bool, the first row of its episode." in text


if __name__ == "__main__" and "--write" in sys.argv:
    PAGE.write_text(written())
