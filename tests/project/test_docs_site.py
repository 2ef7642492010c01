"""The site: every page is in the navigation of mkdocs.yml, and every link and anchor leads somewhere.

The pages are those of docs/ and those that docs/built_pages.py adds. Pages of docs/ link only to files, so that they
can be read where nothing is built. `make docs` builds the site with MkDocs, which checks the links of all pages; this
test needs neither MkDocs nor its packages.
"""

import posixpath
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrl import catalogue
from docs import built_pages

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def in_navigation() -> list[str]:
    """The pages that the section `nav` of mkdocs.yml lists."""
    _, _, navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")
    return re.findall(r"([\w/.-]+\.md)$", navigation, re.M)


@pytest.fixture(scope="module")
def built() -> dict[str, str]:
    """Path below docs/ -> text, of the pages that are built."""
    return built_pages.pages()


def prose(page: str) -> str:
    """A page without its blocks and spans of code."""
    return re.sub(r"`[^`]*`", "", re.sub(r"^```.*?^```", "", page, flags=re.S | re.M))


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as MkDocs makes them."""
    text = re.sub(r"^```.*?^```", "", page, flags=re.S | re.M)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        words = re.sub(r"[^\w\s-]", "", heading.encode("ascii", "ignore").decode()).strip().lower()
        slug = base = re.sub(r"[-\s]+", "-", words)
        count = 1
        while slug in found:
            slug, count = f"{base}_{count}", count + 1
        found.add(slug)
    return found


def links(page: str) -> Iterator[tuple[str, str]]:
    """(path, anchor) of every link of a page to another page, a picture or a place in itself."""
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            yield path, anchor


def test_every_page_is_in_the_navigation_once(built):
    listed, pages = in_navigation(), {*PAGES, *built}
    assert sorted(pages - set(listed)) == [], "pages that mkdocs.yml does not list: add each to its section nav"
    assert sorted(set(listed) - pages) == [], "mkdocs.yml lists pages that are neither in docs/ nor built"
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("name", PAGES)
def test_every_link_and_anchor_leads_somewhere(name):
    page = DOCS / name
    for path, anchor in links(page.read_text()):
        target = (page.parent / path).resolve() if path else page
        assert target.is_file() and target.is_relative_to(DOCS), f"{name}: {path} is no file of docs/"
        if anchor:
            assert anchor in anchors(target.read_text()), f"{name}: {path or name} has no heading #{anchor}"


def test_every_link_of_a_built_page_leads_to_a_file_or_to_a_built_page(built):
    found = 0
    for name, text in built.items():
        for path, anchor in links(text):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            page = built.get(target) or (DOCS / target).read_text()
            assert not anchor or anchor in anchors(page), f"{name}: {target} has no heading #{anchor}"
            found += 1
    assert found > 200


def test_links_of_the_readme_have_their_anchors():
    for path, anchor in links((ROOT / "README.md").read_text()):
        assert (ROOT / path).is_file(), path
        assert not anchor or anchor in anchors((ROOT / path).read_text()), f"{path}#{anchor}"


def test_the_architecture_page_has_the_layers_of_the_import_rules():
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [rule["layers"] for rule in rules if rule.get("containers") == ["agentrl"]]
    page = (DOCS / "architecture.md").read_text()
    shown = [set(re.findall(r"`(\w+)`", row)) for row in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", page, re.M)]
    assert [row for row in shown if row] == [set(layer.split(" | ")) for layer in layers]


def test_the_reading_list_of_the_architecture_page_takes_an_afternoon():
    page = (DOCS / "architecture.md").read_text()
    listed = re.findall(r"^\| `([\w/]+\.py)` \|", page, re.M)
    assert len(listed) == 12
    assert sum(len((ROOT / file).read_text().splitlines()) for file in listed) < 3200


def test_the_table_of_contributing_names_every_catalogue():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    words = {"envs": "environment", "tools": "tool"}
    assert [kind for kind in catalogue.KINDS if words.get(kind, kind) not in text] == []
