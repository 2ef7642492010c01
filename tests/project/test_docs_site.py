"""The site: every page of docs/ is in the navigation of mkdocs.yml, and every link and anchor leads somewhere.

`make docs` builds the site with MkDocs, which says the same; this test needs neither MkDocs nor its packages.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrl import catalogue

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def in_navigation() -> list[str]:
    """The pages that the section `nav` of mkdocs.yml lists."""
    _, _, navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")
    return re.findall(r"([\w/.-]+\.md)$", navigation, re.M)


def prose(page: Path) -> str:
    """A page without its blocks and spans of code."""
    return re.sub(r"`[^`]*`", "", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as MkDocs makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        words = re.sub(r"[^\w\s-]", "", heading.encode("ascii", "ignore").decode()).strip().lower()
        slug = base = re.sub(r"[-\s]+", "-", words)
        count = 1
        while slug in found:
            slug, count = f"{base}_{count}", count + 1
        found.add(slug)
    return found


def links(page: Path) -> Iterator[tuple[str, str]]:
    """(path, anchor) of every link of a page to another page, a picture or a place in itself."""
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            yield path, anchor


def test_every_page_is_in_the_navigation_once():
    listed = in_navigation()
    assert sorted(set(PAGES) - set(listed)) == [], "pages that mkdocs.yml does not list: add each to its section nav"
    assert sorted(set(listed) - set(PAGES)) == [], "mkdocs.yml lists pages that docs/ does not have"
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("name", PAGES)
def test_every_link_and_anchor_leads_somewhere(name):
    page = DOCS / name
    for path, anchor in links(page):
        target = (page.parent / path).resolve() if path else page
        assert target.is_file() and target.is_relative_to(DOCS), f"{name}: {path} is no file of docs/"
        if anchor:
            assert anchor in anchors(target), f"{name}: {path or name} has no heading #{anchor}"


def test_links_of_the_readme_have_their_anchors():
    for path, anchor in links(ROOT / "README.md"):
        assert (ROOT / path).is_file(), path
        assert not anchor or anchor in anchors(ROOT / path), f"{path}#{anchor}"


def test_the_architecture_page_has_the_layers_of_the_import_rules():
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [rule["layers"] for rule in rules if rule["type"] == "layers"]
    page = (DOCS / "architecture.md").read_text()
    shown = [set(re.findall(r"`(\w+)`", row)) for row in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", page, re.M)]
    assert [row for row in shown if row] == [set(layer.split(" | ")) for layer in layers]


def test_the_table_of_contributing_names_every_catalogue():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    words = {"envs": "environment", "tools": "tool"}
    assert [kind for kind in catalogue.KINDS if words.get(kind, kind) not in text] == []
