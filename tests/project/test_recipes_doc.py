"""docs/recipes.md is what the configuration classes say, and no section or key lacks a meaning.

After a change of a section, an option or its docstring:

    PYTHONPATH=. python tests/project/test_recipes_doc.py --write
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrl import catalogue
from agentrl.cli import main
from agentrl.settings import defaults, explain

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
HEAD = """\
# Recipes: every section and key

A recipe is a TOML file of these sections; `section.key=value` on the command line overrides it. `agentrl train
--explain optim.lr` prints an entry of this page, `agentrl train RECIPE.toml --dry-run` a recipe with all its values.
This page is generated from the configuration classes (`tests/project/test_recipes_doc.py --write`).

A recipe needs `[env]` and `[model]`; `[eval.env]` names other tasks for evaluation than for training. The values that
a recipe leaves open are chosen by the kind of its model. They are stored with the run, so that `--resume` keeps them:
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *chosen(), "", *sections(), "## Catalogue entries", "", *entries()]).rstrip() + "\n"


def chosen() -> Iterator[str]:
    """What is chosen where a recipe leaves it open."""
    kinds = list(defaults.OPTIM)
    yield f"| key | {' | '.join(defaults.IN_WORDS[kind] for kind in kinds)} |"
    yield f"| --- |{' --- |' * len(kinds)}"
    for path in dict.fromkeys(path for kind in kinds for path in defaults.of_kind(kind)):
        values = [defaults.of_kind(kind).get(path) for kind in kinds]
        yield f"| `{path}` | {' | '.join('' if value is None else f'{value}' for value in values)} |"
    yield ""
    yield from (f"- `{path.replace('.hf', '')}`: {told}." for path, told in defaults.BY_ENVIRONMENT.items())
    yield "- options that an environment proposes for a model made from scratch (`SMALL_MODEL` of its file)."
    yield ""
    yield (
        "If a recipe sets `optim.name` or `optim.muon_lr`, only the first three rows of the table are chosen, and the "
        "list. A recipe that sets `optim.lr` without `optim.name` is taken as it is written: AdamW at that rate. Of "
        "all this, only `warmup.expert` is chosen for it."
    )


def sections() -> Iterator[str]:
    """One table per section, in the order of a recipe."""
    models = dict(explain.models())
    for name in explain.in_order([*models, *explain.CATALOGUE]):
        yield f"## `[{name}]`"
        yield ""
        if name in explain.CATALOGUE:
            yield from (explain.choice(name) + ".", "")
        if name in models:
            yield from (explain.first_line(models[name]), "", *table(explain.keys(name, models[name])), "")


def entries() -> Iterator[str]:
    """One table per catalogue entry that has options."""
    for name, kind in explain.CATALOGUE.items():
        ours = [entry for entry in catalogue.names(kind) if catalogue.load(kind, entry).module.startswith("agentrl.")]
        for entry in ours:
            keys = list(explain.entry_keys(name, entry))
            about = " ".join(catalogue.load(kind, entry).about.partition("\n\n")[0].split())
            yield from (f'### `[{name}] name = "{entry}"`', "", about, "", *(table(keys) if keys else []), "")


def table(keys: Iterator[explain.Key] | list[explain.Key]) -> Iterator[str]:
    yield "| key | type | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for key in keys:
        cells = (key.type, key.default or "must be given", key.meaning)
        told = " | ".join(cell.replace("|", "\\|") for cell in cells)
        yield f"| `{key.path.rpartition('.')[2]}` | {told} |"


def test_the_page_is_what_the_classes_say():
    assert PAGE.read_text() == page(), f"docs/recipes.md is not up to date: see {__doc__}"


def test_every_key_has_a_meaning():
    of_sections = [key for name, model in explain.models() for key in explain.keys(name, model)]
    of_entries = [
        key
        for name, kind in explain.CATALOGUE.items()
        for entry in catalogue.names(kind)
        for key in explain.entry_keys(name, entry)
    ]
    assert [key.path for key in (*of_sections, *of_entries) if not key.meaning] == []
    assert len(of_sections) > 100 and len(of_entries) > 200


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "[warmup]"),
        (["optim.lr"], "0.001 for a model made from scratch, 1e-06 for a pretrained model"),
        (["warmup"], "warmup.expert: text"),
        (["model.lora.r"], "rank"),
        (["credit.gigpo.gamma"], "discount per step"),
        (["credit.step_weight"], "credit.graph_gpo.step_weight"),
        (["env.alfworld"], "env.alfworld.level"),
    ],
)
def test_explained(words, told, capsys):
    assert main(["train", "--explain", *words]) == 0
    assert told in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("optm", "no section or key 'optm': did you mean optim?"),
        ("optim.lrr", "did you mean optim.lr"),
        ("credit.gigpo.gama", "did you mean gamma?"),
        ("credit.gigpoo", "did you mean gigpo"),
    ],
)
def test_unknown_names_get_help(word, told, capsys):
    assert main(["train", "--explain", word]) == 2
    assert told in capsys.readouterr().err


def test_it_needs_no_torch():
    code = (
        "import sys; from agentrl.cli import main; main(['train', '--explain', 'optim']); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python tests/project/test_recipes_doc.py --write")
    PAGE.write_text(page())
