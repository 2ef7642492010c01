"""docs/built_pages.py writes every section, key, entry and option, and MkDocs takes its pages as they are."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentrl import catalogue
from agentrl.settings import explain
from docs import built_pages

ROOT = Path(__file__).parents[2]
ALGORITHMS = [
    kind for kind in built_pages.CATALOGUES if catalogue.KINDS[kind].package.startswith("agentrl.algorithms.")
]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return built_pages.pages()


def below(heading: str, page: str) -> str:
    """The text from a heading of the second level to the next one."""
    _, found, rest = page.partition(f"\n## {heading}\n")
    assert found, f"no heading {heading}"
    return rest.partition("\n## ")[0]


def keys_of(text: str) -> list[str]:
    """The keys of a table of options."""
    return re.findall(r"^\| `(\w+)` \| [^|]*(?:\\\|[^|]*)* \| [^|]+(?:\\\|[^|]*)* \| .+ \|$", text, re.M)


def test_the_page_of_options_has_every_section_and_key(pages):
    page, models = pages["options.md"], dict(explain.models())
    sections = re.findall(r"^## `\[(.+)\]`$", page, re.M)
    assert sections == explain.in_order({*models, *explain.CATALOGUE})
    for name, model in models.items():
        expected = [key.path.removeprefix(f"{name}.") for key in explain.keys(name, model)]
        assert keys_of(below(f"`[{name}]`", page)) == expected, name
    assert "| `optim.lr` | 0.001 | 1e-06 | 1e-05 |" in page
    assert "| A training service | A critic | a training service has no value head |" in page
    assert sum(len(keys_of(below(f"`[{name}]`", page))) for name in models) > 100


def test_every_catalogue_has_a_page():
    assert set(built_pages.CATALOGUES) == set(catalogue.KINDS)


@pytest.mark.parametrize("kind", built_pages.CATALOGUES)
def test_the_page_of_a_catalogue_has_every_entry_and_option(kind, pages):
    file = f"{built_pages.CATALOGUES[kind].page}.md"
    page, names = pages[f"catalogue/{file}"], built_pages.ours(kind)
    assert names and re.findall(r"^## (.+)$", page, re.M) == names
    assert re.findall(r"^\| \[(\w+)\]\(#\1\) \| \S", page, re.M) == names
    for name in names:
        entry = catalogue.load(kind, name)
        expected = [*getattr(entry.config, "model_fields", {})]
        text = below(name, page)
        assert keys_of(text) == expected and ("No options." in text) == (not expected), (kind, name)
        assert entry.about.partition("\n")[0].replace("<", "&lt;") in text.replace("<", "&lt;")
        assert f"[{name}]({file}#{name})" in pages["catalogue/index.md"]


def test_a_page_by_hand(pages):
    *_, head, line, row = below("calculator", pages["catalogue/tools.md"]).splitlines()
    assert (head, line) == ("| key | type | default | meaning |", "| --- | --- | --- | --- |")
    assert row.startswith("| `digits` | whole number | 12 | largest number of significant digits of results ")
    gigpo = below("gigpo", pages["catalogue/credit.md"])
    assert "- `NEEDS`, columns that every step must have: `state`" in gigpo and "\nFormula: `A = GN(score" in gigpo
    assert "| [gigpo](#gigpo) | Group-in-group policy optimisation: GRPO" in pages["catalogue/credit.md"]
    assert "[2505.10978](https://arxiv.org/abs/2505.10978)" in pages["catalogue/credit.md"]


def test_angle_brackets_outside_code_are_no_html():
    assert built_pages.in_markdown("<a> `<b>`\n    <c>") == "&lt;a> `<b>`\n    <c>"


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_every_entry_has_a_source_and_a_formula(kind):
    """`Source:` names the paper, or says that there is none; `Formula:` is what the entry computes."""
    for name in built_pages.ours(kind):
        about = catalogue.load(kind, name).about
        for word, pattern in (("Source", "Sources?[:.]"), ("Formula", "Formula:")):
            found = re.search(rf"^{pattern} \S", about, re.M)
            assert found, f"{kind} {name}: its docstring has no paragraph '{word}: ...'"


def test_mkdocs_loads_the_file_that_the_pages_come_from():
    configuration = (ROOT / "mkdocs.yml").read_text()
    assert "\nhooks:\n  - docs/built_pages.py\n" in configuration


def test_the_repository_holds_none_of_the_pages(pages):
    assert [name for name in pages if (ROOT / "docs" / name).exists()] == []


def test_mkdocs_gets_the_pages(pages, monkeypatch):
    """MkDocs is not in the environment of the tests; `make docs` is the test with the real one."""
    made = {"File": SimpleNamespace(generated=lambda config, name, *, content: (config, name, content))}
    monkeypatch.setitem(sys.modules, "mkdocs.structure.files", SimpleNamespace(**made))
    files = built_pages.on_files(["a page of docs/"], "mkdocs.yml")
    assert files == ["a page of docs/", *(("mkdocs.yml", name, text) for name, text in pages.items())]
