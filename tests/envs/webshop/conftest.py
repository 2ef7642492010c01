"""A shop small enough to work by hand, as the raw files of the original."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agentrl.envs.webshop.cli import configure
from agentrl.envs.webshop.market import Market, open_market
from agentrl.envs.webshop.session import Session

KINDS = "Home › Decor › Rugs"


def row(asin: str, title: str, **fields: Any) -> dict[str, Any]:
    """A row of the products file."""
    return {
        "asin": asin,
        "name": title,
        "full_description": f"About {title}.",
        "small_description": [f"First point of {title}", "Second point"],
        "pricing": "$20.00",
        "images": ["https://example.invalid/a.jpg"],
        "product_category": KINDS,
        "category": "garden",
        "query": " Area Rugs ",
        "customization_options": {},
        **fields,
    }


def values(*names: str) -> list[dict[str, Any]]:
    """An option group."""
    return [{"value": name, "image": None} for name in names]


ROWS = [
    row(
        "B0RED",
        'Red "Signature" Rug',
        customization_options={"Color": values("Wine Red", "Rose/Gold"), "Size": values("Large", "color")},
    ),
    row(
        "B0BLUE",
        "Blue Rug for Kids",
        pricing="$10.00 - $30.00",
        customization_options={
            "Style": values("features", "search", "< Prev", 'it\'s "new"', "café", "next >"),
            "Fit": values("café", "signature"),
            "None": None,
        },
    ),
    row("B0TEA", "Green Tea", query="tea", category="grocery", pricing="$985", product_category="Food › Drinks › Tea"),
    row("nan", "No code"),
    row("B0TOOLONGASIN", "Code too long"),
    row("B0RED", "Second of its code"),
]
ATTRIBUTES = {
    "B0RED": {
        "attributes": ["machine washable", "non slip"],
        "instruction": "Find me washable rugs",
        "instruction_attributes": ["machine washable"],
    },
    "B0BLUE": {"instruction": None, "instruction_attributes": []},
    "B0TEA": {
        "attributes": ["sugar free"],
        "instruction": "Find me tea",
        "instruction_attributes": ["sugar free", "machine washable"],
    },
}


def wish(text: str, attributes: list[str], options: list[str]) -> dict[str, Any]:
    """An entry of the human instructions."""
    return {"instruction": text, "instruction_attributes": attributes, "instruction_options": options}


WISHES = {
    "B0RED": [
        wish("i want a washable rug in wine red.", ["machine washable"], ["wine red", "large"]),
        wish("no attributes", [], []),
    ],
    "B0TEA": [wish("..tea without sugar..", ["sugar free"], [])],
}


def write(folder: Path, rows: Any = None, attributes: Any = None, wishes: Any = None) -> Path:
    """The three raw files."""
    for stem, content in (
        ("items_shuffle", ROWS if rows is None else rows),
        ("items_ins_v2", ATTRIBUTES if attributes is None else attributes),
        ("items_human_ins", WISHES if wishes is None else wishes),
    ):
        (folder / f"{stem}.json").write_text(json.dumps(content), "utf-8")
    return folder


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """The folder of the small shop."""
    return write(tmp_path)


@pytest.fixture
def writer() -> Callable[..., Path]:
    """Writes other raw files."""
    return write


@pytest.fixture
def row_of() -> Callable[..., dict[str, Any]]:
    """Makes rows of the products file."""
    return row


@pytest.fixture
def market(raw: Path) -> Market:
    """The small shop, opened."""
    return open_market(configure({"data": str(raw), "tagger": "built-in"}, []))


@pytest.fixture
def shopper(raw: Path) -> Callable[..., Session]:
    """Opens sessions: shopper(goal, form, **options)."""

    def open_session(goal: int | str | None = 0, form: str = "text_rich", **options: Any) -> Session:
        given: Mapping[str, Any] = {"data": str(raw), "tagger": "built-in", **options}
        return Session(open_market(configure(given, [])), goal, 99, form)

    return open_session
